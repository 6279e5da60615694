//! `raw`: the floor. The product's ring of 64-byte lines between two processes, and nothing else: buffers are
//! fixed slots taken in turn, nothing is allocated, counted or checked, everybody may write everything.
//! When it blocks it is the bare futex ping-pong: a wake after each message, a wait before each look.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};
use rustix::thread::futex;
use tranship_ring::{Consumer, Lines, Producer, Publish, Push};

use super::shared::Shared;
use crate::case::{Case, Pattern, Touch, Wait};
use crate::party::Party;
use crate::peer::{Ops, Peer, Role};
use crate::touch;

/// How a line is published: as the product does it to a peer that busy-polls. A blocked peer is woken after each
/// message anyway.
const PUBLISH: Publish = Publish::Release;
const HEAD: usize = 64;
const WAKE: usize = 128;
const LINES: usize = 4096;

/// One direction: head word, futex word, lines, slots.
struct Lane {
    shared: Shared,
    lines: Lines<'static>,
    slots: usize,
    stride: usize,
    count: usize,
}

impl Lane {
    fn bytes(case: &Case) -> (usize, usize, usize) {
        let slots = (LINES + 64 * case.buffers).next_multiple_of(4096);
        let stride = case.payload.next_multiple_of(64);
        (slots, stride, slots + stride * case.buffers)
    }

    fn new(shared: Shared, case: &Case) -> Result<Self> {
        let (slots, stride, _) = Self::bytes(case);
        let first = shared.at(LINES, 64 * case.buffers).cast();
        // SAFETY: that many zeroed, page-aligned lines; `shared` is kept beside, and dropped with it.
        let lines = unsafe { Lines::from_raw(first, case.buffers) }?;
        Ok(Self {
            shared,
            lines,
            slots,
            stride,
            count: case.buffers,
        })
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, accessed as an atomic only.
        unsafe { self.shared.at(HEAD, 8).cast::<AtomicU64>().as_ref() }
    }

    fn wake(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned, accessed as an atomic only.
        unsafe { self.shared.at(WAKE, 4).cast::<AtomicU32>().as_ref() }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> (NonNull<u8>, usize) {
        // The remainder is below `count`, a usize.
        #[allow(clippy::cast_possible_truncation)]
        let index = (position & (self.count as u64 - 1)) as usize;
        let offset = self.slots + index * self.stride;
        (self.shared.at(offset, self.stride), offset)
    }
}

pub struct Raw {
    out: Lane,
    back: Lane,
    producer: Producer,
    consumer: Consumer,
    wait: Wait,
    touch: Touch,
    payload: usize,
    /// Slots taken and neither sent nor given back.
    loaned: u64,
}

impl Peer for Raw {
    const NAME: &'static str = "raw";

    fn refuses(case: &Case) -> Option<String> {
        (case.pattern == Pattern::Stream && case.wait == Wait::Block)
            .then(|| "streams only with busy-polling".to_owned())
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let (.., len) = Lane::bytes(case);
        let other = 1 - role.index();
        let shared = Shared::make(len)?;
        party.send(other, 0, &[shared.fd()])?;
        let (_, mut fds) = party.recv(other)?;
        ensure!(fds.len() == 1, "the other side's lane");
        let theirs = Shared::map(fds.remove(0), len)?;
        Ok(Self {
            out: Lane::new(shared, case)?,
            back: Lane::new(theirs, case)?,
            producer: Producer::new(),
            consumer: Consumer::new(),
            wait: case.wait,
            touch: case.touch,
            payload: case.payload,
            loaned: 0,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        let position = self.alloc()?;
        self.give(position, stamp)
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        let (position, stamp) = self.take()?;
        self.release(position)?;
        Ok(stamp)
    }
}

impl Ops for Raw {
    type Loan = u64;
    type Held = u64;

    /// The next slot's position. It is free as soon as its line is: the reader moves `head` past both.
    #[inline(always)]
    fn alloc(&mut self) -> Result<u64> {
        let want = u32::try_from(self.loaned)? + 1;
        // Ordering: acquire; partner: the store of head in release.
        while self.producer.room(self.out.lines, want, || {
            self.out.head().load(Ordering::Acquire)
        })? < want
        {
            std::hint::spin_loop();
        }
        self.loaned += 1;
        Ok(self.producer.tail() + self.loaned - 1)
    }

    #[inline(always)]
    fn give(&mut self, position: u64, stamp: u64) -> Result<()> {
        let (at, offset) = self.out.slot(position);
        match self.touch {
            Touch::Untouched => {}
            // SAFETY: a slot of at least 8 bytes in our mapping, not yet shown to the reader.
            Touch::Word => unsafe { at.cast::<u64>().write_volatile(stamp) },
            // SAFETY: as above, `payload` bytes of it.
            Touch::Touched => unsafe { touch::fill(at.as_ptr(), self.payload, stamp) },
        }
        let line = [
            2 << 32,
            stamp,
            0,
            offset as u64,
            self.payload as u64,
            0,
            0,
            0,
        ];
        if self.producer.push(self.out.lines, PUBLISH, line) == Push::Full {
            bail!("the ring is full although it has room");
        }
        self.loaned -= 1;
        if self.wait == Wait::Block {
            let word = self.out.wake();
            // Ordering: release, after the line; partner: the acquire load in take.
            word.fetch_add(1, Ordering::Release);
            futex::wake(word, futex::Flags::empty(), 1)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self) -> Result<(u64, u64)> {
        let line = loop {
            // Ordering: acquire, before the look; partner: the increment in give.
            let seen = if self.wait == Wait::Block {
                self.back.wake().load(Ordering::Acquire)
            } else {
                0
            };
            if let Some(line) = self.consumer.try_pop(self.back.lines) {
                break line;
            }
            if self.wait == Wait::Spin {
                std::hint::spin_loop();
                continue;
            }
            match futex::wait(self.back.wake(), futex::Flags::empty(), seen, None) {
                Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let position = self.consumer.head() - 1;
        let (at, _) = self.back.slot(position);
        let stamp = match self.touch {
            Touch::Untouched => line[1],
            // SAFETY: a slot of at least 8 bytes in our mapping; its writer waits for `head`.
            Touch::Word => unsafe { at.cast::<u64>().read_volatile() },
            // SAFETY: as above, `payload` bytes of it.
            Touch::Touched => unsafe { touch::check(at.as_ptr(), self.payload)? },
        };
        Ok((position, stamp))
    }

    #[inline(always)]
    fn release(&mut self, position: u64) -> Result<()> {
        // Ordering: release, after the last read of line and slot; partner: the load in alloc.
        self.back.head().store(position + 1, Ordering::Release);
        Ok(())
    }
}
