//! Nobody waits for an untrusted peer: a manager, its honest clients and an attacker, of three users, each a process of its own.
//!
//! What an attacker makes it may keep busy: with a thread that sits in the kernel, in the middle of a call on it, until a
//! page comes from a file system (FUSE) that never answers. Whoever then makes a call that needs the same lock waits too,
//! whatever flags it gives, and not even SIGKILL ends it. So nobody makes such calls on what an untrusted peer made.
//!
//! * `files`: a memfd whose inode's lock is kept;
//! * `sockets`: sockets that two parties share;
//! * `sleepers`: a word to sleep on;
//! * `connects`: connections that nobody takes.

mod connects;
mod files;
mod sleepers;
mod sockets;
mod stage;
