//! Zones, kegs, buckets and runs: the one allocator.
