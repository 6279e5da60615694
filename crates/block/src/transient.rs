//! Lacks that pass (memory, descriptors, the quota, the manager): this process waits for them. Nothing is lost by that:
//! a message that came is taken later, and a message to send is sent later.

use std::fmt::Display;
use std::time::Duration;
use tranship_core::{Error, ErrorKind, Message, Receiver};

/// Time between two checks whether it is over.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// Returns whether the other end is behind, which is not worth a report.
fn is_behind(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Full | ErrorKind::PoolPending | ErrorKind::TimedOut
    )
}

/// Returns whether the error may pass by itself.
pub(crate) fn is_transient(kind: ErrorKind) -> bool {
    use ErrorKind::{Limit, ManagerAway, OutOfMemory, Quota, System};
    is_behind(kind) || [Limit, ManagerAway, OutOfMemory, Quota, System].contains(&kind)
}

/// Returns whether data that came cannot be passed on as it is: its domain does not allow it, or the other end does not
/// take its pool. Then it is copied.
pub(crate) fn is_barred(kind: ErrorKind) -> bool {
    !is_transient(kind) && !matches!(kind, ErrorKind::PeerGone | ErrorKind::PeerDied)
}

/// Record of the lack that was reported, so that a waiting thread reports it once.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<ErrorKind>);

impl Patience {
    /// Returns the next message within `limit`; none as long as something is missing here.
    pub(crate) fn next(
        &mut self,
        who: &dyn Display,
        from: &mut Receiver,
        limit: Duration,
    ) -> Result<Option<Message>, Error> {
        let next = match limit.is_zero() {
            true => from.try_recv(),
            false => from.recv_timeout(limit).map(Some),
        };
        match next {
            Err(lack) if is_transient(lack.kind()) => {
                if lack.kind() != ErrorKind::TimedOut {
                    self.say(who, &lack);
                    std::thread::sleep(PAUSE.min(limit));
                }
                Ok(None)
            }
            Ok(Some(message)) => {
                self.0 = None;
                Ok(Some(message))
            }
            other => other,
        }
    }

    /// Reports that `who` waits for this lack to pass.
    pub(crate) fn say(&mut self, who: &dyn Display, lack: &Error) {
        let kind = lack.kind();
        if !is_behind(kind) && self.0.replace(kind) != Some(kind) {
            tracing::warn!("{who}: {lack}; waiting until that is over");
        }
    }
}
