//! Growth by chunks, and their return. A pool that needs memory makes chunks and shows them to the manager, which
//! grants them by taking them. The pool uses them when every reader was sent them. One message carries several chunks.
//! The pool asks before it makes many, or when its last request was refused.
//!
//! No thread owns a request: what is under way is on record, and the next caller that needs memory goes on with it. A
//! late answer therefore serves the next caller, and a caller that does not wait only looks.

use super::memory::Memory;
use super::resizing::{Growing, Resizing, What};
use crate::base::lock;
use crate::error::{self, Error, ErrorKind, Limit};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tranship_proto::{Event, MAX_FDS, Refusal, RefusalCode, Request};
use tranship_region::{Headroom, MakeError, Sealing, WindowError};
use tranship_sys::crash;
use tranship_zone::{PAGE, Run};

/// Time that a caller that does not wait for memory waits for the manager's answer: longer than a healthy manager takes
/// on a busy machine. It is waited once; then the manager counts as late until it has answered.
pub(super) const PROMPT: Duration = Duration::from_millis(50);

/// Result of a request for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// A run of the wanted length fits.
    Fits,
    /// No memory can be had now.
    No(Limit),
    /// The answer is still to come.
    Late,
}

/// Bytes of chunks that a pool makes before it asks: making them takes less time than asking. If refused, they were
/// there beyond the total for as long as one answer takes.
const UNASKED_BYTES: u64 = 4 << 20;
/// Most bytes that are made for one message, except for a single chunk: other callers wait for it meanwhile.
const MADE_BYTES: u64 = 64 << 20;

impl Memory {
    /// Makes chunks until a run of that many pages fits, as [`grow_until`](Memory::grow_until) does.
    pub(super) fn grow_for(&self, pages: u32, prompt: Duration, asks: bool) -> Growth {
        self.grow_until(prompt, asks, What::All, |memory| {
            let runs = &lock(&memory.store).runs;
            let free = memory.registration.max_bytes / PAGE - runs.total_used_pages();
            runs.plan_growth(pages)
                .ok_or(Growth::No(if free < pages.into() {
                    Limit::Quota
                } else {
                    Limit::Window
                }))
        })
    }

    /// Returns the limit that keeps the pool from more memory.
    pub(super) fn limit_of(&self, growth: Growth) -> Limit {
        match growth {
            // There is memory for the bytes, but no slot to name them.
            Growth::Fits => Limit::Slots {
                slots: self.slots.count(),
            },
            Growth::No(limit) => limit,
            Growth::Late => Limit::Late,
        }
    }

    /// Makes chunks until the plan for them is empty. Each answer of the manager may take `prompt`. Without `asks` only a
    /// request that is under way goes on.
    pub(super) fn grow_until(
        &self,
        prompt: Duration,
        asks: bool,
        what: What,
        plan: impl Fn(&Memory) -> Result<Vec<u32>, Growth>,
    ) -> Growth {
        let mut since = Instant::now();
        loop {
            let seen = self.domain().wake();
            let mut resizing = lock(&self.resizing);
            let progress = resizing.progress;
            let growth = self.go_on(&mut resizing, asks, what, &plan);
            if growth != Growth::Late {
                return growth;
            }
            if resizing.progress != progress {
                since = Instant::now();
            }
            let over = since.elapsed() >= prompt;
            resizing.late |= over && prompt == PROMPT;
            if over || resizing.late {
                return growth;
            }
            drop(resizing);
            self.domain().wait_news(seen, Some(since + prompt));
        }
    }

    /// Does everything that needs no waiting.
    fn go_on(
        &self,
        resizing: &mut Resizing,
        asks: bool,
        what: What,
        plan: &impl Fn(&Memory) -> Result<Vec<u32>, Growth>,
    ) -> Growth {
        loop {
            let Some(growing) = resizing.growing.take() else {
                match plan(self) {
                    Ok(plan) if plan.is_empty() => return Growth::Fits,
                    Ok(_) if !asks => return Growth::No(resizing.refused),
                    Ok(plan) => match self.begin(resizing, what, plan.into()) {
                        Ok(growing) => resizing.growing = Some(growing),
                        Err(error) => return Growth::No(limit(&error)),
                    },
                    Err(growth) => return growth,
                }
                continue;
            };
            let answer = self.domain().answer(growing.asked, Some(Instant::now()));
            if matches!(answer, Ok(None)) {
                resizing.growing = Some(growing);
                return Growth::Late;
            }
            resizing.late = false;
            resizing.progress = resizing.progress.wrapping_add(1);
            let next = match answer {
                Ok(answer) => self.answered(resizing, growing, answer.map(|(event, _)| event)),
                Err(error) => {
                    self.undo(growing, is_short(&error));
                    Err(error)
                }
            };
            match next {
                Ok(next) => resizing.growing = next,
                Err(error) => {
                    tracing::debug!(pool = %self.registration.id, %error, "no chunk");
                    self.give_up_part();
                    resizing.ask_first |= is_short(&error);
                    resizing.refused = limit(&error);
                    return Growth::No(resizing.refused);
                }
            }
        }
    }

    /// Shows chunks at once if they will probably be granted, else asks first.
    fn begin(
        &self,
        resizing: &mut Resizing,
        what: What,
        rest: VecDeque<u32>,
    ) -> Result<Growing, Error> {
        let bytes = self.chunks.bytes_of(rest.len() as u64);
        let little = rest.len() <= MAX_FDS && bytes <= UNASKED_BYTES;
        // Where a policy moves quotas, one pool's quota may grow before another pool has given back. The total is kept
        // at every moment.
        let scheduled = self.domain().control_page().is_scheduled();
        let likely = !resizing.ask_first && !scheduled && self.domain().is_managed();
        if little && likely && self.bytes_present() + bytes <= self.registration.quota_bytes() {
            return self.make_some(resizing, what, rest);
        }
        let (pool, chunks) = (
            self.registration.id,
            u32::try_from(rest.len()).unwrap_or(u32::MAX),
        );
        let make = |req| Request::Grant { req, pool, chunks };
        Ok(Growing {
            asked: self.domain().ask_now(make, &[])?,
            what,
            shown: Vec::new(),
            rest,
        })
    }

    /// Takes the manager's answer: uses chunks, and makes the next ones. `None`: those were the last.
    fn answered(
        &self,
        resizing: &mut Resizing,
        growing: Growing,
        event: Option<Event>,
    ) -> Result<Option<Growing>, Error> {
        let Growing {
            mut shown,
            rest,
            what,
            ..
        } = growing;
        if shown.is_empty() {
            crash::point("grow.after_grant");
            let chunks = match event {
                Some(Event::Granted { chunks, .. }) => chunks,
                _ => 0,
            };
            // A part of a run, or of a pool's first memory, has no use. If two callers each kept a part and waited for
            // the rest, they could wait for each other.
            if (chunks as usize) < rest.len() {
                self.registration.ungrant(chunks);
                return Err(self.granted_less(rest.len(), chunks));
            }
            resizing.ask_first = false;
        } else {
            crash::point("grow.after_answer");
            let taken = match event {
                Some(Event::ChunksReady { chunks, .. }) => (chunks as usize).min(shown.len()),
                _ => 0,
            };
            if taken == 0 {
                self.give_up(&shown, rest.len(), false);
                return Err(error::protocol("an answer to ShowChunks that is none"));
            }
            for (index, serial) in shown.drain(..taken) {
                self.chunks.begin(index, serial);
                let store = &mut *lock(&self.store);
                store.runs.add_chunk(index);
                if what == What::Large {
                    store.large.came(store.runs.alloc_chunk(index));
                }
            }
        }
        match (shown.is_empty(), rest.is_empty()) {
            (true, true) => {
                lock(&self.store).large.is_whole();
                Ok(None)
            }
            (true, false) => self.make_some(resizing, what, rest).map(Some),
            // The manager takes more in its next turn.
            (false, _) => self.show(what, shown, rest).map(Some),
        }
    }

    /// Gives up the chunks of a growth. `short`: the manager took none of them, because there was not enough for all.
    fn undo(&self, growing: Growing, short: bool) {
        self.give_up(&growing.shown, growing.rest.len(), short);
    }

    /// Gives up the chunks in `made`, and `unmade` chunks that were granted and not made.
    fn give_up(&self, made: &[(u32, u32)], unmade: usize, short: bool) {
        for (index, serial) in made {
            self.unmake_chunk(*index, *serial, !short);
        }
        self.registration
            .ungrant(u32::try_from(made.len() + unmade).unwrap_or(u32::MAX));
    }

    /// Gives up the growth that is under way: no caller waits for it any more.
    pub(super) fn stop_growing(&self, resizing: &mut Resizing) {
        if let Some(growing) = resizing.growing.take() {
            self.domain().forget(growing.asked);
            self.undo(growing, false);
            self.give_up_part();
        }
    }

    /// Returns the error of a manager that granted fewer chunks than were asked for.
    fn granted_less(&self, asked: usize, granted: u32) -> Error {
        let asked = self.chunks.bytes_of(asked as u64);
        let code = if self.bytes_present() + asked > self.registration.quota_bytes() {
            RefusalCode::Quota
        } else {
            RefusalCode::Total
        };
        let available = self.chunks.bytes_of(granted);
        error::refused(Refusal {
            code,
            asked,
            available,
        })
    }

    /// Makes as many of the chunks as go into one message, and shows them.
    // Crash: until `ShowChunks` they are ours alone and die with us; granted bytes return when the manager sees our death. After
    // it the readers hold them and unmap them when the orphaned pool is dismantled. What a manager has taken of them
    // before it died goes with its books; a domain that joins the next one claims all that is on record, and takes back
    // what was not answered.
    fn make_some(
        &self,
        resizing: &mut Resizing,
        what: What,
        rest: VecDeque<u32>,
    ) -> Result<Growing, Error> {
        let mut rest = rest;
        let most = usize::try_from(MADE_BYTES / self.chunks.chunk_bytes()).unwrap_or(MAX_FDS);
        let count = rest.len().min(most.clamp(1, MAX_FDS));
        let mut made = Vec::with_capacity(count);
        for index in rest.drain(..count).collect::<Vec<_>>() {
            match self.make_chunk(resizing, what, index) {
                Ok(serial) => made.push((index, serial)),
                Err(error) => {
                    let unmade = count - made.len() + rest.len();
                    self.give_up(&made, unmade, false);
                    return Err(error);
                }
            }
        }
        self.show(what, made, rest)
    }

    /// Makes, fills, maps and seals one chunk, and returns its serial.
    fn make_chunk(&self, resizing: &mut Resizing, what: What, index: u32) -> Result<u32, Error> {
        let serial = resizing.next_serial;
        let opts = tranship_region::Opts {
            huge: self.registration.options.huge_pages,
            sealing: match (what, self.registration.options.trust.all_write()) {
                (What::Large, _) => Sealing::Open,
                (What::All, true) => Sealing::Shared,
                (What::All, false) => Sealing::OneWriter,
            },
        };
        // On record before it is shown: a domain that rejoins a manager in between claims it, and is corrected by
        // `give_up`.
        self.chunks.make(index, serial, opts)?;
        resizing.next_serial = serial.wrapping_add(1).max(1);
        Ok(serial)
    }

    /// Shows chunks that are on record, and accepts nothing less than all of them.
    fn show(
        &self,
        what: What,
        made: Vec<(u32, u32)>,
        rest: VecDeque<u32>,
    ) -> Result<Growing, Error> {
        let pool = self.registration.id;
        let fd = |(index, _): &(u32, u32)| self.chunks.get(*index).map(|(_, fd)| fd);
        let fds: Vec<_> = made.iter().filter_map(fd).collect();
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let least = u32::try_from(made.len()).unwrap_or(u32::MAX);
        let asked = self.domain().ask_now(
            |req| Request::ShowChunks {
                req,
                pool,
                chunks: made.clone(),
                least,
            },
            &fds,
        );
        crash::point("grow.after_show");
        match asked {
            Ok(asked) => Ok(Growing {
                asked,
                what,
                shown: made,
                rest,
            }),
            Err(error) => {
                self.give_up(&made, rest.len(), false);
                Err(error)
            }
        }
    }

    /// Takes a chunk back, also from the manager if it may know of the chunk.
    fn unmake_chunk(&self, index: u32, serial: u32, known: bool) {
        // SAFETY: nothing was allocated from it yet.
        unsafe { self.chunks.remove(index) };
        if known {
            self.registration.tell_returned(index, serial);
        }
    }

    /// Gives a chunk back. Returns whether the manager was told.
    ///
    /// # Safety
    /// No buffer lies in it, and none will.
    // Crash: unmapped and closed before the manager hears of it, so the memory is gone whatever follows.
    pub(super) unsafe fn return_chunk(&self, index: u32) -> bool {
        // SAFETY: as the caller says.
        let serial = unsafe { self.chunks.remove(index) };
        crash::point("shrink.before_return");
        self.registration.tell_returned(index, serial)
    }

    /// Returns wholly free chunks, highest first, while more than `keep` are there.
    pub(super) fn return_free_chunks(&self, keep: u32) {
        loop {
            let index = {
                let mut store = lock(&self.store);
                if store.runs.present() <= keep {
                    return;
                }
                let Some(index) = store.runs.free_chunks().last() else {
                    return;
                };
                store.runs.set_draining(index, false);
                if !store.runs.take_chunk(index) {
                    return;
                }
                index
            };
            // SAFETY: wholly free, and taken from the run allocator: no buffer lies in it.
            let told = unsafe { self.return_chunk(index) };
            // That chunk is gone; the others stay, because no manager could grant them again.
            if !told && keep > 0 {
                return;
            }
        }
    }

    /// Gives back the chunks that did not become a whole buffer.
    pub(super) fn give_up_part(&self) {
        lock(&self.store).large.forget_part();
        self.give_back_large();
    }

    /// Gives unneeded large memory back to the kernel and the manager. Called without the locks of the collector and
    /// the store.
    pub(super) fn give_back_large(&self) {
        if !self.sizes.has_large() {
            return;
        }
        let over = lock(&self.store).large.take_over();
        for run in over {
            self.give_back_run(run);
        }
    }

    fn give_back_run(&self, run: Run) {
        let indices = lock(&self.store).runs.chunks_of(run);
        for index in indices.clone() {
            // SAFETY: the buffer that had it is dead, and nothing else lies in it.
            let _ = unsafe { self.return_chunk(index) }; // a domain that rejoins a manager claims what is on record
        }
        let runs = &mut lock(&self.store).runs;
        runs.free(run);
        for index in indices {
            runs.take_chunk(index);
        }
    }
}

/// Whether the manager has refused for want of memory: then it has taken none of the chunks.
fn is_short(error: &Error) -> bool {
    let refusal = error.find::<Refusal>();
    use RefusalCode as C;
    refusal.is_some_and(|r| matches!(r.code, C::Quota | C::Total | C::Charged | C::Hog))
}

/// Returns the limit that an error names.
fn limit(error: &Error) -> Limit {
    if let Some(refusal) = error.find::<Refusal>() {
        return match refusal.code {
            RefusalCode::Quota => Limit::Quota,
            RefusalCode::Total => Limit::Total {
                left_bytes: refusal.available,
            },
            RefusalCode::Charged => Limit::Charged {
                left_bytes: refusal.available,
            },
            RefusalCode::Hog => Limit::Hog {
                charged_bytes: refusal.asked,
                over_bytes: refusal.available,
            },
            code => Limit::Refused(code),
        };
    }
    match (error.kind(), error.find()) {
        (_, Some(window)) => kernel_limit(window),
        (ErrorKind::ManagerAway, _) => Limit::Away,
        (ErrorKind::CutOff, _) => Limit::CutOff,
        _ => Limit::Protocol,
    }
}

/// Returns the limit for an error of the kernel.
fn kernel_limit(error: &WindowError) -> Limit {
    let kernel = |step, source: &std::io::Error| Limit::Kernel {
        step,
        errno: source.raw_os_error().unwrap_or(0),
    };
    match error {
        WindowError::Make(MakeError::Headroom { of, free_bytes, .. }) => {
            let free_bytes = *free_bytes;
            match of {
                Headroom::Cgroup => Limit::Cgroup { free_bytes },
                Headroom::Machine => Limit::Machine { free_bytes },
            }
        }
        WindowError::Make(MakeError::Io { step, source, .. })
        | WindowError::Io { step, source } => kernel(step, source),
        // Errors of places and sizes, which are this domain's own.
        _ => Limit::Window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither limit can be reached in a test: it would take all memory.
    #[test]
    fn memory_that_ends_outside_is_said_to() {
        let ends = |of| {
            let (need_bytes, free_bytes) = (4096, 7);
            WindowError::Make(MakeError::Headroom {
                of,
                need_bytes,
                free_bytes,
            })
        };
        let free_bytes = 7;
        for (of, found) in [
            (Headroom::Machine, Limit::Machine { free_bytes }),
            (Headroom::Cgroup, Limit::Cgroup { free_bytes }),
        ] {
            let error = Error::from(ends(of));
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert_eq!(limit(&error.context("a chunk")), found);
        }
    }
}
