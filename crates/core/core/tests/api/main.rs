//! The public API of the client library, seen as programs see it: several domains in one process with an embedded
//! manager. What needs several processes is in the tests of `testkit`.
//!
//! NOT here: hostile peers, kills, the restart of the manager, speed.

mod aggregates;
mod alloc;
mod alone;
mod buffers;
mod connects;
mod cut_off;
mod deferred;
mod descriptors;
mod early;
mod endings;
mod ends;
mod facts;
mod fork;
mod forward;
mod given_up;
mod heaps;
mod hung;
mod inbox;
mod kit;
mod limits;
mod links;
mod local;
mod lookup;
mod moved_aggregates;
mod moves;
mod own_pools;
mod passes;
mod places;
mod played;
mod poll;
mod quota;
mod releases;
mod removals;
mod sealed;
mod shrink;
mod snapshots;
mod stale;
mod steps;
mod tasks;
mod threads;
mod trust;
mod unopened;
mod unreachable;
mod watched;
