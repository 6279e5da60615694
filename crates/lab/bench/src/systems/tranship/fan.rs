//! One frame for all consumers: written once, read in place.

use anyhow::{Context, Result, bail, ensure};
use tranship_core::{Domain, Pool, PoolOptions, Receiver, Sender};

use super::join;
use crate::case::Wait;
use crate::demo::{CONSUMERS, FRAME, Fan};
use crate::party::Party;
use crate::touch;

/// Frames that may be under way.
const FRAMES: usize = 4;

pub struct Shared {
    end: End,
    _domain: Domain,
}

enum End {
    Producer { pool: Pool, senders: Vec<Sender> },
    Consumer(Box<Receiver>),
}

impl Fan for Shared {
    const NAME: &'static str = "tranship";

    fn open(me: usize, party: &Party) -> Result<Self> {
        let domain = join::domain(me, party)?;
        let options = join::options(Wait::Block);
        if me != 0 {
            let mut receiver = domain.open_with::<Receiver>("frames", options)?;
            join::look(&mut receiver)?;
            return Ok(Self {
                end: End::Consumer(Box::new(receiver)),
                _domain: domain,
            });
        }
        let listener = domain.listen_with::<Sender>("frames", options)?;
        let frame = FRAME as u64;
        let pool =
            domain.create_pool(PoolOptions::new(FRAMES as u64 * frame).chunk_bytes(frame))?;
        let mut senders = Vec::new();
        for _ in 0..CONSUMERS {
            let mut sender = listener.accept()?;
            join::show(&mut sender, &pool)?;
            senders.push(sender);
        }
        Ok(Self {
            end: End::Producer { pool, senders },
            _domain: domain,
        })
    }

    fn send(&mut self, stamp: u64) -> Result<()> {
        let End::Producer { pool, senders } = &mut self.end else {
            bail!("a consumer sends");
        };
        let mut frame = pool.alloc(FRAME)?;
        // SAFETY: that many bytes that only this handle writes, aligned to a page.
        unsafe { touch::fill(frame.as_mut_ptr(), FRAME, stamp) }
        let frame = frame.freeze();
        let (last, others) = senders.split_last_mut().context("no consumers")?;
        for sender in others {
            sender.send_buf(frame.clone(), 0)?;
        }
        last.send_buf(frame, 0)?;
        Ok(())
    }

    fn recv(&mut self) -> Result<u64> {
        let End::Consumer(receiver) = &mut self.end else {
            bail!("the producer receives");
        };
        let frame = receiver.recv()?.into_buffer().context("no frame")?;
        ensure!(frame.len() == FRAME, "a frame of {} bytes", frame.len());
        let view = frame.view();
        let stamp = view.read_u64(0)?;
        // SAFETY: that many bytes, aligned to a page; the writer is this program and leaves a sent frame alone
        // until all have released it.
        let sum = unsafe { touch::sum(view.as_ptr(), FRAME) };
        ensure!(
            sum == touch::expected(FRAME, stamp),
            "bytes of frame {stamp} changed"
        );
        Ok(stamp)
    }
}
