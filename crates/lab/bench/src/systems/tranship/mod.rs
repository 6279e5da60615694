//! The product: every process a domain, one link each way, a pool on each side.
//!
//! The manager is a thread of process 0, on its core, and asleep while we measure.

mod alloc;
pub mod join;
pub mod moved;
mod service;
pub use join::shape_of;

pub use alloc::Zones;
pub use moved::Moved;
pub use service::Served;

use anyhow::{Context, Result, ensure};
use tranship_core::{Buffer, BufferMut, Domain, Message, Pool, Receiver, Sender};

use crate::case::{Case, Touch};
use crate::party::Party;
use crate::peer::{Ops, Peer, Role};
use crate::touch;

pub struct Tranship {
    sender: Sender,
    receiver: Receiver,
    /// Of one call.
    messages: Vec<Message>,
    pool: Pool,
    touch: Touch,
    payload: usize,
    _domain: Domain,
}

impl Peer for Tranship {
    const NAME: &'static str = "tranship";

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let domain = join::domain_with(role.index(), party, case.helper)?;
        let pool = domain.create_pool(join::pool_of(case.buffers, case.payload))?;
        let (mut sender, mut receiver) = join::links(&domain, case, role)?;
        // One after the other: the end that accepts a pool must be in a call of the library.
        if role == Role::Ping {
            join::show(&mut sender, &pool)?;
            join::look(&mut receiver)?;
        } else {
            join::look(&mut receiver)?;
            join::show(&mut sender, &pool)?;
        }
        join::grow(&pool, case)?;
        Ok(Self {
            sender,
            receiver,
            messages: Vec::with_capacity(Self::MANY),
            pool,
            touch: case.touch,
            payload: case.payload,
            _domain: domain,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        let loan = self.alloc()?;
        self.give(loan, stamp)
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        let (held, stamp) = self.take()?;
        self.release(held)?;
        Ok(stamp)
    }
}

impl Ops for Tranship {
    type Loan = BufferMut;
    type Held = Buffer;

    #[inline(always)]
    fn alloc(&mut self) -> Result<BufferMut> {
        Ok(self.pool.alloc(self.payload)?)
    }

    #[inline(always)]
    fn give(&mut self, mut loan: BufferMut, stamp: u64) -> Result<()> {
        match self.touch {
            Touch::Untouched => {}
            Touch::Word => loan[..8].copy_from_slice(&stamp.to_le_bytes()),
            // SAFETY: `payload` bytes that only this handle writes, aligned to a cache line.
            Touch::Touched => unsafe { touch::fill(loan.as_mut_ptr(), self.payload, stamp) },
        }
        self.sender.send((loan.freeze(), stamp))?;
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self) -> Result<(Buffer, u64)> {
        let message = self.receiver.recv()?;
        let word = message.word;
        let held = message
            .into_buffer()
            .context("a message without a buffer")?;
        let stamp = match self.touch {
            Touch::Untouched => word,
            Touch::Word => held.view().read::<u64>(0)?,
            Touch::Touched => {
                ensure!(held.len() == self.payload, "{} bytes", held.len());
                // SAFETY: `payload` bytes, aligned to a cache line; the writer is this program and
                // leaves a sent buffer alone until it is released.
                unsafe { touch::check(held.view().as_ptr(), self.payload)? }
            }
        };
        Ok((held, stamp))
    }

    #[inline(always)]
    fn release(&mut self, held: Buffer) -> Result<()> {
        drop(held);
        Ok(())
    }

    const MANY: usize = 10;

    #[inline(always)]
    fn give_many(&mut self, loans: Vec<BufferMut>) -> Result<()> {
        let payloads = loans.into_iter().map(|loan| (loan.freeze(), 0));
        self.sender
            .send_many(payloads)
            .map_err(|failed| failed.error)?;
        Ok(())
    }

    #[inline(always)]
    fn take_many(&mut self, into: &mut Vec<Buffer>) -> Result<()> {
        self.receiver.recv_many(&mut self.messages, Self::MANY)?;
        for message in self.messages.drain(..) {
            into.push(
                message
                    .into_buffer()
                    .context("a message without a buffer")?,
            );
        }
        Ok(())
    }
}
