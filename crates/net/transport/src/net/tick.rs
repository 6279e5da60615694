//! Timed work of a session, done by the timer thread: keepalives, the idle timeout, the end of patience, farewells. No
//! step takes longer for an end that never stops talking.

use super::flow::Inner;
use super::link::Waits;
use super::session::Session;
use super::states::{Farewell, News, Over};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most pieces after a farewell that one look takes.
const MOST_PIECES: usize = 128;

impl Session {
    /// Does the timed work: keepalives, the idle timeout, the end of patience. Returns whether the session is to be
    /// kept.
    pub(super) fn tick(self: &Arc<Session>, inner: &mut Inner, now: Instant) -> bool {
        if let Some(left) = inner.program.left_at() {
            let late = now.saturating_duration_since(left) > self.timing.linger;
            if late || inner.is_over() || self.is_finished(inner) {
                self.end(inner, Over::gone("the program has let go of the channel"));
                return false;
            }
        }
        if inner.connection.up().is_some() {
            self.look_around(inner, now);
        }
        if let Some(lost) = inner.connection.lost() {
            let gone_for = now.saturating_duration_since(lost.since);
            if gone_for > self.timing.grace {
                let why = format!(
                    "{}; no connection for {} (at most {})",
                    lost.why,
                    seconds(gone_for),
                    seconds(self.timing.grace)
                );
                self.end(inner, Over::gone(why));
            } else if self.caller.is_some()
                && inner.connection.needs_dialer()
                // If no thread can be started now, the next check tries it again.
                && super::dial::dial_again(self, inner.lines).is_ok()
            {
                inner.connection.dials();
            }
        }
        true
    }

    /// Checks whether the other end of a connection is still there.
    fn look_around(&self, inner: &mut Inner, now: Instant) {
        let since = |at| now.saturating_duration_since(at);
        let said = inner.connection.up().map(|link| since(link.said));
        if inner.news != News::Nothing || said >= Some(self.timing.keepalive) {
            inner.news.hurry();
        }
        self.flush(inner);
        // While the program has not taken the frames that came, nothing more can be heard; that does not count towards
        // the idle timeout. A program that looks itself is not disturbed.
        let heard = inner.connection.up().map(|link| since(link.heard));
        let quiet = heard >= Some(self.timing.keepalive / 4);
        if quiet
            && inner.program.left_at().is_none()
            && self.peek(inner)
            && let Some(link) = inner.connection.up_mut()
        {
            link.heard = now;
        }
        let heard = inner.connection.up().map(|link| since(link.heard));
        if let Some(silent) = heard.filter(|silent| *silent > self.timing.idle_timeout) {
            let why = format!(
                "{} has been silent for {} (at most {})",
                self.peer,
                seconds(silent),
                seconds(self.timing.idle_timeout)
            );
            self.lose(inner, why);
        }
    }

    /// Returns whether the farewell is finished. Everything has been said; later bytes of the other end are discarded
    /// until it has heard the farewell.
    fn is_finished(&self, inner: &mut Inner) -> bool {
        let is_said = matches!(
            inner.program.farewell(),
            Some(Farewell::Said | Farewell::Closed)
        );
        if !is_said || !self.flush(inner) {
            return false;
        }
        if let Some(link) = inner.connection.up_mut()
            && inner.program.farewell() == Some(Farewell::Said)
        {
            link.line.close();
            inner.program.said(Farewell::Closed);
        }
        for _ in 0..MOST_PIECES {
            match inner.pass_over() {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
        false
    }

    /// Applies the records before the next frame; returns whether something waits for the program.
    fn peek(&self, inner: &mut Inner) -> bool {
        let taken = inner.first;
        let waits = self.advance(inner);
        if matches!(waits, Waits::Program) || inner.first != taken {
            self.ring(inner);
        }
        !matches!(waits, Waits::Nothing)
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::super::session::{End, MOST_RECORDS};
    use super::super::settings::Timing;
    use super::super::wire::{FrameKind, HEADER_BYTES, Header};
    use super::*;
    use crate::Transport;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// Makes another connection for a session: our socket, and the other end.
    fn connect(session: &Session) -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let other = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (own, _) = listener.accept().expect("accept");
        let line = Line::new(own, None).expect("line");
        let socket = line.socket();
        let mut inner = session.lock();
        session.lose(&mut inner, "for another one".to_owned());
        session.attach(&mut inner, line, 0);
        (socket, other)
    }

    /// Makes a session that hears at each look, with a connection.
    fn session() -> (Arc<Session>, Arc<TcpStream>, TcpStream) {
        let timing = Timing {
            keepalive: Duration::ZERO,
            ..Timing::default()
        };
        let session = Session::new([1; 16], timing, "peer".to_owned(), None, None);
        let session = session.expect("session");
        let (socket, other) = connect(&session);
        (session, socket, other)
    }

    fn keepalives(count: usize) -> Vec<u8> {
        let keepalive = Header {
            kind: FrameKind::News,
            frame_bytes: 0,
            payload_bytes: 0,
            number: 0,
            taken: 0,
        };
        keepalive.encode().repeat(count)
    }

    /// Waits until all of the bytes are here, before any thread looks.
    fn arrives(socket: &TcpStream, mut other: &TcpStream, bytes: &[u8]) {
        other.write_all(bytes).expect("write");
        let waits = || usize::try_from(rustix::io::ioctl_fionread(socket).expect("ioctl"));
        while waits() != Ok(bytes.len()) {
            std::thread::yield_now();
        }
    }

    /// The first part of a record does not survive its connection: it is not put in front of the bytes that come over
    /// the next one.
    #[test]
    fn half_a_record_goes_with_its_connection() {
        let (session, mut socket, mut other) = session();
        let mut end = End(Arc::clone(&session));
        let frame = Header {
            kind: FrameKind::Frame,
            frame_bytes: 5,
            payload_bytes: 0,
            number: 0,
            taken: 0,
        };
        let record = [&frame.encode()[..], b"frame"].concat();
        for cut in 1..record.len() {
            arrives(&socket, &other, &record[..cut]);
            assert!(end.recv().expect("it is there").is_none(), "{cut} bytes");
            (socket, other) = connect(&session);
        }
        arrives(&socket, &other, &record);
        let frame = end.recv().expect("it is there").expect("a frame");
        assert_eq!(&frame.0[..], b"frame");
    }

    #[test]
    fn a_look_takes_so_many_records() {
        const MANY: usize = 1000;
        let waits = |socket: &TcpStream| rustix::io::ioctl_fionread(socket).expect("ioctl");
        let (session, socket, other) = session();
        arrives(&socket, &other, &keepalives(MANY));
        assert!(session.tick(&mut session.lock(), Instant::now()));
        let left = waits(&socket);
        assert!(
            left >= ((MANY - 2 * MOST_RECORDS) * HEADER_BYTES) as u64,
            "{left} bytes"
        );
        let (session, socket, other) = self::session();
        arrives(&socket, &other, &keepalives(MANY));
        let mut end = End(Arc::clone(&session));
        assert!(end.recv().expect("it is there").is_none());
        let left = waits(&socket);
        assert!(
            left >= ((MANY - 2 * MOST_RECORDS) * HEADER_BYTES) as u64,
            "{left} bytes"
        );
        // Only the session itself knows of bytes that it has read and not looked at.
        assert!(session.lock().is_rung);
    }
}
