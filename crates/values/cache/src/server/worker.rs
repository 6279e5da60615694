//! A worker: one thread, one epoll, its connections.

use super::connection::{Connection, Turn};
use super::datagram::Datagrams;
use super::shared::Shared;
use crate::stats::Counts;
use hashbrown::HashMap;
use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_sys::epoll::{Epoll, Interest};
use tranship_sys::eventfd;
use tranship_zcopy::Sender;

const LISTENER: u64 = u64::MAX;
const DATAGRAMS: u64 = u64::MAX - 1;
const DOORBELL: u64 = u64::MAX - 2;
/// Time between two checks for expired items and slow clients.
const TICK: Duration = Duration::from_millis(250);

pub(super) struct Worker {
    shared: Arc<Shared>,
    number: usize,
    listener: Arc<TcpListener>,
    datagrams: Option<Datagrams>,
    doorbell: OwnedFd,
    epoll: Epoll,
    sender: Sender,
    /// Connections by numbers that no client chooses, so a quick hash is enough.
    connections: HashMap<u64, Connection>,
    next: u64,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        number: usize,
        listener: Arc<TcpListener>,
        datagrams: Option<UdpSocket>,
        doorbell: OwnedFd,
    ) -> io::Result<Worker> {
        let epoll = Epoll::new()?;
        epoll.add(&*listener, LISTENER, Interest::Read)?;
        epoll.add(&doorbell, DOORBELL, Interest::Read)?;
        let datagrams = datagrams.map(Datagrams::new).transpose()?;
        if let Some(datagrams) = &datagrams {
            epoll.add(datagrams.as_socket(), DATAGRAMS, Interest::Read)?;
        }
        let mut sender = Sender::new()?;
        sender.force(shared.options.way);
        Ok(Worker {
            shared,
            number,
            listener,
            datagrams,
            doorbell,
            epoll,
            sender,
            connections: HashMap::new(),
            next: 0,
        })
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    fn counts(&self) -> &Counts {
        &self.shared.counts[self.number]
    }

    /// Continues with these connections.
    pub(super) fn resume(&mut self, connections: Vec<Connection>) -> io::Result<()> {
        for connection in connections {
            self.epoll
                .add(connection.stream(), self.next, Interest::Read)?;
            // Relaxed: a count.
            self.shared.open.fetch_add(1, Ordering::Relaxed);
            self.connections.insert(self.next, connection);
            self.next += 1;
        }
        Ok(())
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values()
    }

    /// Serves until it is told to stop; it can continue after that.
    pub(super) fn run(mut self) -> Worker {
        let mut ready = Vec::new();
        // Connections with commands that are not yet looked at: each has its turn.
        let mut busy: Vec<u64> = self.connections.keys().copied().collect();
        let mut last = Instant::now();
        loop {
            let wait = if busy.is_empty() {
                TICK
            } else {
                Duration::ZERO
            };
            if let Err(error) = self.epoll.wait(&mut ready, Some(wait)) {
                tracing::error!(%error, "waiting for clients");
                return self;
            }
            // Ordering: acquire, partner of the release in `Server::end`.
            if self.shared.stop.load(Ordering::Acquire) {
                let _ = eventfd::drain(&self.doorbell);
                return self;
            }
            let mut turns = std::mem::take(&mut busy);
            for event in &ready {
                match event.token {
                    LISTENER => self.accept(),
                    DATAGRAMS => self.datagrams(),
                    // The memory that replies hold is checked below. A stop whose ring this takes is seen at the next
                    // tick.
                    DOORBELL => drop(eventfd::drain(&self.doorbell)),
                    token if !turns.contains(&token) => turns.push(token),
                    _ => {}
                }
            }
            for token in turns {
                if self.turn(token) == Turn::More {
                    busy.push(token);
                }
            }
            self.relieve();
            if last.elapsed() >= TICK {
                last = Instant::now();
                self.tick(last);
            }
        }
    }

    fn accept(&mut self) {
        // A few at a time: connections that are there have their turn too.
        for _ in 0..16 {
            match self.listener.accept() {
                Ok((stream, _)) => self.welcome(stream),
                Err(error) => {
                    if !matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::ConnectionAborted
                    ) {
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, mut stream: TcpStream) {
        // Relaxed: a count; the limit may be passed by as many as there are workers, for a moment.
        let open = self.shared.open.fetch_add(1, Ordering::Relaxed);
        let made = if open < self.shared.options.connections {
            Counts::bump(&self.counts().total_connections, 1);
            self.shared.pacing.welcome(&stream);
            Connection::new(stream)
        } else {
            Counts::bump(&self.counts().rejected_connections, 1);
            let _ = stream.set_nonblocking(true);
            let _ = stream.write(b"ERROR Too many open connections\r\n");
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let token = self.next;
        let added = made.and_then(|connection| {
            self.epoll.add(connection.stream(), token, Interest::Read)?;
            Ok(connection)
        });
        match added {
            Ok(connection) => {
                self.next += 1;
                self.connections.insert(token, connection);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be kept");
                self.shared.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn turn(&mut self, token: u64) -> Turn {
        let Some(connection) = self.connections.get_mut(&token) else {
            return Turn::Done;
        };
        let before = self.sender.counts();
        let turn = connection.turn(&self.shared, (self.number, token), &mut self.sender);
        note(&self.shared.counts[self.number], &before, &self.sender);
        let wish = connection.wish(&self.shared);
        let known =
            wish.is_none_or(|wish| self.epoll.modify(connection.stream(), token, wish).is_ok());
        if turn == Turn::End || !known {
            self.close(token);
            return Turn::End;
        }
        turn
    }

    fn close(&mut self, token: u64) {
        if let Some(connection) = self.connections.remove(&token) {
            let _ = self.epoll.remove(connection.stream());
            // Relaxed: a count.
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// While replies hold more than they may, closes the slowest client of all workers. If it is another worker's,
    /// rings that worker.
    fn relieve(&mut self) {
        let (shared, mine) = (Arc::clone(&self.shared), self.number);
        while shared.waiting.is_too_much(&shared.store) {
            match shared.waiting.slowest() {
                Some((worker, token)) if worker == mine => {
                    self.close(token);
                    Counts::bump(&self.counts().slow_clients_closed, 1);
                    shared.store.relieved();
                }
                Some((other, _)) => return shared.waiting.ring(other),
                None => return,
            }
        }
    }

    fn datagrams(&mut self) {
        if let Some(datagrams) = &mut self.datagrams {
            let before = self.sender.counts();
            datagrams.serve(&self.shared, self.number, &mut self.sender);
            note(&self.shared.counts[self.number], &before, &self.sender);
        }
    }

    fn tick(&mut self, now: Instant) {
        let (patience, deadline) = (self.shared.options.patience, self.shared.options.deadline);
        let slow: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_stuck(now, patience, deadline))
            .map(|(token, _)| *token)
            .collect();
        Counts::bump(&self.counts().slow_clients_closed, slow.len() as u64);
        for token in slow {
            self.close(token);
        }
        if self.number == 0 {
            self.shared.flush_if_due();
            self.shared.store.tidy();
            self.shared.admission.look(&self.shared.store);
        }
    }
}

/// Counts the bytes and calls that a sender has sent since.
fn note(counts: &Counts, before: &tranship_zcopy::Counts, sender: &Sender) {
    let after = sender.counts();
    let referred = after.referred_bytes - before.referred_bytes;
    let copied = after.copied_bytes - before.copied_bytes;
    Counts::bump(&counts.zcopy_referred_bytes, referred);
    Counts::bump(&counts.zcopy_copied_bytes, copied);
    Counts::bump(&counts.bytes_written, referred + copied);
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Relaxed: a count.
        self.shared
            .open
            .fetch_sub(self.connections.len(), Ordering::Relaxed);
    }
}
