//! Requests that the page cache can serve at once. They are only copied, so the asking thread does it: waking another
//! thread costs more.

use super::options::ALIGN;
use super::step::{self, Action};
use crate::{Job, Op};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest request that is not handed on, bytes.
const MAX_BYTES: u32 = 1 << 20;
/// Time after which a write counts as held up: the kernel holds up a writer that writes faster than its disks do.
const HELD_UP: Duration = Duration::from_millis(5);
/// Writes that are handed on after that.
const HANDED_ON: u32 = 64;

#[derive(Debug)]
pub(super) struct AtOnce {
    file: Arc<File>,
    /// Writes that are still to be handed on.
    held_up: AtomicU32,
}

impl AtOnce {
    /// Creates it for a file that is read and written through the page cache.
    pub(super) fn new(file: &Arc<File>) -> AtOnce {
        AtOnce {
            file: Arc::clone(file),
            held_up: AtomicU32::new(0),
        }
    }

    /// Returns whether the job was a read, and is done. Otherwise it was not done, or not all of it, and may begin
    /// anew.
    pub(super) fn read(&self, job: &mut Job) -> bool {
        let request = &job.request;
        if request.len > MAX_BYTES {
            return false;
        }
        let (offset, len) = (request.offset, request.len as usize);
        step::copy(Action::Read, self.file.as_fd(), offset, &mut job.data, len)
    }

    /// Writes at once, if that is possible; only whole blocks. For other writes the rest of a block may have to be read
    /// first.
    pub(super) fn write(&self, job: &mut Job) -> bool {
        let request = &job.request;
        let (offset, len) = (request.offset, u64::from(request.len));
        let whole = offset.is_multiple_of(ALIGN) && len.is_multiple_of(ALIGN);
        if request.op != Op::Write || request.durable || !whole || request.len > MAX_BYTES {
            return false;
        }
        // Ordering: relaxed; it says nothing about other memory.
        let one_less = |left: u32| left.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        if self
            .held_up
            .fetch_update(relaxed, relaxed, one_less)
            .is_ok()
        {
            return false;
        }
        let (action, since) = (Action::Write { durable: false }, Instant::now());
        let len = request.len as usize;
        let done = step::copy(action, self.file.as_fd(), offset, &mut job.data, len);
        if since.elapsed() > HELD_UP {
            self.held_up.store(HANDED_ON, relaxed);
        }
        done
    }
}
