//! Large buffers of level `none`, which their receivers do not copy: each has chunks of its own, and when it is sent nobody can write them ever again.
//!
//! ```text
//!            this domain alone has it      nobody can write it; the readers have it
//! nothing ──► open ───────────────────────► shown ────────────────────────────────────► nothing
//!        granted, made       sent: sealed, and shown      nobody holds it: unmapped, returned
//! ```
//!
//! The manager grants and holds its chunks from the beginning, as any other's, and verifies the seals before it shows a reader anything; each reader
//! does so again. What was sealed cannot be opened again, so the chunks go back to the kernel, and the next one is new memory.
//!
//! NOT here: which buffers are dead (`collect.rs`, which knows no difference), how chunks are asked for (`grow.rs`).

use super::grow::{CHUNK_NAME, Growth, PROMPT};
use super::larges::Stage;
use super::own::OwnPool;
use super::raw::RawBuf;
use super::resizing::What;
use super::tag::Tag;
use crate::base::lock;
use crate::error::{self, Awaited, Error, Limit, TimedOut};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::{Duration, Instant};
use tranship_proto::{Event, MAX_FDS, Request};
use tranship_sys::crash;
use tranship_zone::{PAGE, Place, Run};

impl OwnPool {
    /// Whether a buffer of that length is sealed when it is sent.
    pub(super) fn is_large(&self, len: usize) -> bool {
        self.rounded(len) >= self.seals_from
    }

    /// Whether nobody can write it any more, or soon nobody can.
    #[cold]
    pub(crate) fn is_sealed(&self, slot: u32) -> bool {
        let stage = lock(&self.store).large.stage(slot);
        stage.is_some_and(|(_, stage)| stage != Stage::Open)
    }

    /// Everything short of waiting for memory to be released, as for smaller ones. Each answer of the manager may take so long.
    pub(super) fn attempt_large(&self, len: usize, prompt: Duration) -> Result<RawBuf, Limit> {
        // What is dead goes first: it counts against the quota.
        let _ = self.collect_all();
        self.give_back_large();
        let pages = self.pages_of_large(len);
        if self.grow_large(pages, prompt) == Growth::Fits
            && let Some(buf) = self.take_large(pages, len)
        {
            return Ok(buf);
        }
        // Memory may sit in caches of other sizes, or in chunks that nothing lies in.
        let good = self.reclaim_alone(prompt);
        self.give_back_large();
        let one = lock(&self.resizing);
        if self.domain.is_managed() {
            self.return_free_chunks(0);
        }
        drop(one);
        let growth = self.grow_large(pages, prompt);
        match self.take_large(pages, len) {
            Some(buf) => Ok(buf),
            None if !good => Err(Limit::Late),
            None => Err(self.limit_of(growth)),
        }
    }

    fn pages_of_large(&self, len: usize) -> u32 {
        let bytes = self.rounded(len).next_multiple_of(self.chunk_bytes());
        u32::try_from(bytes / PAGE).unwrap_or(u32::MAX)
    }

    fn grow_large(&self, pages: u32, prompt: Duration) -> Growth {
        self.grow_until(prompt, What::Large, |pool| {
            let store = lock(&pool.store);
            if store.large.is_ready(pages) {
                return Ok(Vec::new());
            }
            let places = store.runs.plan_absent(pages / store.runs.chunk_pages());
            places.map(Vec::from_iter).ok_or(Growth::No(Limit::Window))
        })
    }

    fn take_large(&self, pages: u32, len: usize) -> Option<RawBuf> {
        let store = &mut *lock(&self.store);
        let run = store.large.take_ready(pages)?;
        let Some(slot) = store.numbers.take(1).and_then(|set| set.get(0)) else {
            store.large.give_ready(run);
            return None;
        };
        let nowhere = Place { slab: 0, index: 0 };
        self.enter(slot, run.offset(), run.bytes(), Self::HUGE, nowhere);
        store.large.begin(slot, run);
        store.huge_allocs += 1;
        self.hand_out_long(slot, len);
        let flags = self.flags() & !Tag::SLICE_MUT | Tag::LONG | Tag::SEALED;
        let ptr = self.at(run.offset());
        let tag = Tag::own(slot, Self::HUGE, flags);
        // A run of its own out of attached chunks, at least `len` long; it stays outstanding until its handle is gone.
        let place = self.place_of_class(Self::HUGE);
        Some(RawBuf {
            ptr,
            len,
            place,
            tag,
        })
    }

    /// Makes sure that nobody can write a large buffer any more, and that all readers of the pool were shown it: before it is sent for the
    /// first time. Its one writer, the caller, has stopped.
    ///
    /// Cost: once for each buffer an exchange with the manager, and for each of its chunks two mappings and a seal. Who does not wait gives the
    /// manager 50 ms to answer.
    ///
    /// # Errors
    /// `TimedOut` and `ManagerAway`: it may be tried again. Whatever it is, the buffer may be sealed by then.
    // Crash: sealed and not shown: the manager has it as an open one, and takes it back when it sees our death. Whoever rejoins a manager claims
    // what is on record, sealed or open.
    pub(crate) fn seal(&self, slot: u32, deadline: Option<Instant>) -> Result<(), Error> {
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
            if let Err(error) = self.seal_chunk(index) {
                if indices.clone().all(|index| !self.window.is_sealed(index)) {
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

    /// `None`: another thread seals one, and who asks does not wait for as long as the manager takes.
    fn sealing_alone(&self, deadline: Option<Instant>) -> Option<MutexGuard<'_, ()>> {
        match (self.sealing.try_lock(), deadline) {
            (Ok(one), _) => Some(one),
            (Err(TryLockError::Poisoned(one)), _) => Some(one.into_inner()),
            (Err(TryLockError::WouldBlock), None) => Some(lock(&self.sealing)),
            (Err(TryLockError::WouldBlock), Some(_)) => None,
        }
    }

    fn seal_chunk(&self, index: u32) -> Result<(), Error> {
        if self.window.is_sealed(index) {
            return Ok(()); // by an attempt that went no further
        }
        let on_record = lock(&self.chunk_fds).get(&index).cloned();
        let Some((serial, fd)) = on_record else {
            return Err(error::protocol("a chunk that is not on record"));
        };
        // SAFETY: of the buffer's own chunks, whose only writer is its handle, which says that it has stopped.
        let copy = unsafe { self.window.seal(index, &fd, CHUNK_NAME) }?;
        if let Some(copy) = copy {
            lock(&self.chunk_fds).insert(index, (serial, Arc::new(copy)));
        }
        Ok(())
    }

    /// How many of these, the first ones, the manager has shown around.
    fn show_sealed(&self, indices: &[u32], deadline: Option<Instant>) -> Result<usize, Error> {
        let chunks: Vec<_> = {
            let all = lock(&self.chunk_fds);
            let on_record = |index: &u32| {
                all.get(index)
                    .map(|(serial, fd)| (*index, *serial, fd.clone()))
            };
            indices.iter().filter_map(on_record).collect()
        };
        let fds: Vec<_> = chunks.iter().map(|(_, _, fd)| fd.as_fd()).collect();
        let keys: Vec<(u32, u32)> = chunks
            .iter()
            .map(|(index, serial, _)| (*index, *serial))
            .collect();
        let pool = self.id;
        let (event, _) = self.domain.patiently(deadline, || {
            let make = |req| Request::ShowChunks {
                req,
                pool,
                chunks: keys.clone(),
                least: 1,
            };
            self.domain
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

    /// What did not become a whole buffer goes back.
    pub(super) fn give_up_part(&self) {
        lock(&self.store).large.forget_part();
        self.give_back_large();
    }

    /// What was made for somebody who has not come for it goes back, and what is over.
    pub(super) fn settle_large(&self) {
        if self.waiters.count() == 0 {
            lock(&self.store).large.forget_ready();
        }
        self.give_back_large();
    }

    /// What is over goes back to the kernel and the manager. Under no lock of the collector's or the store's.
    pub(super) fn give_back_large(&self) {
        if self.seals_from == u64::MAX {
            return; // such a pool has none
        }
        let over = lock(&self.store).large.take_over();
        for run in over {
            self.give_back_run(run);
        }
    }

    fn give_back_run(&self, run: Run) {
        let indices = lock(&self.store).runs.chunks_of(run);
        for index in indices.clone() {
            let serial = self.serials[index as usize].swap(0, Ordering::AcqRel);
            // Crash: as for other chunks: unmapped and closed before the manager hears of it.
            // SAFETY: the buffer that had it is dead, and nothing else lies in it.
            let _ = unsafe { self.window.detach(index) };
            drop(lock(&self.chunk_fds).remove(&index));
            crash::point("shrink.before_return");
            let pool = self.id;
            let gone = Request::ReturnChunk {
                pool,
                index,
                serial,
            };
            // Whoever rejoins a manager claims what is on record.
            let _ = self.domain.tell(&gone, &[]);
        }
        let runs = &mut lock(&self.store).runs;
        runs.free(run);
        for index in indices {
            runs.take_chunk(index);
        }
    }
}
