//! A small HTTP server: GET, one request a connection, little of everything.

mod accept;
mod answer;
mod host;
pub(crate) mod listen;
mod request;
pub(crate) mod serve;
