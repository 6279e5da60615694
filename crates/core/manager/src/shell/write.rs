//! Sending to a client.

use super::conn::Conn;
use super::out::TURN;
use super::parts::Shell;
use super::turns::SHARE;
use crate::state::{ClientId, Input};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tranship_sys::{crash, futex, socket};

impl Shell {
    /// Sends as much of the queue as possible, and tells the state.
    pub(super) fn write(&mut self, client: ClientId) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        (conn.writing, conn.blocked) = (false, false);
        let uid = conn.uid;
        let begin = Instant::now();
        let (mut sent, mut late) = (0, false);
        while let Some(conn) = self.conns.get(&client)
            && let (Some(out), false) = (conn.queue.front(), sent == TURN || late || conn.broken)
        {
            let fds = out.fds.len();
            if !self.may_fly(uid, fds) {
                self.throttled.insert(client);
                break;
            }
            let Some(conn) = self.conns.get_mut(&client) else {
                return;
            };
            let Some(out) = conn.queue.front() else {
                break;
            };
            // Crash: of related messages, one client may have its message and another not. The next manager repeats
            // them to clients that claim.
            crash::point("manager.before_send");
            match out.send(&conn.fd) {
                Ok(()) => {
                    conn.queue.pop_front();
                    sent += 1;
                    self.flies(client, fds);
                    // The kernel goes through everything that the client has waiting on it: once for each task.
                    late = begin.elapsed() >= SHARE;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    conn.blocked = true;
                    break;
                }
                Err(e) if socket::is_shortage(&e) => {
                    self.throttled.insert(client);
                    break;
                }
                // Reading finds the hang-up, after the client's last messages.
                Err(_) => conn.broken = true,
            }
        }
        self.look_at_flight(client);
        let Some(conn) = self.conns.get(&client) else {
            return;
        };
        if sent > 0
            && let Some(control_page) = conn.control_page.and_then(|t| self.control_pages.get(&t))
        {
            // Ordering: Release; partner is the client's acquire load of `wake` before it looks at its socket.
            control_page.wake().fetch_add(1, Ordering::Release);
            // Few waiters are woken, because the client may have queued any number. If more of its threads wait, the
            // thread that takes the news wakes the others (`take_events` in the session).
            let _ = futex::wake_some(control_page.wake());
        }
        if sent == TURN || late {
            self.plan_write(client);
        }
        self.rewatch(client);
        for _ in 0..sent {
            self.feed(Input::Sent { client });
        }
        let stuck = |c: &Conn| c.blocked && !c.queue.is_empty();
        if self.throttled.contains(&client) || self.conns.get(&client).is_some_and(stuck) {
            self.feed(Input::Blocked { client });
        }
    }
}
