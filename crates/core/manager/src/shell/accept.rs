//! New connections.

use super::conn::Conn;
use super::conns::violation;
use super::parts::{CLIENT, Shell};
use crate::state::{ClientId, Input};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tranship_proto::{Event, RefusalCode, encode};
use tranship_sys::epoll::Interest;
use tranship_sys::socket;

/// The share of a turn of the loop for new connections. A new connection waits behind all earlier ones, whichever user
/// they belong to.
const SHARE: Duration = Duration::from_millis(1);
/// The delay before an operation for which the kernel had no room is tried again.
pub(super) const AGAIN: Duration = Duration::from_millis(10);
/// Messages of a client that may not connect which are thrown away.
const UNHEARD: usize = 4;

impl Shell {
    pub(super) fn accept(&mut self) {
        let begin = Instant::now();
        while begin.elapsed() < SHARE {
            let fd = match socket::accept(&self.listener) {
                Ok(fd) => fd,
                Err(error) => {
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.listener.emptied();
                    } else if socket::is_shortage(&error) {
                        // Otherwise epoll would report the listener as ready all the time.
                        let _ = self.epoll.remove(&self.listener);
                        self.listener_rests = Some(Instant::now() + AGAIN);
                        tracing::warn!(%error, "connection not taken");
                    }
                    return;
                }
            };
            let open = self.conns.len() + self.fds.len();
            if open >= self.max_files {
                tracing::warn!(open, "no descriptors left, connection refused");
                let refusal = violation(RefusalCode::NoDescriptors, open, self.max_files);
                let last = encode(&Event::Expelled { refusal });
                let _ = socket::sendmsg(&fd, &last, &[], true);
                continue;
            }
            if let Err(error) = self.adopt(fd) {
                tracing::warn!(%error, "connection not taken");
            }
            self.sort_trash();
        }
    }

    fn adopt(&mut self, fd: OwnedFd) -> io::Result<()> {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        // No message before `Welcome` brings descriptors. If the kernel has ensured that since the connection was made,
        // it has also begun to name the sender.
        let bare = self.listener.is_bare();
        let creds = socket::peer_credentials(&fd)?;
        // The refusal is cheap, so that a flood of refused clients does not keep others out.
        if let (true, Err(refusal)) = (bare, self.state.admits(creds.uid, creds.gid)) {
            let last = encode(&Event::Expelled { refusal });
            let _ = socket::sendmsg(&fd, &last, &[], true);
            // With unread messages, the client would see the end before the last message.
            socket::discard(&fd, UNHEARD);
            return Ok(());
        }
        socket::set_nonblocking(&fd, true)?;
        if !bare {
            socket::pass_pidfd(&fd, true)?;
            socket::pass_rights(&fd, false)?;
        }
        let party = self.party(creds.uid)?;
        party.epoll.add(&fd, CLIENT | client.0, Interest::Read)?;
        party.members += 1;
        self.conns.insert(client, Conn::new(fd, creds.uid, bare));
        self.feed(Input::Connected {
            client,
            uid: creds.uid,
            gid: creds.gid,
            pid: creds.pid,
        });
        // A client that has already said hello is answered in this turn.
        self.plan_read(client);
        Ok(())
    }
}
