//! Sending to a client.

use super::conn::Conn;
use super::keep::Kept;
use super::out::Outgoing;
use super::parts::Shell;
use super::party::Task;
use super::serve::SHARE;
use crate::state::{ClientId, FdToken, Input};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tranship_proto::{Event, Refusal, encode};
use tranship_sys::{crash, futex, socket};

/// Messages sent to a client in one task.
const TURN: usize = 32;

impl Shell {
    pub(super) fn queue(&mut self, client: ClientId, event: &Event, fds: &[FdToken]) {
        let fds: Vec<Rc<Kept>> = fds
            .iter()
            .filter_map(|t| self.fds.get(t).cloned())
            .collect();
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        fds.iter().for_each(|kept| kept.goes_out());
        conn.queue.push_back(Outgoing {
            bytes: encode(event),
            fds,
        });
        if let Event::Welcome { domain, .. } = event {
            conn.domain = Some(*domain);
            self.connected.insert(*domain, client);
        }
        self.plan_write(client);
    }

    pub(super) fn plan_write(&mut self, client: ClientId) {
        if let Some(conn) = self.conns.get_mut(&client)
            && !std::mem::replace(&mut conn.writing, true)
        {
            let uid = conn.uid;
            self.enqueue(uid, Task::Write(client));
        }
    }

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

    /// Ends a connection, after one attempt to say why.
    pub(super) fn part(&mut self, client: ClientId, refusal: Option<Refusal>) {
        if let Some(conn) = self.conns.get_mut(&client) {
            let uid = conn.uid;
            let mut queue: VecDeque<Outgoing> = std::mem::take(&mut conn.queue);
            let mut room = 2 * TURN;
            while let Some(out) = queue.front()
                && room > 0
                && self.may_fly(uid, out.fds.len())
                && let Some(conn) = self.conns.get(&client)
                && out.send(&conn.fd).is_ok()
            {
                self.flies(client, out.fds.len());
                queue.pop_front();
                room -= 1;
            }
            let Some(conn) = self.conns.get(&client) else {
                return;
            };
            if let (Some(refusal), true) = (refusal, queue.is_empty()) {
                let last = encode(&Event::Expelled { refusal });
                let _ = socket::sendmsg(&conn.fd, &last, &[], true);
            }
        }
        self.drop_conn(client);
    }
}
