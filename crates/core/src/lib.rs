//! The client library: domains, pools, buffers, aggregates, links.
