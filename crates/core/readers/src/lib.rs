//! The common part of topics and queues: one writer with a ring, and readers that come and go. It is not public.
//!
//! | file | what it has |
//! |---|---|
//! | `line` | what a line of the ring says |
//! | `pieces` | aggregates: the list of the buffers that a line names |
//! | `options` | options that all writers have |
//! | `payload` | what can be sent |
//! | `waiting` | waiting for memory and room, in threads and tasks; what the helper thread tends |
//! | `words` | what a writer says to one reader beside the ring |
//! | `seats` | the readers as the writer sees them: joining, desks, leaving |
//! | `kept` | the buffers that the writer keeps, and when it begins a round |
//! | `connection` | a reader's connection to one writer |
//! | `polled` | readers as things that `poll` waits for |
//!
//! NOT here: the ring and the desks (`ring/broadcast`), the rounds (`ledger/rounds`), names and memory (`core/topics`),
//! what is done with a line (`topic`, `queue`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]
#![allow(missing_debug_implementations, reason = "no program sees them")]

mod connection;
mod kept;
pub mod line;
pub mod options;
mod payload;
pub mod pieces;
mod polled;
mod seats;
pub mod waiting;
mod words;

pub use connection::{Connection, Names, WORDS, is_put_off, reading};
pub use kept::Kept;
pub use payload::{Payload, Room, Sealed, To, Waits, Writes};
pub use seats::{BRISK, HALF_OPEN, Host, Joins, Seat, Seats, View};
pub use waiting::Idle;
pub use words::{Go, Word};
