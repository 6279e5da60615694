//! A domain of a world, with all that it has: it does its orders, and reports what it sees.

mod transfers;

use crate::mapped::mapped;
use crate::order::{Answer, Here, Order, Said};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tranship_core::error::{Limit, Shortage};
use tranship_core::{
    Aggregate, AggregateMut, Body, Buffer, BufferMut, ChannelOptions, Domain, DomainId, Error,
    ErrorKind, Listener, Message, Pool, PoolOptions, Receiver, Released, Sender,
};
use tranship_model::{BufferId, Carries, ChannelId, Op, Outcome, PoolId, Trust, Way};
use tranship_testkit::probe::{Access, Probe};

/// Every buffer is one chunk of its pool.
pub const BUFFER: usize = 64 << 10;
/// Bytes that are checked at each end of a buffer.
const PART: usize = 32;
/// Time after which a message that has not come counts as never coming.
const LONG: Duration = Duration::from_secs(300);

enum Held {
    Sole(BufferMut),
    /// Handles; a buffer that was given to this domain is the first of them.
    Shared(Vec<Buffer>),
}

/// A pool of its own.
struct Own {
    pool: Pool,
    bytes: usize,
    /// Address range of the pool, if all of its users may write it and the process has no other domain.
    all_write: Option<Range<usize>>,
}

/// Address range for pools that all of their users may write, each in a part of it. Nothing else lies there.
const ALL_WRITE: Range<usize> = 1 << 32..2 << 32;
/// Bytes of each part.
const ALL_WRITE_PART: usize = 4 << 20;

pub struct Party {
    domain: Arc<Domain>,
    port: Option<SocketAddr>,
    /// The domain is a process of its own.
    alone: bool,
    way: Way,
    pools: BTreeMap<PoolId, Own>,
    /// Number of pools made that all of their users may write.
    all_write: usize,
    copies: Option<Pool>,
    lists: Option<Pool>,
    listeners: BTreeMap<ChannelId, Listener<Receiver>>,
    vetoes: BTreeMap<ChannelId, Arc<AtomicBool>>,
    senders: BTreeMap<ChannelId, Sender>,
    receivers: BTreeMap<ChannelId, Receiver>,
    held: BTreeMap<BufferId, Held>,
    probe: Probe,
}

/// Looks again until it is so.
fn until<T>(mut so: impl FnMut() -> Option<T>) -> Option<T> {
    let since = Instant::now();
    loop {
        match so() {
            None if since.elapsed() < LONG => std::thread::yield_now(),
            done => return done,
        }
    }
}

fn says(error: &Error) -> Said {
    Said::Error(error.kind().number(), error.to_string())
}

fn wrong(what: &str) -> Said {
    Said::Error(0, what.to_owned())
}

impl Party {
    pub fn new(domain: Arc<Domain>, port: Option<SocketAddr>, alone: bool) -> Party {
        Party {
            domain,
            port,
            alone,
            way: Way::Shared,
            pools: BTreeMap::new(),
            all_write: 0,
            copies: None,
            lists: None,
            listeners: BTreeMap::new(),
            vetoes: BTreeMap::new(),
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            held: BTreeMap::new(),
            probe: Probe::new(),
        }
    }

    pub fn obey(&mut self, order: Order) -> Result<Answer, String> {
        let mut answer = Answer {
            domain: self.domain.id().0,
            listens: self.port,
            ..Answer::default()
        };
        let done = match order {
            Order::Begin(way) => self.begin(way),
            Order::Listen {
                channel,
                address,
                lines,
                levels,
            } => self.listen(channel, &address, lines, levels),
            Order::Accept(channel) => self.accept(channel),
            Order::Open {
                channel,
                address,
                lines,
            } => self.open(channel, &address, lines),
            Order::NewPool {
                seals,
                pool,
                trust,
                slots,
                forward,
            } => {
                let made = self.new_pool(pool, (trust, seals), slots, &forward);
                made.map(|number| {
                    answer.pool = number;
                    answer.files = self.written_by_all();
                })
            }
            Order::Do(op, expected) => {
                answer.said = Some(self.act(&op, &expected).unwrap_or_else(|said| said));
                // Nothing else makes pools grow. Not all that they get is used then: memory that was waited for may
                // have been found elsewhere.
                if matches!(op, Op::Alloc { .. }) {
                    answer.files = self.written_by_all();
                }
                Ok(())
            }
            Order::Remove {
                channel,
                pool,
                expected,
            } => {
                let said = self.remove(channel, tranship_core::PoolId(pool), &expected);
                answer.said = Some(said.unwrap_or_else(|said| said));
                Ok(())
            }
            Order::Look(addresses) => {
                answer.here = self.here();
                let touch = |at: &usize| self.probe.touch(*at) as u8;
                answer.touched = addresses.iter().map(touch).collect();
                Ok(())
            }
            Order::LetGo => {
                self.let_go();
                Ok(())
            }
            Order::Whole => self.whole().map(|files| answer.files = files),
        };
        done.map_err(|error| error.to_string())?;
        Ok(answer)
    }

    fn let_go(&mut self) {
        self.held.clear();
        self.senders.clear();
        self.receivers.clear();
        self.listeners.clear();
    }

    fn begin(&mut self, way: Way) -> Result<(), Error> {
        self.let_go();
        self.pools.clear();
        self.way = way;
        let make = |name: &str| {
            let options = PoolOptions::new(64 * BUFFER as u64).chunk_bytes(BUFFER as u64);
            // A list has to be stored at once.
            self.domain
                .create_pool(options.name(name).preallocate(4 * BUFFER as u64))
        };
        (self.copies, self.lists) = (Some(make("copies")?), Some(make("lists")?));
        Ok(())
    }

    fn listen(
        &mut self,
        channel: ChannelId,
        address: &str,
        lines: u8,
        levels: Vec<Trust>,
    ) -> Result<(), Error> {
        let veto = Arc::new(AtomicBool::new(false));
        self.vetoes.insert(channel, Arc::clone(&veto));
        let copies = self.copies.as_ref().map(Pool::id);
        let options = ChannelOptions::new()
            .lines(u32::from(lines))
            .accept_trust(levels)
            .snapshots(copies.ok_or(ErrorKind::BadArgument)?)
            .accept_pools(move |_| !veto.load(Ordering::Relaxed));
        let listener = self.domain.listen_with::<Receiver>(address, options)?;
        self.listeners.insert(channel, listener);
        Ok(())
    }

    fn accept(&mut self, channel: ChannelId) -> Result<(), Error> {
        let listener = self
            .listeners
            .remove(&channel)
            .ok_or(ErrorKind::BadArgument)?;
        let receiver = listener.accept_timeout(LONG)?;
        self.receivers.insert(channel, receiver);
        Ok(())
    }

    fn open(&mut self, channel: ChannelId, address: &str, lines: u8) -> Result<(), Error> {
        let options = ChannelOptions::new().lines(u32::from(lines)).timeout(LONG);
        let sender = self.domain.open_with::<Sender>(address, options)?;
        self.senders.insert(channel, sender);
        Ok(())
    }

    fn new_pool(
        &mut self,
        pool: PoolId,
        (trust, seals): (Trust, bool),
        slots: u8,
        forward: &[u32],
    ) -> Result<u32, Error> {
        let bytes = usize::from(slots) * BUFFER;
        let options = PoolOptions::new(bytes as u64).chunk_bytes(BUFFER as u64);
        let options = options.seal_from(if seals { 1 } else { u64::MAX });
        // Every other pool has all its memory at once, also memory in which no buffer has lain yet.
        let begins = if pool % 2 == 1 && !seals { bytes } else { 0 };
        let mut options = options.preallocate(begins as u64).trust(trust);
        let all_write = (self.alone && trust.all_write()).then(|| {
            let at = self.all_write * ALL_WRITE_PART % ALL_WRITE.len();
            self.all_write += 1;
            ALL_WRITE.start + at..ALL_WRITE.start + at + ALL_WRITE_PART
        });
        if let Some(addresses) = &all_write {
            options = options.address_range(addresses.clone());
        }
        let made = self.domain.create_pool(options)?;
        for domain in forward.iter().filter(|id| **id != self.domain.id().0) {
            made.allow_forward(DomainId(*domain))?;
        }
        let own = Own {
            pool: made,
            bytes,
            all_write,
        };
        let number = own.pool.id().0;
        self.pools.insert(pool, own);
        Ok(number)
    }

    /// Returns the memory of its pools, used or not, that all of their users may write.
    fn written_by_all(&self) -> Vec<(String, u64)> {
        let of = |own: &Own| own.all_write.clone();
        let ranges: Vec<Range<usize>> = self.pools.values().filter_map(of).collect();
        if ranges.is_empty() {
            return Vec::new();
        }
        let mut maps = mapped("/proc/self/maps");
        maps.retain(|map| ranges.iter().any(|range| range.contains(&map.range.start)));
        maps.into_iter().map(|map| map.file).collect()
    }

    /// Checks that all of each pool can be allocated; returns the memory of them that all of their users may write.
    fn whole(&mut self) -> Result<Vec<(String, u64)>, Error> {
        let mut files = Vec::new();
        for own in self.pools.values() {
            let _all = own.pool.alloc_timeout(own.bytes, LONG)?;
            files.append(&mut self.written_by_all());
        }
        Ok(files)
    }

    fn here(&self) -> Vec<Here> {
        let one = |(id, held): (&BufferId, &Held)| {
            let (view, shared, writable, real) = match held {
                Held::Sole(buf) => (buf.view(), 0, true, buf.id()),
                Held::Shared(all) => (all[0].view(), all.len(), false, all[0].id()),
            };
            let part = |from: usize| view.sub(from..from + PART).map(|part| part.to_vec());
            let bytes = [part(0), part(BUFFER - PART)].map(|part| part.unwrap_or_default());
            let data = bytes[0].first().copied();
            let same = bytes.iter().flatten().all(|byte| Some(*byte) == data);
            let at = view.as_ptr().expose_provenance();
            Here {
                id: *id,
                shared,
                writable,
                data: data.filter(|_| same),
                access: self.probe.touch(at) as u8,
                at,
                real: format!("{real:?}"),
            }
        };
        self.held.iter().map(one).collect()
    }

    fn sender(&mut self, channel: ChannelId) -> Result<&mut Sender, Said> {
        let found = self.senders.get_mut(&channel);
        found.ok_or_else(|| wrong("no such sender"))
    }

    fn receiver(&mut self, channel: ChannelId) -> Result<&mut Receiver, Said> {
        let found = self.receivers.get_mut(&channel);
        found.ok_or_else(|| wrong("no such receiver"))
    }

    fn handle(&self, buffer: BufferId) -> Result<Buffer, Said> {
        match self.held.get(&buffer) {
            Some(Held::Shared(all)) => Ok(all[0].clone()),
            _ => Err(wrong("no shared buffer")),
        }
    }

    fn take_sole(&mut self, buffer: BufferId) -> Result<BufferMut, Said> {
        match self.held.remove(&buffer) {
            Some(Held::Sole(buf)) => Ok(buf),
            Some(held) => {
                self.held.insert(buffer, held);
                Err(wrong("not exclusive"))
            }
            None => Err(wrong("not here")),
        }
    }

    fn act(&mut self, op: &Op, expected: &Result<Outcome, u16>) -> Result<Said, Said> {
        match *op {
            Op::Alloc { pool, data, .. } => return self.alloc(pool, data, expected),
            Op::Write { buffer, data, .. } => {
                let Some(Held::Sole(buf)) = self.held.get_mut(&buffer) else {
                    return Err(wrong("not exclusive"));
                };
                write(buf, data).map_err(|error| says(&error))?;
            }
            Op::Freeze { buffer, .. } => {
                let buf = self.take_sole(buffer)?.freeze();
                self.held.insert(buffer, Held::Shared(vec![buf]));
            }
            Op::Clone { buffer, .. } => {
                let more = self.handle(buffer)?;
                self.keep_shared(buffer, more);
            }
            Op::Exclusive { buffer, .. } => return self.exclusive(buffer, expected.is_ok()),
            Op::Drop { buffer, .. } => {
                let gone = self.take_shared(buffer).map(drop);
                let gone = gone.or_else(|| self.held.remove(&buffer).map(drop));
                gone.ok_or_else(|| wrong("not here"))?;
            }
            Op::Close { channel, .. } => {
                drop((
                    self.senders.remove(&channel),
                    self.receivers.remove(&channel),
                ));
            }
            Op::Veto { channel, veto, .. } => self.vetoes[&channel].store(veto, Ordering::Relaxed),
            Op::Assign { channel, pool, .. } => {
                let to = self.senders.get_mut(&channel);
                let to = to.ok_or_else(|| wrong("no such sender"))?;
                let assigned = to.assign_timeout(&self.pools[&pool].pool, LONG);
                assigned.map_err(|error| says(&error))?;
            }
            Op::Deliver { channel, .. } => return self.deliver(channel, expected),
            Op::TakeBack { channel, .. } => return self.take_back(channel, expected),
            Op::Pass {
                channel,
                buffer,
                word,
                ..
            } => return self.pass(channel, buffer, word, expected),
            Op::Inline { channel, .. }
            | Op::Send { channel, .. }
            | Op::Move { channel, .. }
            | Op::SendAll { channel, .. }
            | Op::MoveAll { channel, .. } => return self.send(op, channel, expected),
            Op::Release {
                channel,
                buffer,
                word,
                ..
            } => return self.release(channel, buffer, word, expected),
            Op::Connect { .. } | Op::NewPool { .. } | Op::Remove { .. } | Op::Kill { .. } => {
                return Err(wrong("not done here"));
            }
        }
        Ok(Said::Done)
    }

    /// Takes the handle that goes first; what was given to this domain goes last.
    fn take_shared(&mut self, buffer: BufferId) -> Option<Buffer> {
        let Some(Held::Shared(all)) = self.held.get_mut(&buffer) else {
            return None;
        };
        let one = all.pop();
        if all.is_empty() {
            self.held.remove(&buffer);
        }
        one
    }

    fn keep_shared(&mut self, buffer: BufferId, more: Buffer) {
        match self.held.get_mut(&buffer) {
            Some(Held::Shared(all)) => all.push(more),
            _ => drop(self.held.insert(buffer, Held::Shared(vec![more]))),
        }
    }

    fn alloc(
        &mut self,
        pool: PoolId,
        data: u8,
        expected: &Result<Outcome, u16>,
    ) -> Result<Said, Said> {
        let pool = &self.pools[&pool].pool;
        let late = |error: &Error| {
            let shortage = error.find::<Shortage>();
            shortage.is_some_and(|shortage| shortage.limit == Limit::Late)
        };
        let got = match expected {
            Ok(_) => pool.alloc_timeout(BUFFER, LONG),
            Err(_) => {
                until(|| Some(pool.try_alloc(BUFFER)).filter(|got| !got.as_ref().is_err_and(late)))
                    .ok_or_else(|| wrong("the manager does not answer"))?
            }
        };
        let mut buf = got.map_err(|error| says(&error))?;
        write(&mut buf, data).map_err(|error| says(&error))?;
        match expected {
            Ok(Outcome::Buffer(id)) => {
                self.held.insert(*id, Held::Sole(buf));
                Ok(Said::Done)
            }
            _ => Err(wrong("there was memory")),
        }
    }

    /// Takes a buffer for itself. A carried buffer stays in use a while longer.
    fn exclusive(&mut self, buffer: BufferId, possible: bool) -> Result<Said, Said> {
        let Some(Held::Shared(mut all)) = self.held.remove(&buffer) else {
            return Err(wrong("not shared"));
        };
        let one = |all: &mut Vec<Buffer>| match all.pop().map(Buffer::try_into_mut) {
            Some(Ok(buf)) => Some(buf),
            Some(Err(buf)) => {
                all.push(buf);
                None
            }
            None => None,
        };
        let done = match possible {
            true => until(|| one(&mut all)),
            false => one(&mut all),
        };
        match done {
            Some(buf) => {
                drop(self.held.insert(buffer, Held::Sole(buf)));
                Ok(Said::Done)
            }
            None => {
                self.held.insert(buffer, Held::Shared(all));
                Err(says(&ErrorKind::BufferState.into()))
            }
        }
    }
}

fn write(buf: &mut BufferMut, data: u8) -> Result<(), Error> {
    buf.write(0, &[data; PART])?;
    buf.write(BUFFER - PART, &[data; PART])
}

/// Returns the access that the probe reports by that number.
pub fn access(number: u8) -> Access {
    let all = [Access::None, Access::Read, Access::ReadWrite];
    all[usize::from(number).min(2)]
}
