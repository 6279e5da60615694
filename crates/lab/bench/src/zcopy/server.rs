//! The server: an epoll loop of one thread.

use super::counters::{self, Counters};
use super::tun;
use super::work::{CONNECTIONS, HEADER, Work, cpu};
use crate::party::Party;
use crate::stats::Measured;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use tranship_zcopy::{Arena, Piece, Sender, Socket, Value, Way};

/// Replies to one connection that are not wholly sent.
struct Due {
    stream: TcpStream,
    socket: Socket,
    due: VecDeque<usize>,
    /// Bytes of the first that are gone.
    gone: usize,
    asked: Vec<u8>,
}

/// How replies are sent.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub way: Option<Way>,
    /// All that are due in one call; else one.
    pub together: bool,
    /// Into a TUN device.
    pub tun: bool,
}

pub fn serve(party: &Party, work: Work, how: How) -> Result<Vec<Measured>> {
    let arena = Arena::new()?;
    let mut values = Vec::with_capacity(work.count);
    for seed in 0..work.count {
        let mut value = arena.alloc(work.value)?;
        let seed = u8::try_from(seed % 251)?;
        value.fill(seed);
        values.push(value.freeze());
    }
    arena.protect();
    let mut sender = Sender::new()?;
    sender.force(how.way);
    if how.tun {
        tun::enter(party)?;
    }
    let listener = TcpListener::bind(if how.tun { tun::LISTEN } else { "127.0.0.1:0" })?;
    if !how.tun {
        // As the cache server: a machine's congestion control may pace.
        tranship_sys::stream::hurry(&listener)?;
    }
    party.tell(1, u64::from(listener.local_addr()?.port()))?;
    let mut all = Vec::new();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    for number in 0..CONNECTIONS {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let data = rustix::event::epoll::EventData::new_u64(number as u64);
        let flags = rustix::event::epoll::EventFlags::IN
            | rustix::event::epoll::EventFlags::OUT
            | rustix::event::epoll::EventFlags::ET;
        rustix::event::epoll::add(&epoll, &stream, data, flags)?;
        let socket = Socket::new(&stream)?;
        all.push(Due {
            stream,
            socket,
            due: VecDeque::new(),
            gone: 0,
            asked: Vec::new(),
        });
    }
    let mut events = Vec::with_capacity(CONNECTIONS);
    let mut open = CONNECTIONS;
    let mut served = 0u64;
    let mut begun = None;
    while open > 0 {
        events.clear();
        rustix::event::epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        begun = begun.or_else(|| Some((cpu(), Counters::begin())));
        for event in &events {
            let one = &mut all[usize::try_from(event.data.u64())?];
            if !one.serve(&mut sender, &values, how.together, &mut served)? {
                open -= 1;
                rustix::event::epoll::delete(&epoll, &one.stream)?;
            }
        }
    }
    let (begun, counted) = begun.context("nobody asked")?;
    let cpu = cpu().saturating_sub(begun);
    let mut rows = vec![counters::row("", cpu as f64 / served.max(1) as f64)];
    rows.extend(counted.rows(served));
    if std::env::var_os("TRANSHIP_BENCH_EXPLAIN").is_some() {
        eprintln!("{:#?} {:#?}", sender.counts(), sender.explain());
    }
    Ok(rows)
}

impl Due {
    /// Takes what was asked and sends what has room; false at the end.
    fn serve(
        &mut self,
        sender: &mut Sender,
        values: &[Value],
        together: bool,
        served: &mut u64,
    ) -> Result<bool> {
        let mut room = [0; 256];
        let mut open = true;
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => {
                    open = false;
                    break;
                }
                Ok(got) => {
                    self.asked.extend_from_slice(&room[..got]);
                    if got < room.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    open = false;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let whole = self.asked.len() / 8 * 8;
        for request in self.asked[..whole].chunks_exact(8) {
            let index = usize::try_from(u64::from_le_bytes(request.try_into()?))?;
            self.due.push_back(index % values.len());
        }
        self.asked.drain(..whole);
        while !self.due.is_empty() {
            let header = [b'h'; HEADER];
            let mut pieces = Vec::with_capacity(2 * self.due.len());
            let most = if together { usize::MAX } else { 1 };
            for (number, &index) in self.due.iter().take(most).enumerate() {
                let gone = if number == 0 { self.gone } else { 0 };
                let value = &values[index];
                if gone < HEADER {
                    pieces.push(Piece::Bytes(&header[gone..]));
                    pieces.push(Piece::Value(value));
                } else {
                    pieces.push(Piece::Part(value, gone - HEADER..value.len()));
                }
            }
            match sender.send(&self.stream, &mut self.socket, &pieces) {
                Ok(sent) => self.gone += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                    ) =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
            while let Some(&index) = self.due.front()
                && self.gone >= HEADER + values[index].len()
            {
                self.gone -= HEADER + values[index].len();
                self.due.pop_front();
                *served += 1;
            }
        }
        Ok(open)
    }
}
