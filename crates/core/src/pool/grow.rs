//! More memory: asks the manager, makes chunks, shows them, uses them when every reader was sent them.

use super::own::{OwnPool, Resizing};
use crate::domain::lock;
use crate::error::DomainError;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tranship_proto::{Event, RefusalCode, Request};
use tranship_sys::crash;

/// What came of asking for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// There is more now, or somebody else made more meanwhile.
    More,
    /// Quota or total are reached, or the window has no hole for it.
    Exhausted,
    /// The manager is away.
    Away,
}

impl OwnPool {
    /// Makes chunks until a run of that many pages fits. A manager that does not answer is waited for until the deadline,
    /// and never for long.
    pub(super) fn grow_for(&self, pages: u32, deadline: Option<Instant>) -> Growth {
        let mut resizing = lock(&self.resizing);
        let plan = lock(&self.store).runs.plan_growth(pages);
        let plan = match plan {
            None => return Growth::Exhausted,
            Some(plan) if plan.is_empty() => return Growth::More,
            Some(plan) => plan,
        };
        let want = u32::try_from(plan.len()).unwrap_or(u32::MAX);
        let pool = self.id;
        let granted = match self.domain.call_if_prompt(
            |req| Request::Grant {
                req,
                pool,
                chunks: want,
            },
            &[],
            deadline,
        ) {
            Ok((Event::Granted { chunks, .. }, _)) => chunks.min(want),
            Ok(_) => 0,
            Err(DomainError::Refused(refusal))
                if matches!(refusal.code, RefusalCode::Quota | RefusalCode::Total) =>
            {
                return Growth::Exhausted;
            }
            Err(DomainError::Refused(_)) => return Growth::Exhausted,
            Err(_) => return Growth::Away,
        };
        crash::point("grow.after_grant");
        if granted < want {
            // Part of a run is no use.
            let _ = self.domain.tell(
                &Request::Ungrant {
                    pool,
                    chunks: granted,
                },
                &[],
            );
            return Growth::Exhausted;
        }
        for (done, index) in (0u32..).zip(plan) {
            if let Err(error) = self.make_chunk(&mut resizing, index) {
                tracing::warn!(%pool, index, %error, "no chunk");
                let _ = self.domain.tell(
                    &Request::Ungrant {
                        pool,
                        chunks: want - done,
                    },
                    &[],
                );
                return if matches!(
                    error,
                    DomainError::ManagerAway | DomainError::TimedOut { .. }
                ) {
                    Growth::Away
                } else {
                    Growth::Exhausted
                };
            }
        }
        Growth::More
    }

    /// Makes, fills, maps and seals one chunk, shows it, and waits until every reader was sent it.
    // Crash: until `ShowChunk` the chunk is ours alone and dies with us; granted bytes return when the manager
    // sees our death. After it the readers hold it and unmap it when the orphaned pool is dismantled.
    fn make_chunk(&self, resizing: &mut Resizing, index: u32) -> Result<(), DomainError> {
        let serial = resizing.next_serial;
        let fd = self.window.make_chunk(
            index,
            "tranship-chunk",
            tranship_region::Opts {
                huge: self.options.huge_pages,
                sealing: tranship_region::Sealing::OneWriter,
            },
        )?;
        crash::point("grow.after_make");
        resizing.next_serial = serial.wrapping_add(1).max(1);
        let pool = self.id;
        // On record before it is shown: whoever rejoins a manager in between claims it, and is corrected below.
        let fd = Arc::new(fd);
        lock(&self.chunk_fds).insert(index, (serial, fd.clone()));
        let shown = self.domain.call_if_prompt(
            |req| Request::ShowChunk {
                req,
                pool,
                index,
                serial,
            },
            &[fd.as_fd()],
            None,
        );
        crash::point("grow.after_show");
        if let Err(error) = shown {
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
            return Err(error);
        }
        self.serials[index as usize].store(serial, Ordering::Release);
        lock(&self.store).runs.add_chunk(index);
        Ok(())
    }
}
