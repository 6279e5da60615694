//! Connections: planning to read and write them, what epoll waits for, and their end.

use super::keep::Discarded;
use super::out::Outgoing;
use super::parts::{CLIENT, Shell};
use super::party::Task;
use crate::state::{ClientId, Input};
use std::collections::VecDeque;
use tranship_proto::{Refusal, RefusalCode};
use tranship_sys::socket;

pub(super) fn violation(code: RefusalCode, asked: usize, available: usize) -> Refusal {
    Refusal {
        code,
        asked: asked as u64,
        available: available as u64,
    }
}

impl Shell {
    pub(super) fn plan_read(&mut self, client: ClientId) {
        if let Some(conn) = self.conns.get_mut(&client)
            && conn.may_read()
            && !std::mem::replace(&mut conn.reading, true)
        {
            let uid = conn.uid;
            self.enqueue(uid, Task::Read(client));
        }
    }

    pub(super) fn plan_write(&mut self, client: ClientId) {
        if let Some(conn) = self.conns.get_mut(&client)
            && !std::mem::replace(&mut conn.writing, true)
        {
            let uid = conn.uid;
            self.enqueue(uid, Task::Write(client));
        }
    }

    /// Updates the events for which epoll waits.
    pub(super) fn rewatch(&mut self, client: ClientId) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        let Some(party) = self.parties.get(&conn.uid) else {
            return;
        };
        let (wanted, token) = (conn.wanted(), CLIENT | client.0);
        let done = match (conn.watched, wanted) {
            (a, b) if a == b => return,
            (None, Some(interest)) => party.epoll.add(&conn.fd, token, interest),
            (Some(_), Some(interest)) => party.epoll.modify(&conn.fd, token, interest),
            (_, None) => party.epoll.remove(&conn.fd),
        };
        if done.is_ok() {
            conn.watched = wanted;
        }
    }

    pub(super) fn drop_conn(&mut self, client: ClientId) -> Option<VecDeque<Outgoing>> {
        let conn = self.conns.remove(&client)?;
        self.trim_soon();
        if let Some(party) = self.parties.get_mut(&conn.uid) {
            if conn.watched.is_some() {
                let _ = party.epoll.remove(&conn.fd);
            }
            party.members -= 1;
            self.wake(conn.uid);
        }
        // The client's process has ended and is not watched any more: no other event reports its death.
        if let Some((domain, _)) = conn.dying {
            self.answers.push_back(Input::ProcessDied { domain });
        }
        if let Some(domain) = conn.domain
            && self.connected.get(&domain) == Some(&client)
        {
            self.connected.remove(&domain);
        }
        self.throttled.remove(&client);
        let _ = socket::shutdown(&conn.fd);
        let discarded = Discarded {
            fd: conn.fd,
            what: Some(Input::Parted { client }),
            small: conn.bare && !conn.greeted,
        };
        self.linger(conn.uid, conn.flight, discarded);
        Some(conn.queue)
    }
}
