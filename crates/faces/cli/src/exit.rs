//! Exit codes.

use crate::output;
use std::process::ExitCode;
use tranship::error::{Awaited, TimedOut};
use tranship::{Error, ErrorKind};
use tranship_proto::shown;

/// Done, or the answer is yes.
pub(crate) const OK: u8 = 0;
/// The answer is no, or no peer came in the time given.
pub(crate) const NEGATIVE: u8 = 1;
/// An error occurred.
pub(crate) const ERROR: u8 = 2;
/// No manager is there.
pub(crate) const NO_MANAGER: u8 = 3;
/// A transfer was cut short: the other end died, or left before it had all of the data.
pub(crate) const CUT_SHORT: u8 = 4;

/// Answer of a command that did its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Done, or yes.
    Yes,
    /// The answer is no; its meaning has been printed.
    No,
    /// The exit code of a program.
    Code(u8),
}

impl From<bool> for Answer {
    fn from(is_so: bool) -> Answer {
        match is_so {
            true => Answer::Yes,
            false => Answer::No,
        }
    }
}

/// Prints what went wrong, if anything, and says how to end.
pub(crate) fn code(outcome: anyhow::Result<Answer>) -> ExitCode {
    let error = match outcome {
        Ok(Answer::Yes) => return ExitCode::from(OK),
        Ok(Answer::No) => return ExitCode::from(NEGATIVE),
        Ok(Answer::Code(code)) => return ExitCode::from(code),
        Err(error) => error,
    };
    if output::is_unread(&error) {
        return ExitCode::from(OK);
    }
    // Lines are ours; what a name, a path or another program put into them is not.
    let text = text(&error);
    let lines: Vec<_> = text.lines().map(shown).collect();
    eprintln!("tranship: {}", lines.join("\n"));
    ExitCode::from(classify(&error))
}

/// The error and its causes on one line; a cause that the text before it already ends with is not said twice.
pub(crate) fn text(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .fold(String::new(), |said, cause| {
            if said.is_empty() {
                cause
            } else if said.ends_with(&cause) {
                said
            } else {
                format!("{said}: {cause}")
            }
        })
}

fn classify(error: &anyhow::Error) -> u8 {
    let ours = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Error>());
    let timed_out = ours.and_then(|ours| ours.find::<TimedOut>());
    match ours.map(Error::kind) {
        // A manager that does not answer says nothing of the party that was waited for.
        Some(ErrorKind::TimedOut)
            if timed_out.is_some_and(|t| matches!(t.awaited, Awaited::Manager(_))) =>
        {
            ERROR
        }
        Some(ErrorKind::TimedOut) => NEGATIVE,
        Some(ErrorKind::NoManager | ErrorKind::ManagerAway | ErrorKind::CutOff) => NO_MANAGER,
        Some(ErrorKind::PeerGone | ErrorKind::PeerDied | ErrorKind::Lost) => CUT_SHORT,
        _ => ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use tranship::error::NotTaken;

    #[test]
    fn an_absent_manager_has_its_own_code_also_below_context() {
        let absent = Error::new(ErrorKind::NoManager, "no manager answers at /run/x: none");
        let absent = Err::<(), _>(absent).context("stat");
        assert_eq!(classify(&absent.expect_err("absent")), NO_MANAGER);
        assert_eq!(classify(&anyhow::anyhow!("other")), ERROR);
    }

    #[test]
    fn a_transfer_that_was_cut_short_has_its_own_code() {
        let died = Err::<(), _>(Error::from(ErrorKind::PeerDied)).context("recv");
        assert_eq!(classify(&died.expect_err("died")), CUT_SHORT);
        let left = Error::from(NotTaken {
            messages: 3,
            gone: true,
            waited_ms: 0,
        });
        assert_eq!(
            text(&left.into()),
            "3 messages were not taken: the receiver is gone"
        );
        let left = Err::<(), _>(Error::from(ErrorKind::PeerGone)).context("send");
        assert_eq!(classify(&left.expect_err("left")), CUT_SHORT);
    }

    #[test]
    fn a_cause_is_said_once() {
        let twice = anyhow::anyhow!("full").context("refused: full");
        assert_eq!(text(&twice), "refused: full");
        let both = anyhow::anyhow!("full").context("writing");
        assert_eq!(text(&both), "writing: full");
    }
}
