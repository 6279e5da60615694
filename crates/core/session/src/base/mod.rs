//! What everything above uses and what knows nothing of it: locks that no panic poisons, names, threads, numbers of files, and how long a pool
//! outlives those who are in it.

mod inode;
mod lock;
mod name;
pub mod retired;
mod thread;
mod time;
pub mod visits;

pub use inode::inode;
pub use lock::lock;
pub use name::checked_name;
pub use thread::thread;
pub use time::millis;
