//! A web server of isolated components.
//!
//! Each component is a [`Stage`]: it takes one message and sends others. `tranship run web.toml` links the stages by
//! channels, each in a process of its own ([`serve`]). [`one`] links them by calls, for the price of isolation.
//!
//! ```text
//!  client ──► front ──► http ──► guard ──► route ──┬──► static ────────────► front
//!                                   │              ├──► cache ──► dynamic ─► front
//!                                   ▼              └──► fastcgi ───────────► front
//!                                  log ◄── front
//! ```
//!
//! The clients' connections are sockets of the kernel, or those of two more components: `device` ◄─► `tcpip` ◄─► `front`.
//!
//! A request is a record and the pieces of its body, a reply a head and a body. Each is an aggregate if it has several
//! buffers. Bodies stay where they were received or made: the pools' levels are `producer`, so no component can change
//! another one's bytes. A small body lies behind its head in one buffer, because two buffers and their list cost more.
//!
//! A program with handlers of its own implements [`Handler`], and calls [`serve`] with [`Dynamic`].
//!
//! NOT here: channels and memory (`tranship`), starting and sandboxes (`tranship run`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod cache;
mod component;
pub mod device;
mod dynamic;
pub mod fastcgi;
mod files;
pub mod front;
mod guard;
mod http;
mod lane;
mod log;
pub mod one;
mod os;
mod reply;
mod request;
mod route;
mod stage;
pub mod tcpip;
pub mod tls;
mod word;

pub use cache::Cache;
pub use component::{Ends, serve};
pub use dynamic::{Dynamic, Example, Exchange, Handler};
pub use files::Files;
pub use guard::Guard;
pub use http::{Http, Limits};
pub use lane::{Away, Ended, Got, In, Out, Unsent};
pub use log::Log;
pub use reply::{Heads, http_date, reason, together};
pub use request::{HEAD_BYTES, Method, RecordWriter, Request, body_of, copy_record};
pub use route::Route;
pub use stage::{NAMES, Outs, Stage, To, nothing};
pub use word::Word;
