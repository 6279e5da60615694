//! Nobody waits for an untrusted peer: a manager, its honest clients and an attacker, of three users, each a process of
//! its own.
//!
//! An attacker can keep the objects that it makes busy: a thread sits in the kernel, in the middle of a call on the
//! object, until a page comes from a file system (FUSE) that never answers. A process that then makes a call that needs
//! the same lock waits too, whatever flags it gives, and not even SIGKILL ends it. So no process makes such calls on
//! objects of an untrusted peer.
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
