//! Services: requests from many clients, and their replies, over channels.
//!
//! A [`Service`] has a name. Each [`Client`] gets two channels of its own: requests go over one, replies come by the other, large ones by reference in
//! both directions. The word of each message says to which call it belongs and when that call's time is over. Several calls of a client may be in
//! flight, and several workers may take requests.
//!
//! ```
//! use std::thread;
//! # mod tranship { pub use tranship_core::*; pub use tranship_service as service; }
//! use tranship::Domain;
//! use tranship::service::Services;
//!
//! let domain = Domain::builder().helper_thread(true).embedded()?;
//! let double = domain.serve("local:double")?;
//! let worker = thread::spawn(move || -> Result<(), tranship::Error> {
//!     let request = double.recv()?;
//!     let numbers = request.to_vec();
//!     let doubled: Vec<u8> = numbers.iter().map(|n| n * 2).collect();
//!     request.reply(&*doubled)?;
//!     Ok(())
//! });
//! let client = domain.client("local:double")?;
//! assert_eq!(client.call(&[1, 2, 3])?.to_vec(), [2, 4, 6]);
//! worker.join().expect("the worker")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files, from below: `word` (what a message's word says), `flow` (a call's items), `pause` (of a task that is always ready), `options`, `error`, `state` and `calls` (a client's calls in flight), `call`, `joining` (how a client's two channels come about), `workers` and `client` (the caller's
//! side), `peer`, `request`, `hall` (a service's clients) and `service` (the worker's side), `connect` (the trait).
//!
//! NOT here: channels, memory and names, which are `core`'s; the types of messages, which are `typed`'s.

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod call;
mod calls;
mod client;
mod connect;
mod error;
mod flow;
mod hall;
mod joining;
mod options;
mod pause;
mod peer;
mod request;
mod service;
mod state;
mod word;
mod workers;

pub use call::Call;
pub use client::Client;
pub use connect::Services;
pub use error::CallError;
pub use options::{CallOptions, ServiceOptions};
pub use request::Request;
pub use service::Service;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread that panicked left nothing half done under a lock here.
#[inline(always)]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
