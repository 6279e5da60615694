//! A worker's work. It reports its findings before it closes anything, so that no process waits for its closing.

use super::look::{SMALL_BYTES, look};
use super::wire::{self, Head, Job, MAX_CARRIED, MESSAGE_BYTES};
use crate::state::Facts;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tranship_proto::decode;
use tranship_sys::socket;

const IDLE: &[u8] = b"i";

/// Does one job after another until the manager is gone.
pub(super) fn work(end: OwnedFd) {
    let mut message = vec![0; MESSAGE_BYTES];
    let mut job = [0; 64];
    while let Ok(received) = socket::recvmsg(&end, &mut job, false) {
        let mut fds = received.fds;
        let idle = match decode(&job[..received.bytes.min(job.len())]) {
            Ok(Job::Carry { client }) => match fds.pop() {
                Some(conn) => carry(&end, client, conn, &mut message),
                None => Ok(false),
            },
            // The first of two closers does not wait. The manager is the first, so this copy is closed only after the
            // manager's, or when the manager is gone.
            Ok(Job::Close) => match socket::recvmsg(&end, &mut job, false) {
                Ok(_) => {
                    drop(fds);
                    Ok(false)
                }
                Err(_) => return,
            },
            Ok(Job::LetGo) | Err(_) => return,
        };
        match idle {
            Ok(true) => {}
            Ok(false) if socket::sendmsg(&end, IDLE, &[], false).is_ok() => {}
            _ => return,
        }
    }
}

/// Fetches a message; returns whether that was all, or an error if the manager is gone.
fn carry(end: &OwnedFd, client: u64, conn: OwnedFd, buf: &mut [u8]) -> io::Result<bool> {
    let received = socket::recvmsg_all(&conn, buf, true);
    // The manager may have let go of the connection meanwhile. Then this is the last copy, the connection's contents go
    // too, and no process waits for the client's message.
    drop(conn);
    let mut head = Head {
        client,
        ended: true,
        ..Head::default()
    };
    let Ok(received) = received else {
        head.idle = true;
        socket::sendmsg(end, &wire::write(&head, &[]), &[], false)?;
        return Ok(true);
    };
    head.ended = received.bytes == 0;
    head.truncated = received.truncated;
    head.ctrunc = received.ctrunc;
    head.came = u32::try_from(received.fds.len()).unwrap_or(u32::MAX);
    head.pidfd = received.pidfd.is_some();
    let (mut good, mut rest) = (Vec::new(), Vec::new());
    for (n, fd) in received.fds.into_iter().enumerate() {
        let facts = if n < MAX_CARRIED { look(&fd) } else { None };
        if n < MAX_CARRIED {
            head.facts.push(facts);
        }
        if facts.is_some() {
            &mut good
        } else {
            &mut rest
        }
        .push(fd);
    }
    let small = |f: &Option<Facts>| f.is_none_or(|f| f.size <= SMALL_BYTES);
    head.idle = rest.is_empty() && head.facts.iter().all(small);
    let bytes = &buf[..received.bytes.min(buf.len())];
    let fds: Vec<_> = good
        .iter()
        .chain(&received.pidfd)
        .map(AsFd::as_fd)
        .collect();
    socket::sendmsg(end, &wire::write(&head, bytes), &fds, false)?;
    Ok(head.idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last of two closers may wait: that must be the worker, never the manager.
    #[test]
    fn nothing_is_closed_before_the_manager_has_closed_it() {
        let (near, far) = socket::pair().expect("pair");
        let (ours, theirs) = socket::pair().expect("pair");
        let (say, number) = std::sync::mpsc::channel();
        let worker = std::thread::spawn(move || {
            say.send(tranship_sys::process::gettid()).expect("open");
            work(theirs);
        });
        let stat = format!(
            "/proc/self/task/{}/stat",
            number.recv().expect("its number")
        );
        let asleep = || {
            let stat = std::fs::read_to_string(&stat).expect("its state");
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('S'))
        };
        socket::sendmsg(&ours, &wire::encode(&Job::Close), &[far.as_fd()], false).expect("send");
        drop(far);
        // The worker has taken the descriptors, and waits for the next message.
        while socket::unread(&ours).expect("unread") > 0 || !asleep() {
            std::thread::yield_now();
        }
        assert!(!socket::is_hung_up(&near));
        socket::sendmsg(&ours, &wire::encode(&Job::LetGo), &[], false).expect("send");
        let mut said = [0; 8];
        let said = socket::recvmsg(&ours, &mut said, false)
            .expect("a word")
            .bytes;
        assert_eq!(said, IDLE.len());
        assert!(socket::is_hung_up(&near));
        drop(ours);
        worker.join().expect("its end");
    }
}
