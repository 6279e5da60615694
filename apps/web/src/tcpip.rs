//! TCP/IP, for a server whose connections are not the kernel's: frames of `device` below, byte streams of `front` above.
//!
//! A received byte is passed on in the buffer that `device` received it into. A sent byte stays in the buffer that a
//! component made it in: frames to `device` are aggregates of headers and pieces of such buffers. Copies
//! inside of smoltcp are counted, and printed.

use crate::component::Ends;
use crate::lane::{Ended, In, Out};
use crate::reply::body;
use crate::stage::{To, nothing};
use crate::word::Word;
use anyhow::{Context, Result};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tranship::mbuf::{Chain, ClusterSize, Mbufs};
use tranship::{Body, Message, Pool};
use tranship_netpath::forward::Address;
use tranship_netpath::link::Link;
use tranship_netpath::tap::{Offload, VNET_HEADER};
pub use tranship_netpath::tcp::Options;
use tranship_netpath::tcp::{self, Event, Kind, Note, Tcp};

/// Messages that are taken together.
const BATCH: usize = 64;
/// Time after which a full channel is looked at again.
const FULL: Duration = Duration::from_millis(1);
/// Time between two lines about copies.
const PRINT: Duration = Duration::from_secs(1);

/// Returns the addresses of a host, with a hardware address of its own choice.
#[must_use]
pub fn address(ip: Ipv4Addr) -> Address {
    let [a, b, c, d] = ip.octets();
    Address {
        // Locally administered.
        ethernet: [2, 0, a, b, c, d],
        ip: ip.octets(),
    }
}

/// Runs the component `tcpip`, until it is stopped.
///
/// # Errors
/// Those of [`Ends::connect`]; a missing channel.
pub fn run(options: Options) -> Result<()> {
    let ends = Ends::connect(To::Tcpip)?;
    let mbufs = Mbufs::new()?;
    let channel = Channel {
        pool: ends.pool.clone(),
        mbufs: mbufs.clone(),
        come: RefCell::default(),
        gone: RefCell::default(),
        room: Cell::new(0),
    };
    let tcp = Tcp::new(channel, mbufs.clone(), options);
    let place = |found: Option<usize>, what: &str| {
        found.with_context(|| format!("component `tcpip` has no channel {what}"))
    };
    let from = |from| ends.ins.iter().position(|end: &In| end.from == from);
    let to = |to| ends.outs.iter().position(|out: &Out| out.to == to);
    let mut running = Running {
        device: (
            place(from(To::Device), "device-tcpip")?,
            place(to(To::Device), "tcpip-device")?,
        ),
        front: (
            place(from(To::Front), "front-tcpip")?,
            place(to(To::Front), "tcpip-front")?,
        ),
        ends,
        tcp,
        mbufs,
        front_is_there: false,
        got: Vec::new(),
        printed: (Instant::now(), String::new()),
    };
    serve(&mut running)
}

fn serve(running: &mut Running) -> ! {
    let mut worked = Instant::now();
    loop {
        let now = Instant::now();
        running.ends.turn_at_times(now);
        if running.work() {
            worked = now;
            continue;
        }
        running.print(now);
        let most = running.idle();
        running.ends.rest(worked, most, None);
    }
}

/// The component as it runs.
struct Running {
    ends: Ends,
    tcp: Tcp<Channel>,
    mbufs: Mbufs,
    /// Places of the ends from and to `device`, and `front`.
    device: (usize, usize),
    front: (usize, usize),
    /// A front has said hello, and its process has not ended.
    front_is_there: bool,
    got: Vec<Message>,
    /// When the last line about copies was printed, and the line.
    printed: (Instant, String),
}

impl Running {
    /// Does all that there is to do once. Says whether there was anything.
    fn work(&mut self) -> bool {
        let clock = tcp::Instant::now();
        // Deaths show by the next look: frames are lost then.
        let _ = self.ends.ins[self.device.0].take(&mut self.got, BATCH);
        let mut any = !self.got.is_empty();
        let room = self.ends.outs[self.device.1].room();
        let channel = self.tcp.link();
        channel.room.set(room);
        channel.come.borrow_mut().extend(self.got.drain(..));
        self.tcp.receive(clock);
        let ended = self.ends.ins[self.front.0].take(&mut self.got, BATCH) == Err(Ended);
        any |= !self.got.is_empty();
        for message in std::mem::take(&mut self.got) {
            if let Some(note) = Note::read(message.word) {
                self.note(note, message, clock);
            }
        }
        if ended {
            // No process knows its connections now.
            self.front_is_there = false;
            self.tcp.reset(clock);
        }
        any |= self.tell();
        self.tcp.send_frames(clock);
        let gone = self.tcp.link().gone.take();
        any |= !gone.is_empty();
        let gone = gone.into_iter().map(|frame| (Word(0), frame));
        self.ends.outs[self.device.1].send(&self.ends.pool, gone, |_, _| {});
        any
    }

    /// Handles a message of the front.
    fn note(&mut self, note: Note, message: Message, clock: tcp::Instant) {
        match note.kind {
            Kind::Hello => {
                // A front that says it again has lost its connections.
                if std::mem::replace(&mut self.front_is_there, true) {
                    self.tcp.reset(clock);
                }
            }
            Kind::Data => match self.mbufs.receive(message) {
                Ok(bytes) if bytes.len() == note.bytes => self.tcp.send(note.id, bytes),
                // Without its bytes the stream cannot go on.
                _ => self.tcp.cut(note.id),
            },
            Kind::Taken => self.tcp.taken(note.id, note.bytes),
            Kind::Ended => self.tcp.finish(note.id),
            Kind::Closed => self.tcp.close(note.id, clock),
            Kind::Opened => {}
        }
    }

    /// Tells the front the news. Says whether there were any.
    fn tell(&mut self) -> bool {
        let out = &mut self.ends.outs[self.front.1];
        if !self.front_is_there || !out.is_there() {
            return false;
        }
        let news = self.tcp.news(out.room().min(BATCH));
        let any = !news.is_empty();
        let pool = &self.ends.pool;
        let mut lost = Vec::new();
        let said = news.into_iter().filter_map(|event| {
            let (id, kind, bytes, body) = match event {
                // Bytes behind lost bytes are lost, too.
                Event::Data(id, _) | Event::Ended(id) if lost.contains(&id) => return None,
                Event::Opened(id, room) => (id, Kind::Opened, room, nothing()),
                Event::Data(id, bytes) => match bytes.to_aggregate(pool) {
                    Ok((all, _)) => {
                        let pieces = all.pieces().iter().cloned();
                        (id, Kind::Data, bytes.len(), body(pool, pieces))
                    }
                    // The bytes are lost, and so is the connection.
                    Err(_) => {
                        lost.push(id);
                        return None;
                    }
                },
                Event::Acknowledged(id, bytes) => (id, Kind::Taken, bytes, nothing()),
                Event::Ended(id) => (id, Kind::Ended, 0, nothing()),
                Event::Closed(id) => (id, Kind::Closed, 0, nothing()),
            };
            Some((Word(Note::new(id, kind, bytes).word()), body))
        });
        let said: Vec<_> = said.collect();
        out.send(pool, said.into_iter(), |word, _| {
            lost.extend(Note::read(word.0).map(|note| note.id));
        });
        lost.into_iter().for_each(|id| self.tcp.cut(id));
        any
    }

    /// Returns how long there is nothing to do, unless a message comes.
    fn idle(&mut self) -> Option<Duration> {
        let is_full = self.tcp.link().room.get() == 0 || self.ends.outs[self.front.1].room() == 0;
        let delay = self.tcp.delay(tcp::Instant::now());
        let delay = delay.map(|delay| Duration::from_micros(delay.total_micros()));
        match is_full {
            true => Some(FULL),
            false => delay,
        }
    }

    /// Prints the counters of copies, if they have changed.
    fn print(&mut self, now: Instant) {
        let (printed, last) = &mut self.printed;
        if now.duration_since(*printed) < PRINT {
            return;
        }
        let (copies, frames) = (self.tcp.copies(), self.tcp.frames());
        let moved = copies.received + copies.disordered;
        let line = format!(
            "tcpip: received {} B by reference and {} B in disorder, sent {} B by reference; \
             copies: {} B of frames and {moved} B into smoltcp, {} B out of it, {} B of headers; \
             {} frames lost",
            copies.received,
            copies.disordered,
            copies.sent,
            frames.linearised_bytes,
            copies.sent,
            copies.headers,
            frames.dropped,
        );
        *printed = now;
        if line != *last {
            eprintln!("{line}");
            *last = line;
        }
    }
}

/// The channels from and to `device`, as a link.
struct Channel {
    pool: Pool,
    mbufs: Mbufs,
    come: RefCell<VecDeque<Message>>,
    gone: RefCell<Vec<Body>>,
    /// Frames that `device` has room for.
    room: Cell<usize>,
}

impl Link for Channel {
    fn receive(&self, mbufs: &Mbufs, _: ClusterSize, room: usize) -> io::Result<Option<Chain>> {
        let mut come = self.come.borrow_mut();
        while let Some(message) = come.pop_front() {
            // Without an mbuf it is lost. One that is too long names a buffer many times.
            if let Ok(frame) = mbufs.receive(message)
                && frame.len() <= room
            {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    fn send(&self, frame: &Chain, vnet: &[u8; VNET_HEADER]) -> io::Result<bool> {
        let whole = || {
            let mut whole = self.mbufs.devget(vnet, 0)?;
            whole.cat(frame.copypacket()?);
            whole.to_aggregate(&self.pool)
        };
        // Without memory it is lost.
        let Ok((whole, _)) = whole() else {
            return Ok(false);
        };
        let pieces = whole.pieces().iter().cloned();
        self.gone.borrow_mut().push(body(&self.pool, pieces));
        Ok(true)
    }

    fn offload(&self) -> Offload {
        Offload::Segments
    }

    fn has_room(&self) -> bool {
        self.gone.borrow().len() < self.room.get()
    }
}
