//! `libtranship_zcopy.so`: memory that a program allocates in large pieces is sent without being copied. `LD_PRELOAD`
//! it.
//!
//! malloc(3) and its kin take blocks of `TRANSHIP_ZCOPY_MIN` bytes and more (default 256 KiB) from a twin allocator, and
//! leave the rest to the program's own allocator. `zc_malloc` and `zc_free` do it for any size, and `zc_readonly` names
//! memory that never changes. write(2), writev(2), send(2), sendto(2) and sendmsg(2) of such memory, and of the
//! program's constants, to a stream socket go by reference. All else goes to the C library untouched. Variables:
//!
//! - `TRANSHIP_ZCOPY_STATS=1` prints the counts at exit.
//! - `TRANSHIP_ZCOPY_SEND` sets the bytes from which a send goes by reference (default 256 KiB).
//! - `TRANSHIP_ZCOPY_MAX` limits the twin allocator (`512MiB`; default: the machine's memory). Beyond it the program's
//!   own allocator is used.
//! - `TRANSHIP_ZCOPY_BLOCK_PAGES` and `TRANSHIP_ZCOPY_LARGE` are `Options::block_pages` and `Options::large_threshold`
//!   of `zcopy`.
//!
//! The contracts are those of the manual pages: short counts, `EAGAIN`, `EINTR`, time-outs, and `EPIPE` with its signal
//! unless MSG_NOSIGNAL. Memory can be written at any time, also right after it was sent. Forks and threads are allowed.
//!
//! `unsafe` is here because these are C functions, with the contracts of their manual pages.
//!
//! NOT here: the allocator and the sends (`zcopy`).

mod descriptors;
mod environment;
mod inside;
mod memory;
mod next;
mod readable;
mod readonly;
mod sends;
mod state;

/// The C library's allocator, for the tables of the twin allocator.
#[global_allocator]
static TABLES: next::System = next::System;
