//! The system calls by which pages go to a socket without a copy: scattered sends, pipes, registered memory, datagrams
//! cut by the kernel, and page tables.
//!
//! NOT here: calls that `base` and `core` need (`tranship-sys`), and the choice between ways (`send`).

pub mod pagemap;
pub mod pipe;
pub mod ring;
pub mod scatter;
pub mod segment;
