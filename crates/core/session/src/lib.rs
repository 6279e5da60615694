//! A domain's session with its manager: joining, the manager's news, questions and answers, coming back after the
//! manager's death, leaving.
//!
//! What it is for: all messages between a domain and its manager. Like the manager, it knows the domain's pools and
//! channels only by the traits in `residents`, which `core` implements. Only the manager's news and claims go that way,
//! no message and no allocation.
//!
//! Its files, from below:
//!
//! - the base of all (`base/`, `error`);
//! - talking to the manager (`wire`, `greeting`, `conn`);
//! - finding and starting one (`places`, `discover`, `starter`, `cut_off`, `home`);
//! - a domain's possessions (`control_pages`, `heap`, `backlog`, `exports`, `tasks`, `notes`, `trace`, `pressure`);
//! - its pools and channels (`residents`, `register`), and its whole state (`state`);
//! - operations on that state: each event (`events`), the claims after a manager's restart (`resume`), all due work
//!   (`work`, `leave`, `turn`), questions that have an answer (`call`), its end (`entrust`, `leaks`), its beginning
//!   (`join`).
//!
//! `unsafe` is here for a state that a forked child does not free, a word of the manager's page, and marks of threads
//! (`base/visits`).
//!
//! NOT here: pools, buffers, channels, the public `Domain` (`core`); the manager's decisions (`manager`); the shapes of
//! messages (`proto`).

#![expect(
    missing_debug_implementations,
    reason = "`DomainCore` says of itself what there is to say"
)]

mod backlog;
pub mod base;
mod call;
mod conn;
mod control_pages;
mod cut_off;
pub mod discover;
mod entrust;
pub mod error;
mod events;
mod exports;
mod greeting;
mod heap;
mod helper;
mod home;
mod join;
mod leaks;
mod leave;
mod notes;
pub mod places;
mod poll;
mod pressure;
mod register;
mod residents;
mod resume;
mod starter;
mod state;
mod tasks;
mod trace;
mod turn;
mod wire;
mod work;

pub use call::Asked;
pub use exports::Offered;
pub use greeting::MANAGER_TIMEOUT;
pub use heap::OwnHeap;
pub use join::Join;
pub use leave::look as look_at_left;
pub use notes::{Got, HeldBuffer, LeakReport, Leaks, OwnBuffer};
pub use residents::{
    ForeignMember, Gone, Had, Joined, LinkMember, Offer, OwnMember, Taken, Tended, Watch,
};
pub use state::{DomainCore, PATIENCE, POLL_INTERVAL, ROUND};
pub use tasks::{Key, Woken};
pub use trace::Subject;
pub use wire::EventWithFds;
