//! More memory: asks the manager, makes chunks, shows them, uses them when every reader was sent them.
//!
//! Nobody owns the asking: what is under way is on record, and whoever needs memory goes on with it. So an answer that comes
//! late serves the next caller, and who does not want to wait only looks.

use super::own::{OwnPool, Resizing};
use crate::domain::{Asked, PATIENCE, lock};
use crate::error::{self, Error, Kind, Limit};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_proto::{Event, Refusal, RefusalCode, Request};
use tranship_region::{Headroom, MakeError, Sealing, WindowError};
use tranship_sys::crash;
use tranship_zone::PAGE;

/// How long who does not wait for memory waits for a manager's answer: longer than one takes that is well, on a machine that
/// is busy. Once; then it counts as late until it has answered.
pub(super) const PROMPT: Duration = Duration::from_millis(50);

/// What came of asking for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// A run of that length fits.
    Fits,
    /// There is none to be had now.
    No(Limit),
    /// The answer is still to come.
    Late,
}

/// Chunks that were asked for and are not in use yet.
pub(super) struct Growing {
    asked: Asked,
    /// The chunk that was made and shown; before, may all of `rest` be made?
    shown: Option<(u32, u32)>,
    /// Where chunks are still to be made.
    rest: VecDeque<u32>,
}

impl OwnPool {
    /// Makes chunks until a run of that many pages fits. Each answer of the manager may take so long.
    pub(super) fn grow_for(&self, pages: u32, prompt: Duration) -> Growth {
        self.grow_until(prompt, |pool| {
            let runs = &lock(&pool.store).runs;
            let free = pool.max_bytes / PAGE - runs.total_used_pages();
            runs.plan_growth(pages)
                .ok_or(Growth::No(if free < pages.into() {
                    Limit::Quota
                } else {
                    Limit::Window
                }))
        })
    }

    /// What keeps the pool from more, if a run fits or not.
    pub(super) fn limit_of(&self, growth: Growth) -> Limit {
        match growth {
            // There is room for the bytes, but nothing to name them by.
            Growth::Fits => Limit::Slots {
                slots: self.shape().slots,
            },
            Growth::No(limit) => limit,
            Growth::Late => Limit::Late,
        }
    }

    /// Makes what the pool is to begin with.
    pub(super) fn preallocate(&self) -> Result<(), Error> {
        let bytes = self.options.preallocated_bytes;
        let chunks = bytes.div_ceil(self.chunk_bytes());
        let plan = |pool: &OwnPool| {
            let runs = &lock(&pool.store).runs;
            let missing = chunks.saturating_sub(runs.present().into());
            let places = (0u32..).take(pool.serials.len());
            let absent = places.filter(|index| !runs.has_chunk(*index));
            Ok(absent
                .take(usize::try_from(missing).unwrap_or(usize::MAX))
                .collect())
        };
        let begun = Instant::now();
        loop {
            let seen = self.domain.wake();
            let limit = match self.grow_until(PROMPT, plan) {
                Growth::Fits => return Ok(()),
                Growth::Late if begun.elapsed() < PATIENCE => {
                    self.domain.wait_news(seen, None);
                    continue;
                }
                Growth::No(Limit::Away) => return Err(Kind::ManagerAway.into()),
                growth => self.limit_of(growth),
            };
            let error = self.out_of_memory(bytes, limit, begun);
            return Err(error.context("the pool cannot begin with what it is to have"));
        }
    }

    /// Makes chunks until the plan for them is empty.
    fn grow_until(
        &self,
        prompt: Duration,
        plan: impl Fn(&OwnPool) -> Result<Vec<u32>, Growth>,
    ) -> Growth {
        let mut since = Instant::now();
        loop {
            let seen = self.domain.wake();
            let mut resizing = lock(&self.resizing);
            let progress = resizing.progress;
            let growth = self.go_on(&mut resizing, &plan);
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
            self.domain.wait_news(seen, Some(since + prompt));
        }
    }

    /// Everything that can be done without waiting.
    fn go_on(
        &self,
        resizing: &mut Resizing,
        plan: &impl Fn(&OwnPool) -> Result<Vec<u32>, Growth>,
    ) -> Growth {
        loop {
            let Some(growing) = resizing.growing.take() else {
                match plan(self) {
                    Ok(plan) if plan.is_empty() => return Growth::Fits,
                    Ok(plan) => match self.ask_for(plan.into()) {
                        Ok(growing) => resizing.growing = Some(growing),
                        Err(error) => return Growth::No(limit(&error)),
                    },
                    Err(growth) => return growth,
                }
                continue;
            };
            let answer = self.domain.answer(growing.asked, Some(Instant::now()));
            if matches!(answer, Ok(None)) {
                resizing.growing = Some(growing);
                return Growth::Late;
            }
            resizing.late = false;
            resizing.progress = resizing.progress.wrapping_add(1);
            let next = match answer {
                Ok(answer) => self.answered(resizing, growing, answer.map(|(event, _)| event)),
                Err(error) => {
                    self.undo(growing);
                    Err(error)
                }
            };
            match next {
                Ok(next) => resizing.growing = next,
                Err(error) => {
                    tracing::debug!(pool = %self.id, %error, "no chunk");
                    return Growth::No(limit(&error));
                }
            }
        }
    }

    fn ask_for(&self, rest: VecDeque<u32>) -> Result<Growing, Error> {
        let (pool, chunks) = (self.id, u32::try_from(rest.len()).unwrap_or(u32::MAX));
        let make = |req| Request::Grant { req, pool, chunks };
        Ok(Growing {
            asked: self.domain.ask_now(make, &[])?,
            shown: None,
            rest,
        })
    }

    /// The answer has come: the next chunk is made. `None`: that was the last one.
    fn answered(
        &self,
        resizing: &mut Resizing,
        mut growing: Growing,
        event: Option<Event>,
    ) -> Result<Option<Growing>, Error> {
        match growing.shown.take() {
            Some((index, serial)) => {
                self.serials[index as usize].store(serial, Ordering::Release);
                lock(&self.store).runs.add_chunk(index);
            }
            None => {
                crash::point("grow.after_grant");
                let chunks = match event {
                    Some(Event::Granted { chunks, .. }) => chunks,
                    _ => 0,
                };
                // Part of a run is no use.
                if (chunks as usize) < growing.rest.len() {
                    self.ungrant(chunks);
                    return Err(self.granted_less(growing.rest.len(), chunks));
                }
            }
        }
        let Some(index) = growing.rest.pop_front() else {
            return Ok(None);
        };
        match self.make_chunk(resizing, index) {
            Ok((serial, asked)) => {
                growing.shown = Some((index, serial));
                growing.asked = asked;
                Ok(Some(growing))
            }
            Err(error) => {
                growing.rest.push_front(index);
                self.undo(growing);
                Err(error)
            }
        }
    }

    /// What was granted is not used after all.
    fn undo(&self, growing: Growing) {
        let unused = growing.rest.len() + usize::from(growing.shown.is_some());
        if let Some((index, serial)) = growing.shown {
            self.unmake_chunk(index, serial);
        }
        self.ungrant(u32::try_from(unused).unwrap_or(u32::MAX));
    }

    /// What is under way is waited for by nobody any more.
    pub(super) fn stop_growing(&self, resizing: &mut Resizing) {
        if let Some(growing) = resizing.growing.take() {
            self.domain.forget(growing.asked);
            self.undo(growing);
        }
    }

    /// Why the manager granted fewer chunks than were asked for.
    fn granted_less(&self, asked: usize, granted: u32) -> Error {
        let chunks = |n: u64| n << self.chunk_shift;
        let asked = chunks(asked as u64);
        let code = if self.bytes_present() + asked > self.quota_bytes() {
            RefusalCode::Quota
        } else {
            RefusalCode::Total
        };
        let available = chunks(granted.into());
        error::refused(Refusal {
            code,
            asked,
            available,
        })
    }

    fn ungrant(&self, chunks: u32) {
        let pool = self.id;
        let _ = self.domain.tell(&Request::Ungrant { pool, chunks }, &[]);
    }

    /// Makes, fills, maps and seals one chunk, and shows it. It is used when every reader was sent it.
    // Crash: until `ShowChunk` the chunk is ours alone and dies with us; granted bytes return when the manager
    // sees our death. After it the readers hold it and unmap it when the orphaned pool is dismantled.
    fn make_chunk(&self, resizing: &mut Resizing, index: u32) -> Result<(u32, Asked), Error> {
        let serial = resizing.next_serial;
        let fd = self.window.make_chunk(
            index,
            "tranship-chunk",
            tranship_region::Opts {
                huge: self.options.huge_pages,
                sealing: match self.options.trust.all_write() {
                    true => Sealing::Shared,
                    false => Sealing::OneWriter,
                },
            },
        )?;
        crash::point("grow.after_make");
        resizing.next_serial = serial.wrapping_add(1).max(1);
        let pool = self.id;
        // On record before it is shown: whoever rejoins a manager in between claims it, and is corrected by `give_up`.
        let fd = Arc::new(fd);
        lock(&self.chunk_fds).insert(index, (serial, fd.clone()));
        let asked = self.domain.ask_now(
            |req| Request::ShowChunk {
                req,
                pool,
                index,
                serial,
            },
            &[fd.as_fd()],
        );
        crash::point("grow.after_show");
        match asked {
            Ok(asked) => Ok((serial, asked)),
            Err(error) => {
                self.unmake_chunk(index, serial);
                Err(error)
            }
        }
    }

    fn unmake_chunk(&self, index: u32, serial: u32) {
        let pool = self.id;
        lock(&self.chunk_fds).remove(&index);
        // SAFETY: nothing was allocated from it yet.
        let _ = unsafe { self.window.detach(index) };
        // Only a manager that it was claimed from meanwhile knows it.
        let _ = self.domain.tell(
            &Request::ReturnChunk {
                pool,
                index,
                serial,
            },
            &[],
        );
    }
}

/// What an error says of why there is no memory.
fn limit(error: &Error) -> Limit {
    if let Some(refusal) = error.find::<Refusal>() {
        return match refusal.code {
            RefusalCode::Quota => Limit::Quota,
            RefusalCode::Total => Limit::Total {
                left_bytes: refusal.available,
            },
            code => Limit::Refused(code),
        };
    }
    match (error.kind(), error.find()) {
        (_, Some(window)) => kernel_limit(window),
        (Kind::ManagerAway, _) => Limit::Away,
        (Kind::CutOff, _) => Limit::CutOff,
        _ => Limit::Protocol,
    }
}

/// What the kernel had to say.
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
        // Of places and sizes, which are ours.
        _ => Limit::Window,
    }
}
