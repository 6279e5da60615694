//! `libtranship.so` and `libtranship.a`: tranship for C, and for languages that call C.
//!
//! What it is for: the crate `tranship`, function by function, under C's rules. `include/tranship.h` is made from this
//! source (`cargo run -p xtask -- header write`), comments included, so the comments here are written for C
//! programmers.
//!
//! * `status.rs`: what each call returns, errors, and the border that no panic crosses.
//! * `buf.rs`: the one struct that the caller keeps: a buffer, or a message.
//! * `ticket.rs`, `open.rs`: find handles that are given back twice.
//! * `options.rs`: structs that can grow.
//! * `payload.rs`: the content of a buf on its way.
//! * `topic/`, `service/`, `queue/`, `component/`: each with a header of its own.
//! * `mbuf/`, `uma/`: network buffers and zones, each with a header of its own, with FreeBSD's names and rules: a call
//!   that fails returns NULL or a number of `errno(3)`.
//! * The rest: a file for each kind of handle.
//!
//! Handles are boxes behind opaque pointers. Where C passes a pointer, the parameter is an `Option` of a reference or a
//! box. Both have the same representation, and the compiler makes sure that NULL is handled. The caller promises that a
//! pointer that is not NULL is valid, as everywhere in C.
//!
//! `unsafe` is here for C's strings and arrays, for the words of a buffer, and for options of other sizes.
//!
//! NOT here: anything that Rust programs cannot do with the crate `tranship`.

mod admin;
mod aggregate;
mod buf;
mod component;
mod domain;
mod given;
mod inbox;
mod link;
mod listener;
mod mbuf;
mod open;
mod options;
mod payload;
mod poll;
mod pool;
mod queue;
mod receiver;
mod sender;
mod service;
mod status;
mod ticket;
mod topic;
mod uma;
