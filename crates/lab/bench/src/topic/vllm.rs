//! vLLM's ShmRingBuffer, rebuilt after its description: one writer, N readers, chunks that each have a flag byte of the
//! writer and one of each reader. The writer copies the message into a chunk, and uses it again when all readers have set
//! their flags. Each reader copies the message out, as unpickling does.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use anyhow::{Context, Result};

use super::what::{DELIVERED, Mode};
use crate::clock;
use crate::party::Party;
use crate::stats::{Measured, sample};
use crate::systems::shared::Shared;

const CHUNKS: usize = 10;
const CHUNK: usize = 16 << 20;
/// Flags of a chunk: the writer's, then each reader's.
const FLAGS: usize = 64;
/// Behind the chunks and flags: how many messages all readers have, and the word that ends the run.
const ECHO: usize = CHUNKS * (CHUNK + FLAGS);
const STOP: usize = ECHO + 64;
const LEN: usize = STOP + 64;

struct Ring(Shared);

impl Ring {
    fn flag(&self, chunk: usize, of: usize) -> &AtomicU8 {
        let at = self.0.at(CHUNKS * CHUNK + chunk * FLAGS + of, 1);
        // SAFETY: inside the mapping, accessed as an atomic only.
        unsafe { at.cast::<AtomicU8>().as_ref() }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, accessed as an atomic only.
        unsafe { self.0.at(offset, 8).cast::<AtomicU64>().as_ref() }
    }

    fn write(&self, chunk: usize, from: &[u8]) {
        let to = self.0.at(chunk * CHUNK, from.len());
        // SAFETY: inside the chunk, which no reader reads: all have set their flags.
        unsafe {
            to.as_ptr()
                .copy_from_nonoverlapping(from.as_ptr(), from.len())
        }
    }

    fn read(&self, chunk: usize, to: &mut [u8]) {
        let from = self.0.at(chunk * CHUNK, to.len());
        // SAFETY: inside the chunk, which the writer does not write before this reader has set its flag.
        unsafe {
            from.as_ptr()
                .copy_to_nonoverlapping(to.as_mut_ptr(), to.len())
        }
    }
}

pub fn writer(_: Mode, readers: usize, party: &Party, budget: u64) -> Result<Vec<Measured>> {
    let ring = Ring(Shared::make(LEN)?);
    party.send(1, 0, &[ring.0.fd()])?;
    party.barrier()?;
    let mut bytes = vec![0; DELIVERED.1];
    let mut number = 0;
    let samples = sample(budget, 1, || {
        bytes.fill(0);
        bytes[..8].copy_from_slice(&u64::to_le_bytes(number));
        let chunk = usize::try_from(number % CHUNKS as u64)?;
        let before = clock::ticks();
        let is_read = |reader| ring.flag(chunk, 1 + reader).load(Ordering::Acquire) != 0;
        while ring.flag(chunk, 0).load(Ordering::Relaxed) != 0 && !(0..readers).all(is_read) {
            std::hint::spin_loop();
        }
        ring.flag(chunk, 0).store(0, Ordering::Release);
        ring.write(chunk, &bytes);
        for reader in 0..readers {
            ring.flag(chunk, 1 + reader).store(0, Ordering::Relaxed);
        }
        ring.flag(chunk, 0).store(1, Ordering::Release);
        // As its `memory_fence` does.
        fence(Ordering::SeqCst);
        while ring.word(ECHO).load(Ordering::Acquire) <= number {
            std::hint::spin_loop();
        }
        number += 1;
        Ok(clock::ticks() - before)
    })?;
    ring.word(STOP).store(1, Ordering::Release);
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
}

pub fn readers(_: Mode, readers: usize, party: &Party, _: u64) -> Result<Vec<Measured>> {
    let (_, mut fds) = party.recv(0)?;
    let ring = Ring(Shared::map(fds.pop().context("the ring")?, LEN)?);
    party.barrier()?;
    let mut out = vec![0; DELIVERED.1];
    'run: for number in 0u64.. {
        let chunk = usize::try_from(number % CHUNKS as u64)?;
        for reader in 0..readers {
            let mine = ring.flag(chunk, 1 + reader);
            while ring.flag(chunk, 0).load(Ordering::Acquire) == 0
                || mine.load(Ordering::Acquire) != 0
            {
                if ring.word(STOP).load(Ordering::Acquire) != 0 {
                    break 'run;
                }
                std::hint::spin_loop();
            }
            ring.read(chunk, &mut out);
            mine.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        ring.word(ECHO).store(number + 1, Ordering::Release);
    }
    party.barrier()?;
    Ok(Vec::new())
}
