//! Values out of memory over sockets: cache servers, Varnish.

pub mod cache;
mod counters;
pub mod fault;
mod pairs;
pub mod varnish;
