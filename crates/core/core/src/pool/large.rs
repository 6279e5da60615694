//! Large buffers of level `none`, which their receivers do not copy. Each has chunks of its own, and from its send on
//! no process can write them.
//!
//! ```text
//!            this domain alone has it      nobody can write it; the readers have it
//! nothing ──► open ───────────────────────► shown ────────────────────────────────────► nothing
//!        granted, made       sent: sealed, and shown      nobody holds it: unmapped, returned
//! ```
//!
//! The manager grants and holds its chunks from the beginning, as any other's, and verifies the seals before it shows a
//! reader anything; each reader does so again. Sealed chunks cannot be opened again: they go back to the kernel, and
//! the next large buffer is new memory.
//!
//! NOT here: which buffers are dead (`collect.rs`, which knows no difference), how chunks are asked for (`grow.rs`).

use super::grow::{Growth, PROMPT};
use super::larges::Stage;
use super::memory::Memory;
use super::raw::RawBuf;
use super::resizing::What;
use super::tag::Tag;
use crate::base::lock;
use crate::error::{self, Awaited, Error, Limit, TimedOut};
use std::os::fd::AsFd;
use std::sync::{MutexGuard, TryLockError};
use std::time::{Duration, Instant};
use tranship_proto::{Event, MAX_FDS, Request};
use tranship_sys::crash;
use tranship_zone::PAGE;

impl Memory {
    /// Whether the slot's buffer is sealed, or about to be.
    #[cold]
    pub(super) fn is_sealed(&self, slot: u32) -> bool {
        let stage = lock(&self.store).large.stage(slot);
        stage.is_some_and(|(_, stage)| stage != Stage::Open)
    }

    pub(super) fn pages_of_large(&self, len: usize) -> u32 {
        let bytes = self.sizes.rounded(len);
        let bytes = bytes.next_multiple_of(self.chunks.chunk_bytes());
        u32::try_from(bytes / PAGE).unwrap_or(u32::MAX)
    }

    pub(super) fn grow_large(&self, pages: u32, prompt: Duration, asks: bool) -> Growth {
        self.grow_until(prompt, asks, What::Large, |memory| {
            let store = lock(&memory.store);
            if store.large.is_ready(pages) {
                return Ok(Vec::new());
            }
            let places = store.runs.plan_absent(pages / store.runs.chunk_pages());
            places.map(Vec::from_iter).ok_or(Growth::No(Limit::Window))
        })
    }

    pub(super) fn take_large(&self, pages: u32, len: usize) -> Option<RawBuf> {
        let slot = self.begin_large(pages)?;
        // A run of its own out of attached chunks, at least `len` long; it stays outstanding until its handle is gone.
        let flags = self.flags() & !Tag::SLICE_MUT | Tag::SEALED;
        Some(self.hand_out_huge(slot, len, flags))
    }

    /// Seals a large buffer before its first send, so that no process can write it, and has the manager show it to all
    /// readers of the pool. Its one writer, the caller, has stopped.
    ///
    /// Cost: once for each buffer an exchange with the manager, and for each of its chunks two mappings and a seal. A
    /// caller that does not wait gives the manager 50 ms to answer.
    ///
    /// # Errors
    /// `TimedOut` and `ManagerAway`: it may be tried again. Whatever it is, the buffer may be sealed by then.
    // Crash: sealed and not shown: the manager has it as an open one, and takes it back when it sees our death. A
    // domain that
    // rejoins a manager claims what is on record, sealed or open.
    pub(super) fn seal(&self, slot: u32, deadline: Option<Instant>) -> Result<(), Error> {
        let deadline = deadline.map(|deadline| deadline.max(Instant::now() + PROMPT));
        let Some(_one) = self.sealing_alone(deadline) else {
            let awaited = Awaited::Manager("what another thread shows it");
            let waited_ms = 0;
            return Err(TimedOut { awaited, waited_ms }.into());
        };
        let run = {
            let large = &mut lock(&self.store).large;
            match large.stage(slot) {
                None | Some((_, Stage::Shown)) => return Ok(()),
                Some((run, _)) => {
                    large.set_stage(slot, Stage::Closing);
                    run
                }
            }
        };
        let indices = lock(&self.store).runs.chunks_of(run);
        for index in indices.clone() {
            // SAFETY: of the buffer's own chunks, whose only writer is its handle, which says that it has stopped.
            if let Err(error) = unsafe { self.chunks.seal(index) } {
                if indices
                    .clone()
                    .all(|index| !self.chunks.window.is_sealed(index))
                {
                    lock(&self.store).large.set_stage(slot, Stage::Open);
                }
                return Err(error.context("the buffer could not be sealed"));
            }
            crash::point("seal.after_chunk");
        }
        let indices: Vec<u32> = indices.collect();
        let mut left = &indices[..];
        while !left.is_empty() {
            let shown = self.show_sealed(&left[..left.len().min(MAX_FDS)], deadline)?;
            left = &left[shown..];
        }
        crash::point("seal.after_show");
        lock(&self.store).large.set_stage(slot, Stage::Shown);
        Ok(())
    }

    /// `None`: another thread seals a buffer, and this caller does not wait for as long as the manager takes.
    fn sealing_alone(&self, deadline: Option<Instant>) -> Option<MutexGuard<'_, ()>> {
        match (self.sealing.try_lock(), deadline) {
            (Ok(one), _) => Some(one),
            (Err(TryLockError::Poisoned(one)), _) => Some(one.into_inner()),
            (Err(TryLockError::WouldBlock), None) => Some(lock(&self.sealing)),
            (Err(TryLockError::WouldBlock), Some(_)) => None,
        }
    }

    /// Returns how many of these chunks, from the first on, the manager has shown to the readers.
    fn show_sealed(&self, indices: &[u32], deadline: Option<Instant>) -> Result<usize, Error> {
        let on_record = |index: &u32| {
            let (serial, fd) = self.chunks.get(*index)?;
            Some(((*index, serial), fd))
        };
        let (keys, fds): (Vec<_>, Vec<_>) = indices.iter().filter_map(on_record).unzip();
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let (pool, domain) = (self.registration.id, self.domain());
        let (event, _) = domain.patiently(deadline, || {
            let make = |req| Request::ShowChunks {
                req,
                pool,
                chunks: keys.clone(),
                least: 1,
            };
            domain
                .call_until(make, &fds, deadline)
                .map(|(came, _)| came)
        })?;
        match event {
            Event::ChunksReady { chunks, .. } if chunks > 0 => {
                Ok((chunks as usize).min(keys.len()))
            }
            _ => Err(error::protocol("an answer to ShowChunks that is none")),
        }
    }
}
