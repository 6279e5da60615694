//! System calls.
//!
//! What it is for: every call into the kernel that several parts make, in safe wrappers where safety can be proved
//! locally. Calls of one part alone lie with it (`zcopy/src/kernel`).
//!
//! NOT here: layouts, policy, anything that knows what a pool is.

#[cfg(not(target_os = "linux"))]
compile_error!("tranship runs on Linux only: it rests on sealed memfds, futexes and pidfds");

pub mod cgroup;
pub mod confine;
pub mod crash;
pub mod epoll;
pub mod errno;
pub mod eventfd;
pub mod fork;
pub mod futex;
pub mod helper;
pub mod inherit;
pub mod limits;
pub mod machine;
pub mod map;
pub mod membarrier;
pub mod memfd;
pub mod notice;
pub mod pages;
pub mod pidfd;
pub mod pressure;
pub mod process;
pub mod schedule;
pub mod service;
pub mod signals;
pub mod socket;
pub mod stream;
pub mod syscalls;
pub mod time;
pub mod tun;

pub use fork::ForkGuard;

/// Returns the size of a page, bytes.
pub fn page_size() -> usize {
    rustix::param::page_size()
}
