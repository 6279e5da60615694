//! Values out of memory over sockets: cache servers, Varnish.

pub mod cache;
mod pairs;
pub mod varnish;
