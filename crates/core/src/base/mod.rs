//! What everything above uses and what knows nothing of it: locks that no panic poisons, names, threads, numbers of files, and how long a pool
//! outlives those who are in it.

pub(crate) mod graves;
mod inode;
mod lock;
mod name;
mod thread;
mod time;
pub(crate) mod visits;

pub(crate) use inode::inode;
pub(crate) use lock::lock;
pub(crate) use name::checked_name;
pub(crate) use thread::thread;
pub(crate) use time::millis;
