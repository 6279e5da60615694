//! Values by key and queues of values, which one process keeps for many, by reference.
//!
//! A store is a service ([`tranship_service`]) over a table. Values are buffers of whichever process made them: the store
//! holds a reference, and hands out references. It copies a value only when the value's process is gone and a further
//! process wants it, because no manager shows a dead writer's pool to new readers.
//!
//! ```
//! # mod tranship { pub use tranship_core::*; pub use tranship_store as store; }
//! use tranship::store::{Got, StoreOptions, Stores, Value};
//! use tranship::{Domain, PoolOptions};
//!
//! let domain = Domain::builder().helper_thread(true).embedded()?;
//! let store = domain.create_store("models", StoreOptions::new())?; // others: domain.store("models")
//! let pool = domain.create_pool(PoolOptions::new(1 << 20).allow_forward(true))?;
//! let weights = Value::new(vec![pool.copy(b"weights")?.freeze()]).expect("a buffer");
//! store.put(b"resnet", &weights).wait()?;
//! let Got::Value(found) = store.get(b"resnet", None).wait()? else { panic!("a value") };
//! assert_eq!(found.pieces()[0].to_vec(), b"weights");
//! # Ok::<(), tranship::Error>(())
//! ```
//!
//! Files, from below: `ask` (questions and answers as bytes), `wait` (callers that wait), `values` and `lane` (what is kept), `table` (all decisions), `value`,
//! `options`, `desk` (which thread answers clients), `home` (the process that keeps), `store` (what a program calls).
//!
//! NOT here: memory, which is the pools' that values lie in; how values become bytes, which is the caller's.

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod ask;
mod desk;
mod home;
mod lane;
mod options;
mod store;
mod table;
mod value;
mod values;
mod wait;

pub use options::StoreOptions;
pub use store::{Got, Store, Stores, Wait};
pub use value::Value;
