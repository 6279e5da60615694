//! Parts for tests with several real processes:
//!
//! - children that talk over a socket instead of sleeping, managers, a watchdog, skips that are heard;
//! - the program `tranship`, and what programs say;
//! - counts of the resources of a process, weak and strong privileges, a system-call counter;
//! - attempts to break isolation, hostile clients of a manager, scenes of programs that are struck at random;
//! - containers, hosts with weather between them, connections that are cut and held;
//! - payloads that show their own reuse.
//!
//! NOT here: anything that the product runs, honest use of tranship (the tests bring it), speed measurements (`bench`).
//!
//! # A test with a child
//! ```no_run
//! use tranship_testkit::{Control, Watchdog, child};
//! use std::time::Duration;
//! child!(fn echo(ctl: Control) {
//!     while let Some(line) = ctl.recv::<String>().unwrap() {
//!         ctl.send(&line).unwrap();
//!     }
//! });
//! # fn main() {
//! let _dog = Watchdog::new();
//! let peer = echo().env("TRANSHIP_CRASH_AT", "after_publish").start().unwrap();
//! peer.send(&"hello").unwrap();
//! assert_eq!(peer.expect::<String>(), "hello");
//! peer.kill(); // SIGKILL, reaped; dropping does the same
//! # }
//! ```

mod artifact;
pub mod attack;
mod between;
pub mod chaos;
pub mod container;
mod errno;
mod folder;
pub mod fuse;
pub mod hostile;
pub mod lab;
mod manager;
pub mod payload;
pub mod peer;
mod port;
pub mod probe;
mod program;
mod random;
mod relay;
pub mod resource;
mod running;
mod said;
pub mod service;
mod skip;
mod wait;
mod watchdog;

pub use artifact::{artifact, forget_who_asks};
pub use between::{Between, Keeps};
pub use container::{Cgroup, Container};
pub use folder::folder;
pub use manager::{listening, manager, start_manager};
pub use peer::{Control, Exit, Launch, Peer, PeerError, Privilege, own_user};
pub use port::Port;
pub use program::{Home, Lines, tranship};
pub use random::{Random, kills};
pub use relay::Relay;
pub use resource::Held;
pub use running::Running;
pub use said::{Said, has};
pub use skip::skipped;
pub use tranship_sys::syscalls;
pub use wait::{block_on, unpark, until};
pub use watchdog::{Watchdog, prepare};

/// Returns whether this process is root with all that the strongest tests need.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
