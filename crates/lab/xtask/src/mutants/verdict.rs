//! Verdict on one change.

/// Verdict of the tests on a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Noticed by this test, or by a program that ended badly.
    Killed(String),
    Hung,
    Survived,
    /// The list is wrong: such code cannot be had.
    DoesNotBuild,
}
