//! The base of all other files, which knows none of them: locks that no panic poisons, names, threads, numbers of
//! files, and the lifetime of pools that threads are still in.

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
