//! A process that may not reach a manager any more, because it was locked down after it had joined. Unlike a manager
//! that is away, this does not pass.

use crate::error::{Barrier, Error};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use tranship_proto::{DomainId, Refusal, RefusalCode};
use tranship_sys::errno;

/// The time for which every attempt must have failed in this way: the socket of a starting manager is not open to all
/// at once.
const SURE: Duration = Duration::from_secs(1);

/// The results of attempts since a manager was last there.
#[derive(Default)]
pub(super) struct Attempts {
    /// The time of the first failed attempt, and the reason of the last one.
    barred: Option<(Instant, Barrier)>,
    warned: bool,
}

impl Attempts {
    /// Records that an attempt failed.
    pub(super) fn failed(&mut self, domain: DomainId, why: Option<Barrier>) {
        let before = self.barred.map(|(since, _)| since);
        self.barred = why.map(|why| (before.unwrap_or_else(Instant::now), why));
        if let (Some(barrier), false) = (self.cut_off(), self.warned) {
            self.warned = true;
            tracing::warn!(%domain, "no manager can be reached any more, {barrier}; existing channels go on, nothing new can be had");
        }
    }

    pub(super) fn cut_off(&self) -> Option<Barrier> {
        let (since, barrier) = self.barred?;
        (since.elapsed() >= SURE).then_some(barrier)
    }
}

impl Barrier {
    /// Returns the obstacle to a connection. `root` is the root directory of the time at which the domain joined.
    pub(super) fn to_connect(error: &io::Error, root: Option<Root>) -> Option<Barrier> {
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::PermissionDenied | ErrorKind::Unsupported, Some(errno))
            | (_, Some(errno @ errno::NO_ADDRESS_FAMILY)) => Some(Barrier::Denied { errno }),
            (ErrorKind::NotFound, _) if root != Root::now() => Some(Barrier::OtherRoot),
            _ => None,
        }
    }

    /// Returns the obstacle in a manager's answer. Other refusals pass.
    pub(super) fn in_answer(error: &Error) -> Option<Barrier> {
        let refusal = error.find::<Refusal>();
        let final_ = |refusal: &&Refusal| {
            matches!(
                refusal.code,
                RefusalCode::Access | RefusalCode::Version | RefusalCode::Hog
            )
        };
        refusal.filter(final_).copied().map(Barrier::Refused)
    }
}

/// A root directory's identity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Root(u64, u64);

impl Root {
    /// Returns this process's root directory, if it may be examined.
    pub(super) fn now() -> Option<Root> {
        let meta = std::fs::metadata("/").ok()?;
        Some(Root(meta.dev(), meta.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn only_what_lasts_counts() {
        let said = Arc::new(AtomicUsize::new(0));
        let lines = Arc::clone(&said);
        let count = move || {
            lines.fetch_add(1, Ordering::Relaxed);
            io::sink()
        };
        let log = tracing_subscriber::fmt().with_writer(count).finish();
        tracing::subscriber::with_default(log, keeps_failing);
        assert_eq!(said.load(Ordering::Relaxed), 1, "once");
    }

    fn keeps_failing() {
        let denied = Barrier::Denied { errno: 1 };
        let mut attempts = Attempts::default();
        let begun = Instant::now();
        attempts.failed(DomainId(1), Some(denied));
        assert!(attempts.cut_off().is_none() || begun.elapsed() >= SURE);
        while attempts.cut_off().is_none() {
            std::thread::yield_now();
            attempts.failed(DomainId(1), Some(denied));
        }
        assert!(begun.elapsed() >= SURE);
        // The time may have passed between the last attempt and the look.
        for _ in 0..3 {
            attempts.failed(DomainId(1), Some(denied));
        }
        // The manager may be there again.
        attempts.failed(DomainId(1), None);
        assert_eq!(attempts.cut_off(), None);
    }

    #[test]
    fn what_is_forbidden_is_not_what_is_missing() {
        let of = |errno, root| Barrier::to_connect(&io::Error::from_raw_os_error(errno), root);
        let root = Root::now();
        for errno in [
            libc::EPERM,
            libc::EACCES,
            libc::ENOSYS,
            errno::NO_ADDRESS_FAMILY,
        ] {
            assert_eq!(of(errno, root), Some(Barrier::Denied { errno }));
        }
        for errno in [libc::ENOENT, libc::ECONNREFUSED, libc::EAGAIN, libc::EMFILE] {
            assert_eq!(of(errno, root), None);
        }
        let other = Some(Root(0, 0));
        assert_eq!(of(libc::ENOENT, other), Some(Barrier::OtherRoot));
        assert_eq!(of(libc::ECONNREFUSED, other), None);
    }
}
