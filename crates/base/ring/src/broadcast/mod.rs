//! A ring that one writer writes and any number of readers map read-only: claim ahead, scan late.
//!
//! A reader of a ring knows which line it reads next. It therefore says in its desk which lines it may hold, before it
//! reads them, and nobody counts at receipt. The writer asks every desk once a round (`tranship-ledger`, `Rounds`), not
//! once a buffer. Overwriting a line is the invalidation: of a claim that is made visible before the line is read, and
//! a line that is overwritten before the desks are read, at least one side sees the other.
//!
//! | operation | lines touched | fences | locked instructions |
//! |---|---|---|---|
//! | [`Writer::publish`] | the line | 0 | 0 |
//! | [`Reader::receive`] | the line | 0; 1 each [`Limits::window`] messages, for the claim | 0 |
//! | [`Reader::finish`] (a drop) | its own desk | 0 | 0 |
//! | [`Reader::hold`] in an entry of `kept` | its own desk | 0 | 0 |
//! | [`Reader::hold`] in the table | its own table and desk | 0 | 1 |
//! | [`let_go`] | its own desk, or table | 0 | 0, or 1 for the table |
//!
//! * [`Win`], [`sequence`], [`ahead`]: what the shared words mean.
//! * [`WriterMemory`], [`ReaderMemory`]: the accesses to shared memory, one a call. Models run the same functions.
//! * [`Desk`], [`Reading`]: that memory where it is mapped. The writer's is [`Lines`](crate::Lines).
//! * [`Writer`]: publishes and withdraws lines.
//! * [`Reader`]: claims, receives, drops, keeps; [`let_go`] by any thread.
//! * [`Claims`], [`Opens`]: of a queue, where each line goes to one reader.
//! * [`Gaps`], [`Quiet`], [`wait`]: sleeping without a flag that says so.

mod claims;
mod desk;
mod dismissed;
mod gap;
#[cfg(not(loom))]
mod mapped;
mod memory;
mod open;
mod reader;
mod words;
mod writer;

pub use claims::{Claim, Claims, Front, claim, taken};
pub use desk::{Desk, Reading};
pub use dismissed::{Dismissed, READERS};
pub use gap::{BellAt, Gaps, Quiet, T_NS, Ticks, X_NS, ring_bell, wait, wait_any};
#[cfg(not(loom))]
pub use mapped::{
    BellRo, BellRw, ClaimsRw, DeskRo, DeskRw, LinesRo, LinesRw, claims_len, lines_len, page_len,
};
pub use memory::{ReaderMemory, WriterMemory};
pub use open::{OPEN, Open, Opens, open};
pub use reader::{Hold, Limited, Limits, Reader, Received, let_go};
pub use words::{
    CONTENT, KEPT, LAST, Message, SEQUENCES, UNBEGUN, WINDOW, WITHDRAWN, Win, ahead, at,
    first_word, sequence,
};
pub use writer::{Writer, published};
