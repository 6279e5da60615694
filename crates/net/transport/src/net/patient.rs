//! A socket during the handshake: it blocks, but the whole handshake has one limit, however slowly its bytes come.

use super::handshakes::Progress;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A socket that gives up at a time.
pub(super) struct Patient<'a> {
    socket: &'a TcpStream,
    until: Instant,
    progress: Option<&'a Progress>,
    cut: bool,
}

impl<'a> Patient<'a> {
    pub(super) fn new(socket: &'a TcpStream, until: Instant) -> Patient<'a> {
        Patient {
            socket,
            until,
            progress: None,
            cut: false,
        }
    }

    /// Notes the progress when the other end sends something.
    pub(super) fn noting(mut self, progress: &'a Progress) -> Patient<'a> {
        self.progress = Some(progress);
        self
    }

    /// Returns whether the other end has gone.
    pub(super) fn was_cut(&self) -> bool {
        self.cut
    }

    fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_duration_since(Instant::now()) {
            left if left < Duration::from_millis(1) => Err(io::Error::new(
                ErrorKind::TimedOut,
                "the handshake took too long",
            )),
            left => Ok(left),
        }
    }
}

/// Returns the result, unless it is a time-out of the socket: that is one of ours, or nearly.
fn try_again<T>(result: io::Result<T>) -> Option<io::Result<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) if error.kind() == ErrorKind::Interrupted => None,
        other => Some(other),
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            self.socket.set_read_timeout(Some(self.left()?))?;
            if let Some(got) = try_again((&mut &*self.socket).read(to)) {
                if let (Ok(1..), Some(progress)) = (&got, self.progress) {
                    progress.spoke();
                }
                self.cut |= match &got {
                    Ok(bytes) => *bytes == 0 && !to.is_empty(),
                    Err(error) => error.kind() == ErrorKind::ConnectionReset,
                };
                return got;
            }
        }
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.socket.set_write_timeout(Some(self.left()?))?;
            if let Some(sent) = try_again((&mut &*self.socket).write(bytes)) {
                let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                self.cut |= sent.as_ref().is_err_and(|e| gone.contains(&e.kind()));
                return sent;
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends a handshake that failed so that the other end hears the reason: a socket that is closed with bytes unread loses
/// the last bytes that were sent.
pub(super) fn part(socket: &TcpStream) {
    const LONGEST: Duration = Duration::from_millis(500);
    let until = Instant::now() + LONGEST;
    // A failure of this courtesy does not matter.
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut patient = Patient::new(socket, until);
    let mut nowhere = [0; 4096];
    while matches!(patient.read(&mut nowhere), Ok(1..)) {}
}
