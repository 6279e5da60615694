//! Standard output, whose reader may go away.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// Standard output, locked. The error for a missing reader is [`Unread`]; a broken pipe of anything else is not.
#[derive(Debug)]
pub(crate) struct Stdout(StdoutLock<'static>);

/// The reader of standard output has gone away.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads standard output any more")]
pub(crate) struct Unread;

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("writing to standard output: {0}")]
struct Failed(io::Error);

/// Returns standard output.
pub(crate) fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, Unread),
        kind => io::Error::new(kind, Failed(error)),
    }
}

/// Returns whether an error says that: `tranship stat | head -1` is none.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let within = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        within.is_some_and(|within| within.is::<Unread>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn only_the_broken_pipe_of_standard_output_is_meant() {
        let broken = || io::Error::from(ErrorKind::BrokenPipe);
        let ours = Err::<(), _>(named(broken())).context("writing");
        assert!(is_unread(&ours.expect_err("gone")));
        let other = Err::<(), _>(broken()).context("sendmsg to the manager");
        assert!(!is_unread(&other.expect_err("gone")));
        let full = Err::<(), _>(named(ErrorKind::StorageFull.into())).context("writing");
        assert!(!is_unread(&full.expect_err("full")));
    }
}
