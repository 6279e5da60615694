//! Collection in rounds: which buffers that were published no reader holds any more.
//!
//! The readers of a ring ([`tranship_ring::broadcast`]) say in their desks what they may hold. The writer of a pool asks
//! them once a round:
//!
//! 1. The batch is fixed: the buffers of lines that have ended, and those that earlier rounds found held.
//! 2. One full fence. Every line of the batch ended before it; every desk is read after it.
//! 3. The desks, a few a publish: `win`; then what it covers is marked; then `kept`, and `more`, and the table.
//! 4. After the last desk, a few entries a publish: what is not marked is free, what is marked goes into the next batch.
//!
//! Lines that end meanwhile wait for the next round.
//!
//! | operation | shared lines touched | fences | private work |
//! |---|---|---|---|
//! | [`Rounds::step`] with nothing due | 0 | 0 | one comparison |
//! | [`Rounds::begin`] | 0 | 1 | |
//! | [`Rounds::look`] at an idle desk | 1 | 0 | |
//! | at one with holds, or a window into the batch | 1 | 0 | at most 12 + 8 marks, a search |
//! | at one with a table | the table's words of the batch | 0 | a mark each, [`Pace::table`] a publish |
//! | [`Rounds::sweep`] | 0 | 0 | one entry |
//!
//! * [`Desks`]: the accesses to the readers' memory, one a call. Models run the same functions. [`DeskView`]: mapped ones.
//! * [`Rounds`]: the rounds of one pool, over all its rings.
//! * [`Published`]: which buffers the lines of one ring name, and the end of these lines.
//! * [`Reliable`]: the readers that hold the writer back.

mod desks;
mod ended;
mod published;
mod reliable;
mod round;
mod view;

pub use desks::{Desks, Outcome};
pub use published::Published;
pub use reliable::Reliable;
pub use round::{Pace, Rounds};
pub use view::DeskView;
