//! Liveness: which domains may still read a buffer, and when it may be reused.
//!
//! Three counters per buffer decide (`docs/format.md` kinds 3 to 5): `ref`, one per reading domain; `sent` and `rcvd`,
//! one of each per queue (a channel to which the pool is assigned).
//!
//! * [`ReaderSet`]: the domains whose counters count for a pool, and the epoch for which that is true.
//! * [`ReaderSet::collect`]: the collector's verdict over a batch of buffers, generations included.
//! * [`ReaderSet::are_dead`]: the same over a few where the writer is the source of every queue.
//! * [`ReaderSet::is_alive`], [`are_alive`]: the verdict of one pass alone, the latter the manager's about an orphan.
//! * [`send_first`], [`send_again`], [`send_all`]: a buffer's first send by which its only handle goes, any other, and
//!   an aggregate's.
//! * [`hold`], [`still_names`], [`receive`], [`receive_all`]: how a reference, or an aggregate's, is received.
//! * [`raise`], [`release`]: a clone of a reference, and the end of one.
//! * [`pass_back`], [`take_return`]: the same for a buffer that its receiver hands back.
//! * [`want_releases`], [`release_and_tell`]: how a writer that waits hears of the last release.
//! * [`Bias`]: the one thread that counts what it receives without locked instructions.
//! * [`Handles`]: the writer's private references, of all its threads.
//! * [`rounds`]: which published buffers no reader of a ring holds, asked of the readers' desks.
//! * [`order`]: those orders as data. The exhaustive models in `tests/` step through the same data, so a change of an
//!   order changes the model too.
//! * [`generation`]: the arithmetic of generations.
//!
//! `docs/memory-model.md` has the proofs, what was modelled, and what breaks without each rule.
//!
//! NOT here: mappings and bounds (views are passed in), I/O, time, locks, the ring on which ids travel, the list of
//! candidates, and the right to assign pools.

mod bias;
mod collect;
mod direct;
pub mod generation;
mod handles;
pub mod order;
mod reader_set;
mod receipt;
mod relinquish;
pub mod rounds;
mod scratch;
mod send;
mod transfer;
mod words;

pub use bias::Bias;
pub use collect::{Batch, StaleReaderSet, are_alive};
pub use generation::StaleReference;
pub use handles::{Handles, LetGo, is_named};
pub use order::{CollectStep, PassStep, Phase, ReceiptStep, ReturnStep, SendStep};
pub use reader_set::{Queue, Reader, ReaderSet, ReaderSetError, Source};
pub use receipt::{hold, receive, receive_all, still_names};
pub use relinquish::{release_and_tell, want_releases};
pub use send::{FirstSend, Sent, send_again, send_all, send_first};
pub use transfer::{pass_back, raise, release, take_return};
pub use words::{Few, Generations, NoWords, Slots, Words};
