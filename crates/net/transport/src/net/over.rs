//! The end of a session.

use std::time::Duration;

/// Reason of a session's end.
#[derive(Clone, Debug)]
pub(super) struct Over {
    pub violation: bool,
    pub why: String,
}

/// Returns the end of a session by the other end's fault.
pub(super) fn broken(rule: impl Into<String>) -> Over {
    Over {
        violation: true,
        why: rule.into(),
    }
}

pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
