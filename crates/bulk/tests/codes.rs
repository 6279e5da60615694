//! Every error code is seen on every backend where it has a meaning. One test alone, because it uses up what the process
//! may have.

#[path = "suite/prompt.rs"]
mod prompt;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tranship_bulk::Shm;
use tranship_bulk::raw::{Event, Raw};
use tranship_bulk::{
    BufferState, ChannelState, Completion, Constraints, Direction, Error, Kind, Role, Trust, Wish,
};
use tranship_sys::{limits, memfd};
use tranship_transport::{
    Backend, Bytes, Copying, Frame, Listener, Local, Place, RecvError, Transport, Wait,
};

const PAGE: u64 = 4096;
/// Smaller buffers are mappings of their own from the beginning, and need no other later.
const LARGE: u64 = 2 << 20;

/// A backend whose connecting end says nonsense when it is told to.
#[derive(Debug)]
struct Spoilt(Arc<dyn Backend>, Arc<AtomicBool>);

#[derive(Debug)]
struct End(Box<dyn Transport>, Arc<AtomicBool>);

impl Backend for Spoilt {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        self.0.listen(name)
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        Ok(Box::new(End(self.0.connect(name)?, Arc::clone(&self.1))))
    }

    fn bytes(&self) -> Bytes {
        self.0.bytes()
    }
}

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        let mut frame = frame.clone();
        if self.1.load(Ordering::Relaxed) {
            frame.bytes.iter_mut().for_each(|byte| *byte = 0xff);
        }
        self.0.send(&frame)
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        self.0.recv()
    }

    fn brings(&self) -> usize {
        self.0.brings()
    }

    fn fill(&mut self, place: &Place) -> Result<bool, RecvError> {
        self.0.fill(place)
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        self.0.done(numbers);
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.0.waiter()
    }
}

struct Stage {
    backend: Arc<dyn Backend>,
    spoilt: Arc<AtomicBool>,
    seen: Mutex<BTreeSet<Kind>>,
}

struct Pair {
    a: Raw,
    b: Raw,
    source: u64,
    sink: u64,
}

fn wish(trust: Trust) -> Wish {
    Wish {
        role: Role::Generic,
        trust,
        constraints: Constraints::default(),
    }
}

fn address() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test:codes-{}-{count}", std::process::id())
}

impl Stage {
    fn raw(&self) -> Raw {
        let raw = Raw::new();
        let spoilt = Spoilt(Arc::clone(&self.backend), Arc::clone(&self.spoilt));
        raw.add_backend("test", Arc::new(spoilt));
        raw
    }

    /// It is this one, and is noted.
    #[track_caller]
    fn see<T>(&self, kind: Kind, result: Result<T, Error>) {
        assert_eq!(result.map(drop), Err(kind.into()));
        self.seen.lock().expect("seen").insert(kind);
    }

    fn connect(&self, a: &Raw, b: &Raw, trust: Trust) -> (u64, u64) {
        let address = address();
        let source = a
            .create(&address, Direction::Source, wish(trust), 8, None)
            .expect("create");
        let (sink, asked) = b.bind(&address, wish(trust), None).expect("bind");
        while asked.result().is_none() {
            let _ = (a.turn(source), b.turn(sink));
        }
        (source, sink)
    }

    fn pair(&self, trust: Trust) -> Pair {
        let (a, b) = (self.raw(), self.raw());
        let (source, sink) = self.connect(&a, &b, trust);
        Pair { a, b, source, sink }
    }
}

impl Pair {
    fn ended(&self, done: &Completion) -> Result<(), Error> {
        loop {
            let _ = (self.a.turn(self.source), self.b.turn(self.sink));
            if let Some(result) = done.result() {
                return result;
            }
        }
    }

    fn settle(&self) {
        for _ in 0..64 {
            let _ = (self.a.turn(self.source), self.b.turn(self.sink));
        }
    }

    fn pool(&self, buffers: u32, forward: bool) -> u64 {
        self.pool_of(buffers, PAGE, forward)
    }

    fn pool_of(&self, buffers: u32, bytes: u64, forward: bool) -> u64 {
        let pool = self.a.new_pool(buffers, bytes, forward).expect("pool");
        let asked = self.a.assign(self.source, pool).expect("assign");
        assert_eq!(self.ended(&asked), Ok(()));
        pool
    }

    fn own(&self, pool: u64) -> (u64, u32) {
        (pool, self.a.alloc(pool).expect("alloc"))
    }
}

#[test]
fn every_code_where_it_has_a_meaning() {
    let most = limits::max_mappings();
    if most > 1 << 17 {
        return tranship_testkit::skipped(format!("a process may have {most} mappings"));
    }
    let manager = tranship_core::Domain::embedded().expect("a manager");
    let shm = Shm::over(&manager).expect("joined");
    let all: [(&str, Arc<dyn Backend>, &[Kind]); 5] = [
        // Names of a process take no descriptor, and ask nobody.
        (
            "local",
            Arc::new(Local),
            &[Kind::ChannelCreate, Kind::System],
        ),
        // The manager is in this process, which is therefore not starved while it is asked. (`Limit` is decided before anything
        // is sent, over whatever.)
        (
            "shm",
            Arc::new(shm),
            &[Kind::ChannelCreate, Kind::System, Kind::Limit],
        ),
        ("copy", Arc::new(Copying), &[Kind::Limit]),
        // All names of a port share its descriptors.
        (
            "tcp+plain",
            Arc::new(prompt::Prompt::plain()),
            &[Kind::ChannelCreate, Kind::System, Kind::Limit],
        ),
        (
            "tcp",
            Arc::new(prompt::Prompt::tls()),
            &[Kind::ChannelCreate, Kind::System, Kind::Limit],
        ),
    ];
    // See `membership.rs` for what the manager says, which only `shm` asks.
    let everybodys = [
        Kind::System,
        Kind::OutOfMemory,
        Kind::Full,
        Kind::PeerGone,
        Kind::PeerViolation,
        Kind::BadArgument,
        Kind::Limit,
    ];
    let ours = Kind::ALL.iter().copied();
    let ours = ours.filter(|kind| (200..300).contains(&kind.number()));
    let kinds = ours.chain(everybodys);
    for (name, backend, without) in all {
        let stage = Stage {
            backend,
            spoilt: Arc::default(),
            seen: Mutex::default(),
        };
        agreements(&stage);
        buffers(&stage);
        others(&stage);
        if !without.contains(&Kind::Limit) {
            too_many_buffers(&stage);
        }
        too_many_mappings(&stage);
        if name == "shm" {
            shown_later(&stage);
        }
        if !without.contains(&Kind::System) {
            too_many_descriptors(&stage);
        }
        let seen = stage.seen.into_inner().expect("seen");
        let missing = kinds
            .clone()
            .filter(|kind| !seen.contains(kind) && !without.contains(kind));
        assert_eq!(missing.collect::<Vec<_>>(), [], "{name}");
    }
}

/// Channels and pools.
fn agreements(stage: &Stage) {
    let p = stage.pair(Trust::Half);
    stage.see(
        Kind::InvalidEndpoint,
        p.a.bind(&address(), wish(Trust::Full), None),
    );
    let address = address();
    let wide = 4096;
    let refused =
        p.a.create(&address, Direction::Source, wish(Trust::Full), wide, None);
    stage.see(Kind::BadArgument, refused);
    let refuses = Box::new(|_: &_| Err(Kind::PoolVeto.into()));
    let end =
        p.a.create(&address, Direction::Source, wish(Trust::Full), 8, None)
            .expect("create");
    let (other, asked) = p.b.bind(&address, wish(Trust::None), None).expect("bind");
    while asked.result().is_none() {
        let _ = (p.a.turn(end), p.b.turn(other));
    }
    stage.see(Kind::ChannelBind, asked.result().expect("ended"));
    let pool = p.pool(1, false);
    stage.see(Kind::ChannelState, p.a.assign(end, pool));
    let (other, asked) =
        p.b.bind(&address, wish(Trust::Full), Some(refuses))
            .expect("bind");
    while asked.result().is_none() {
        let _ = (p.a.turn(end), p.b.turn(other));
    }
    assert_eq!(asked.result(), Some(Ok(())));
    stage.see(Kind::ChannelTrust, p.a.assign(end, pool));
    let unwanted = p.a.new_pool(1, PAGE, false).expect("pool");
    let asked = p.a.assign(end, unwanted).expect("assign");
    while asked.result().is_none() {
        let _ = (p.a.turn(end), p.b.turn(other));
    }
    stage.see(Kind::PoolVeto, asked.result().expect("ended"));
    stage.see(Kind::PoolInvalid, p.a.assign(p.source, 77));
    stage.see(Kind::PoolAlreadyAssigned, p.a.assign(p.source, pool));
    stage.see(Kind::PoolNotAssigned, p.a.remove(p.source, unwanted));
    stage.see(Kind::PoolInUse, p.a.destroy_pool(pool));
    let (onward, _) = stage.connect(&p.b, &stage.raw(), Trust::Half);
    stage.see(Kind::NotForwardable, p.b.assign(onward, pool));
    stage.see(Kind::AllocSize, p.a.new_pool(1, 5, false));
    stage.see(Kind::AllocCount, p.a.new_pool(0, PAGE, false));
    stage.see(Kind::OutOfMemory, p.a.new_pool(1, 1 << 60, false));
}

fn buffers(stage: &Stage) {
    let p = stage.pair(Trust::None);
    let pool = p.pool(2, true);
    let (own, other) = (p.own(pool), p.own(pool));
    stage.see(Kind::ChannelDirection, p.a.pass(p.source, own, &[]));
    stage.see(Kind::BufferInvalid, p.a.copy(p.source, (pool, 2), &[]));
    stage.see(Kind::BufferNotOwned, p.b.pass(p.sink, own, &[]));
    stage.see(Kind::BufferNotACopy, p.b.release(p.sink, own));
    p.a.copy(p.source, own, &[]).expect("copy");
    stage.see(Kind::BufferState, p.a.move_(p.source, own, &[]));
    p.settle();
    // What was copied on is released last.
    let c = stage.raw();
    let (onward, end) = stage.connect(&p.b, &c, Trust::None);
    let asked = p.b.assign(onward, pool).expect("assign");
    while asked.result().is_none() {
        let _ = (p.b.turn(onward), c.turn(end));
    }
    p.b.copy(onward, own, &[]).expect("copy on");
    stage.see(Kind::BufferRefcount, p.b.release(p.sink, own));
    let full = loop {
        match p.a.copy(p.source, other, &[]) {
            Ok(_) => {}
            Err(code) => break code,
        }
    };
    stage.see::<()>(Kind::Full, Err(full));
}

fn others(stage: &Stage) {
    let p = stage.pair(Trust::Full);
    let asked = p.a.close(p.source).expect("close");
    stage.spoilt.store(true, Ordering::Relaxed);
    stage.see(Kind::PeerViolation, p.ended(&asked));
    stage.spoilt.store(false, Ordering::Relaxed);
    let p = stage.pair(Trust::Full);
    let pool = p.pool(1, false);
    let late = p.a.move_(p.source, p.own(pool), &[]).expect("move");
    drop(p.b);
    while late.result().is_none() {
        let _ = p.a.turn(p.source);
    }
    stage.see(Kind::PeerGone, late.result().expect("ended"));
}

/// As many mappings as the process may have, nearly.
struct Crowd(Vec<*mut libc::c_void>);

impl Crowd {
    fn new(leave: usize) -> Crowd {
        let mut all = Vec::with_capacity(1 << 20);
        let fd = memfd::create("crowd").expect("memfd");
        memfd::fallocate(&fd, PAGE).expect("fallocate");
        loop {
            // SAFETY: a new mapping where the kernel likes; each maps the same page, so that no two become one.
            let at = unsafe {
                let (null, len) = (std::ptr::null_mut(), 4096);
                let fd = std::os::fd::AsRawFd::as_raw_fd(&fd);
                libc::mmap(null, len, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
            };
            if at == libc::MAP_FAILED || all.len() == all.capacity() {
                break;
            }
            all.push(at);
        }
        let mut crowd = Crowd(all);
        crowd.leave(leave);
        crowd
    }

    fn leave(&mut self, leave: usize) {
        for at in self.0.drain(self.0.len().saturating_sub(leave)..) {
            // SAFETY: our own, and nothing points there.
            unsafe { libc::munmap(at, 4096) };
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.leave(self.0.len());
    }
}

fn too_many_buffers(stage: &Stage) {
    let most = u32::try_from(limits::max_mappings()).unwrap_or(u32::MAX);
    let p = stage.pair(Trust::Half);
    let huge = p.a.new_pool(most / 4 * 3 + 1, PAGE, false).expect("pool");
    stage.see(Kind::Limit, p.a.assign(p.source, huge));
}

fn too_many_mappings(stage: &Stage) {
    let (p, shared) = (stage.pair(Trust::Half), stage.pair(Trust::Full));
    let pool = p.pool_of(3, LARGE, false);
    // The one in the middle splits a mapping in three.
    let [first, middle, _] = [0; 3].map(|_| p.own(pool));
    p.a.write(middle, 0, b"kept").expect("write");
    let fresh = shared.a.new_pool(1, PAGE, false).expect("pool");
    let crowd = Crowd::new(0);
    let refused = p.a.move_(p.source, middle, &[]).map(drop);
    let state = p.a.buffer_state(middle);
    let overwritten = p.a.full_copy(p.source, first, middle, &[]).map(drop);
    let asked = shared
        .a
        .assign(shared.source, fresh)
        .map(|asked| shared.ended(&asked));
    drop(crowd);
    stage.see(Kind::BufferMap, refused);
    stage.see(Kind::BufferMap, overwritten);
    let mut kept = [0; 4];
    p.a.read(middle, 0, &mut kept).expect("read");
    assert_eq!(&kept, b"kept");
    assert_eq!(state, Some(BufferState::ReadWrite));
    p.a.move_(p.source, middle, &[])
        .expect("there is room again");
    arrives_later(stage);
    // Where each end has its own memory it is that which cannot be made.
    match stage.backend.bytes() {
        Bytes::Shared => stage.see(Kind::PoolMap, asked.and_then(|ended| ended)),
        Bytes::Carried => {
            assert_eq!(asked, Ok(Err(Kind::OutOfMemory.into())));
            known_by_another_way(stage);
        }
    }
}

/// What cannot be taken for want of something here waits for it, and blames nobody.
fn arrives_later(stage: &Stage) {
    let p = stage.pair(Trust::Half);
    let pool = p.pool_of(3, LARGE, false);
    let [_, middle, _] = [0; 3].map(|_| p.own(pool));
    let settled = |wanted: fn(&Event) -> bool| {
        p.settle();
        let told: Vec<Event> = std::iter::from_fn(|| p.b.poll_event(p.sink)).collect();
        told.iter().any(wanted)
    };
    settled(|_| true);
    p.a.move_(p.source, middle, &[]).expect("move");
    let crowd = Crowd::new(0);
    let refused = [0; 3].map(|_| p.b.turn(p.sink));
    let (state, told) = (p.b.channel_state(p.sink), p.b.poll_event(p.sink));
    drop(crowd);
    assert_eq!(refused, [0; 3].map(|_| Err(Kind::BufferMap.into())));
    assert_eq!((state, told), (Some(ChannelState::Connected), None));
    assert_eq!(p.b.buffer_state(middle), Some(BufferState::Invalid));
    assert!(settled(|event| matches!(event, Event::Moved(..))));
}

/// As above, of descriptors that come with buffers.
fn shown_later(stage: &Stage) {
    let p = stage.pair(Trust::None);
    p.a.seal_from(0);
    let pool = p.pool(2, false);
    let (own, other) = (p.own(pool), p.own(pool));
    p.settle();
    while p.b.poll_event(p.sink).is_some() {}
    for buffer in [own, other] {
        p.a.write(buffer, 0, b"shown").expect("write");
        p.a.move_(p.source, buffer, &[]).expect("move");
    }
    let mut all = all_descriptors();
    let refused = [0; 3].map(|_| p.b.turn(p.sink));
    // One place is enough.
    all.truncate(all.len() - 1);
    let one = p.b.turn(p.sink);
    let next = p.b.turn(p.sink);
    let state = p.b.channel_state(p.sink);
    drop(all);
    assert_eq!(refused, [0; 3].map(|_| Err(Kind::Limit.into())));
    assert_eq!((one, next), (Ok(true), Err(Kind::Limit.into())));
    assert_eq!(state, Some(ChannelState::Connected));
    p.settle();
    for buffer in [own, other] {
        let mut bytes = [0; 5];
        p.b.read(buffer, 0, &mut bytes).expect("read");
        assert_eq!(&bytes, b"shown");
    }
}

/// A pool that another domain alone can write is not brought over a carrier of bytes.
fn known_by_another_way(stage: &Stage) {
    let p = stage.pair(Trust::Producer);
    for raw in [&p.a, &p.b] {
        raw.add_backend("shown", Arc::new(Local));
    }
    let address = format!("shown:codes-{}", std::process::id());
    let out =
        p.a.create(&address, Direction::Source, wish(Trust::Producer), 8, None)
            .expect("create");
    let (inward, _) =
        p.b.bind(&address, wish(Trust::Producer), None)
            .expect("bind");
    let turn = || {
        for _ in 0..64 {
            let _ = (p.a.turn(out), p.b.turn(inward));
        }
    };
    turn();
    let pool = p.a.new_pool(1, PAGE, false).expect("pool");
    let asked = p.a.assign(out, pool).expect("assign");
    turn();
    assert_eq!(asked.result(), Some(Ok(())));
    let asked = p.a.assign(p.source, pool).expect("assign");
    stage.see(Kind::PoolMap, p.ended(&asked));
}

fn too_many_descriptors(stage: &Stage) {
    let a = stage.raw();
    let waits = address();
    let end = a
        .create(&waits, Direction::Source, wish(Trust::Full), 8, None)
        .expect("create");
    let b = stage.raw();
    let (_other, _) = b.bind(&waits, wish(Trust::Full), None).expect("bind");
    let all = all_descriptors();
    let created = a.create(&address(), Direction::Source, wish(Trust::Full), 8, None);
    let accepted = a.turn(end);
    drop(all);
    stage.see(Kind::ChannelCreate, created);
    stage.see(Kind::System, accepted);
    while a.turn(end) != Ok(true) {}
}

fn all_descriptors() -> Vec<OwnedFd> {
    let mut all = Vec::with_capacity(1 << 20);
    let fd = memfd::create("crowd").expect("memfd");
    while let Ok(next) = fd.try_clone() {
        all.push(next);
        assert!(all.len() + 1 < all.capacity(), "no end of descriptors");
    }
    all.push(fd);
    all
}
