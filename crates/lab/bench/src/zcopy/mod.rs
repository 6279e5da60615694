//! Values out of memory over sockets: cache servers, memcached, Varnish.

pub mod cache;
pub mod memcached;
mod pairs;
pub mod varnish;
