//! The executable model of domains, pools, buffers and channels: all domains at once, no memory, no I/O, no time. Tests
//! compare the implementation with it, and nothing that runs imports it.
//!
//! It is Algorithms 1 to 10 of "Bulk Transfer over Shared Memory" (ETH Zurich, 2014), with the reference counts of
//! "Buffer sharing in CSP-like programs" (Rollins), over one pool. The gaps of both are closed:
//!
//! * **In transit.** A message takes effect where it is sent when it is sent, and where it arrives when it is taken
//!   there ([`Op::Deliver`], [`Op::TakeBack`]). In between no domain may touch a moved buffer.
//! * **Frame rule.** [`Model::step`] changes what the operation names and nothing else. An error changes nothing,
//!   except that a channel has agreed to pools that were asked about before the error was found.
//! * **Access is derived** from the holders ([`Model::access`]), never stored.
//! * **Exclusive** is a handle, of which there is one: [`Hold::Sole`]. Only that one is moved. It arrives as one where
//!   the receiver can write, else as a shared one. Both can be handed back, and arrive as shared ones. A buffer that was
//!   sent is exclusive again only as another buffer, when its pool gives the memory out anew. The pool does so
//!   when no domain holds it and no message carries it.
//! * **Copies are counted**: each domain has as many handles as it got and cloned. So no chain of copies has to be
//!   kept: a domain that passes a copy on may release its own first.
//! * **Trust is a pool's**, fixed at its creation, and says what the kernel allows whatever the state
//!   ([`Model::permitted`]). A channel takes the levels that its receiver names, and a receiver may refuse each pool.
//! * **Identity.** Where memory is shared a buffer stays itself. A buffer that is copied (level `none`) or carried
//!   (another machine) becomes a new buffer of the receiver's; then there is nothing to send back.
//! * **A release may be told.** [`Op::Release`] lets a handle go. The source gets a message about it, after all that
//!   came back before.
//! * **A pool may be removed** from a channel, by either end ([`Op::Remove`]). What was sent before arrives. The source
//!   learns of the sink's removal, which is for good, from a message.
//! * **Closing is letting go.** Messages that were sent before can still be taken, and so can those that the other end
//!   sent back before it went. Held buffers stay.
//! * **Death** is closing everything and letting everything go at once, and the receiver is told so. A pool whose
//!   writer is dead gives nothing out any more; buffers that others hold stay theirs.
//!
//! [`explore`] has all states of small configurations, [`draw`] random programs.
//!
//! NOT here: bytes and addresses, sleeping, the manager, liars.

#![deny(unsafe_code)]

mod check;
mod deliver;
pub mod draw;
pub mod explore;
mod op;
mod setup;
mod state;
mod transfer;
mod types;

pub use op::{Event, Op, Outcome};
pub use state::{Model, copies_of, lists_of};
pub use tranship_error::ErrorKind;
pub use tranship_proto::Trust;
pub use types::{
    Access, Buffer, BufferId, Carries, Channel, ChannelId, Domain, EndState, Hold, Message, Piece,
    Pool, PoolId, Way,
};

impl Model {
    /// Does an operation.
    pub fn step(&mut self, op: &Op) -> Result<Outcome, ErrorKind> {
        if !self.is_alive(op.domain()) {
            return Err(ErrorKind::BadArgument);
        }
        let done = match op.clone() {
            Op::Connect {
                domain,
                sink,
                lines,
                levels,
            } => self.connect(domain, sink, lines, levels),
            Op::NewPool {
                domain,
                trust,
                slots,
                forward,
            } => self.new_pool(domain, trust, slots, forward),
            Op::Veto {
                domain,
                channel,
                veto,
            } => self.veto(domain, channel, veto),
            Op::Assign {
                domain,
                channel,
                pool,
            } => self.assign(domain, channel, pool),
            Op::Remove {
                domain,
                channel,
                pool,
            } => self.remove(domain, channel, pool),
            Op::Alloc { domain, pool, data } => self.alloc(domain, pool, data),
            Op::Write {
                domain,
                buffer,
                data,
            } => self.write(domain, buffer, data),
            Op::Freeze { domain, buffer } => self.freeze(domain, buffer),
            Op::Clone { domain, buffer } => self.clone_handle(domain, buffer),
            Op::Exclusive { domain, buffer } => self.exclusive(domain, buffer),
            Op::Drop { domain, buffer } => self.let_go(domain, buffer),
            Op::Inline {
                domain,
                channel,
                word,
            } => self.send(domain, channel, &[], Carries::Inline, word),
            Op::Send {
                domain,
                channel,
                buffer,
                keep,
                word,
            } => {
                let sent = self.send(domain, channel, &[buffer], Carries::Shared, word);
                match keep {
                    true => sent,
                    false => sent.and_then(|_| self.let_go(domain, buffer)),
                }
            }
            Op::Move {
                domain,
                channel,
                buffer,
                word,
            } => self.send(domain, channel, &[buffer], Carries::Moved, word),
            Op::SendAll {
                domain,
                channel,
                buffers,
                word,
            } => self.send(domain, channel, &buffers, Carries::Aggregate, word),
            Op::MoveAll {
                domain,
                channel,
                buffers,
                word,
            } => self.send(domain, channel, &buffers, Carries::MovedAggregate, word),
            Op::Release {
                domain,
                channel,
                buffer,
                word,
            } => self.release(domain, channel, buffer, word),
            Op::Pass {
                domain,
                channel,
                buffer,
                word,
            } => self.pass(domain, channel, buffer, word),
            Op::Deliver { domain, channel } => self.deliver(domain, channel),
            Op::TakeBack { domain, channel } => self.take_back(domain, channel),
            Op::Close { domain, channel } => self.close(domain, channel),
            Op::Kill { domain } => self.kill(domain),
        };
        self.collect();
        done
    }
}
