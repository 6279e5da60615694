//! What everything above uses and what knows nothing of it: locks that no panic poisons, names, threads, numbers of files.

mod inode;
mod lock;
mod name;
mod thread;
mod time;

pub(crate) use inode::inode;
pub(crate) use lock::lock;
pub(crate) use name::checked_name;
pub(crate) use thread::thread;
pub(crate) use time::millis;
