//! The cases, each over two domains of one process.

use crate::{ends, left, parts, placed, terms};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use tranship_bulk::raw::Raw;
use tranship_bulk::{
    Buffer, BufferState, Channel, ChannelState, Completion, Direction, Domain, EndOptions, Event,
    Kind, Meta, Mode, ReadBuffer, Role, Trust,
};
use tranship_testkit::Watchdog;
use tranship_transport::Backend;

const PAGE: usize = 4096;
const LONG: Duration = Duration::from_secs(60);

/// Two domains, and a connected channel from the first to the second.
pub struct Pair {
    pub a: Domain,
    pub b: Domain,
    pub source: Channel,
    pub sink: Channel,
}

pub fn address() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test:suite-{}-{count}", std::process::id())
}

pub fn domain(backend: &Arc<dyn Backend>) -> Domain {
    let domain = Domain::new();
    domain.add_backend("test", Arc::clone(backend));
    domain.seal_from(SEAL_FROM.get());
    domain
}

thread_local! {
    /// From which size on buffers of level `none` are sealed.
    static SEAL_FROM: std::cell::Cell<u64> = const { std::cell::Cell::new(u64::MAX) };
}

/// Turns both until nothing moves.
pub fn settle(ends: &[&Channel]) {
    let mut idle = 0;
    while idle < 3 {
        let moved = ends.iter().filter(|end| end.turn() == Ok(true)).count();
        idle = if moved > 0 { 0 } else { idle + 1 };
    }
}

/// As [`settle`], of ends by number.
pub fn settle_raw(a: &Raw, source: u64, b: &Raw, sink: u64) {
    let mut idle = 0;
    while idle < 3 {
        let moved = a.turn(source) == Ok(true) || b.turn(sink) == Ok(true);
        idle = if moved { 0 } else { idle + 1 };
    }
}

pub fn pair_with(backend: &Arc<dyn Backend>, creator: EndOptions, binder: EndOptions) -> Pair {
    let (a, b) = (domain(backend), domain(backend));
    let address = address();
    let source = a
        .create(&address, Direction::Source, creator)
        .expect("create");
    let (sink, asked) = b.bind(&address, binder).expect("bind");
    settle(&[&source, &sink]);
    assert_eq!(asked.result(), Some(Ok(())));
    for end in [&source, &sink] {
        assert!(matches!(event(end), Event::Bound(Ok(_))));
    }
    Pair { a, b, source, sink }
}

pub fn pair(backend: &Arc<dyn Backend>, trust: Trust) -> Pair {
    let options = || EndOptions::new(trust).meta_bytes(64);
    pair_with(backend, options(), options())
}

impl Pair {
    pub fn settle(&self) {
        settle(&[&self.source, &self.sink]);
    }

    /// Turns both until it is so.
    pub fn until(&self, so: impl Fn() -> bool) {
        while !so() {
            self.settle();
        }
    }

    pub fn assigned(&self, by: &Channel, domain: &Domain, buffers: u32) -> tranship_bulk::Pool {
        let pool = domain.pool(buffers, PAGE as u64, false).expect("pool");
        let asked = by.assign(pool.info().id).expect("assign");
        self.settle();
        assert_eq!(asked.result(), Some(Ok(())));
        pool
    }
}

#[track_caller]
pub fn event(end: &Channel) -> Event {
    end.wait_event(LONG).expect("event").expect("an event")
}

#[track_caller]
pub fn moved(end: &Channel) -> (Buffer, Meta) {
    loop {
        match event(end) {
            Event::Moved(buffer, meta) | Event::Passed(buffer, meta) => return (buffer, meta),
            Event::PoolAssigned(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
pub fn copied(end: &Channel) -> (ReadBuffer, Meta) {
    loop {
        match event(end) {
            Event::Copied(copy, meta) => return (copy, meta),
            Event::PoolAssigned(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

pub fn bytes(buffer: &Buffer) -> Vec<u8> {
    buffer.view(|view| view.to_vec()).expect("view")
}

pub fn all(backend: impl Fn() -> Arc<dyn Backend>) {
    for from in [u64::MAX, 0] {
        SEAL_FROM.set(from);
        each(&backend);
    }
}

fn each(backend: &impl Fn() -> Arc<dyn Backend>) {
    let _dog = Watchdog::new();
    for trust in Trust::ALL {
        let backend = &backend();
        move_and_copy(backend, trust);
        meta_and_ends(backend, trust);
        letting_go(backend, trust);
        closing(backend, trust);
        death(backend, trust);
        slices(backend, trust);
        full_copy(backend, trust);
        receive_master(backend, trust);
        parts::aggregates(backend, trust);
        parts::all_or_nothing(backend, trust);
        parts::mapped(backend, trust);
        parts::messages(backend, trust);
        parts::woken(backend, trust);
        passed_on(backend, trust);
        parts::relayed(backend, trust);
        parts::vetoed_further_down(backend, trust);
        ends::of_every_operation(backend, trust);
        placed::placed(backend, trust, SEAL_FROM.get());
        left::by_the_source(backend, trust);
        left::by_the_sink(backend, trust);
        left::while_something_is_held(backend, trust);
        terms::a_full_channel_changes_nothing(backend, trust);
    }
    let backend = &backend();
    terms::negotiation(backend);
    terms::vetoes(backend);
    terms::constraints(backend);
    terms::refusals(backend);
    terms::forgotten(backend);
    terms::copied_to_a_dead_creator(backend);
    left::before_it_is_bound(backend);
}

/// The report's tests 0 and 1.
fn move_and_copy(backend: &Arc<dyn Backend>, trust: Trust) {
    let creator = EndOptions::new(trust).role(Role::Slave);
    let p = pair_with(backend, creator, EndOptions::new(trust).role(Role::Master));
    let text = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ1234567890\0";
    let theirs = p.assigned(&p.sink, &p.b, 5);
    let _ = p
        .sink
        .pass(theirs.alloc().expect("alloc"), &[])
        .expect("pass");
    let (mut buffer, _) = moved(&p.source);
    // In a producer pool only its creator writes.
    let written = buffer.write(0, text);
    match trust {
        Trust::Producer => assert_eq!(written, Err(Kind::BufferState.into())),
        _ => assert_eq!(written, Ok(())),
    }
    let _ = p.source.move_(buffer, &[]).expect("move");
    let (mut buffer, _) = moved(&p.sink);
    if trust != Trust::Producer {
        assert_eq!(&bytes(&buffer)[..text.len()], text);
    }
    buffer.write(0, &[0; PAGE]).expect("write");
    let ours = p.assigned(&p.source, &p.a, 5);
    let mut own = ours.alloc().expect("alloc");
    own.write(0, &[0x21; PAGE]).expect("write");
    let _ = p.source.copy(&own, &[]).expect("copy");
    assert_eq!(own.write(0, b"x"), Err(Kind::BufferState.into()));
    let (copy, _) = copied(&p.sink);
    assert!(
        copy.view(|view| view.to_vec())
            .expect("view")
            .iter()
            .all(|b| *b == 0x21)
    );
    let _ = p.sink.release(copy).expect("release");
    p.settle();
    own.write(0, &[0x22; PAGE]).expect("write");
}

/// The report's small program (metadata, both ways), and the three ways to learn an operation's end.
fn meta_and_ends(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 4);
    let (tell, told) = channel();
    let mut done: Vec<Completion> = Vec::new();
    for round in 0..4u8 {
        let mut buffer = pool.alloc().expect("alloc");
        buffer.write(0, &[123; PAGE]).expect("write");
        let mut meta = [42, round, 0, 0];
        let sent = p.source.move_(buffer, &meta).expect("move");
        // Metadata is copied at the call: what happens to it later is nobody's business.
        meta.fill(0xee);
        let tell = tell.clone();
        sent.on_done(move |result| tell.send(result).expect("send"));
        done.push(sent);
        let (buffer, meta) = moved(&p.sink);
        assert_eq!(
            (meta, bytes(&buffer)),
            (vec![42, round, 0, 0].into(), vec![123; PAGE])
        );
        done.push(p.sink.pass(buffer, &[43]).expect("pass"));
        let (mut buffer, meta) = moved(&p.source);
        assert_eq!(meta, [43]);
        buffer.write(0, &[101; PAGE]).expect("write");
        done.push(p.source.copy(&buffer, &[44]).expect("copy"));
        let (copy, meta) = copied(&p.sink);
        let mut first = [0; 1];
        copy.read(0, &mut first).expect("read");
        assert_eq!((meta, first), (vec![44].into(), [101]));
        let released = p.sink.release(copy).expect("release");
        assert!(matches!(event(&p.source), Event::Released(..)));
        p.until(|| released.result().is_some());
        assert_eq!(p.sink.block_on(released), Ok(()));
        assert_eq!(buffer.state(), BufferState::ReadWrite);
    }
    p.until(|| done.iter().all(|done| done.result().is_some()));
    assert_eq!(pool.free(), 4);
    assert!(done.iter().all(|done| done.result() == Some(Ok(()))));
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [0; 4].map(|_| Ok(())));
    let next = p.sink.event();
    let _ = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect("move");
    assert!(matches!(p.sink.block_on(next), Ok(Event::Moved(..))));
    let too_long = p
        .source
        .move_(pool.alloc().expect("alloc"), &[0; 65])
        .expect_err("meta");
    assert_eq!(
        (too_long.kind(), too_long.unsent.state()),
        (Kind::BadArgument, BufferState::ReadWrite)
    );
}

/// Handles that are dropped go back by themselves.
fn letting_go(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 2);
    drop(pool.alloc().expect("alloc"));
    assert_eq!(pool.free(), 2);
    let _ = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect("move");
    drop(moved(&p.sink));
    let _ = moved(&p.source);
    let own = pool.alloc().expect("alloc");
    let _ = p.source.copy(&own, &[]).expect("copy");
    let _ = p.source.copy(&own, &[]).expect("copy");
    let both = (copied(&p.sink), copied(&p.sink));
    drop(both);
    p.settle();
    assert_eq!(own.state(), BufferState::ReadWrite);
    drop(own);
    assert_eq!(pool.free(), 2);
}

fn closing(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 3);
    let _ = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect("move");
    let own = pool.alloc().expect("alloc");
    let _ = p.source.copy(&own, &[]).expect("copy");
    let asked = p.source.close().expect("close");
    let refused = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect_err("closing");
    assert_eq!(refused.kind(), Kind::ChannelState);
    drop(refused);
    let (buffer, _) = moved(&p.sink);
    let (copy, _) = copied(&p.sink);
    p.settle();
    assert_eq!(asked.result(), None);
    assert_eq!(p.sink.state(), ChannelState::Teardown);
    drop((buffer, copy));
    p.settle();
    assert_eq!(asked.result(), Some(Ok(())));
    assert_eq!(
        [p.source.state(), p.sink.state()],
        [ChannelState::Closed; 2]
    );
    assert_eq!(own.state(), BufferState::ReadWrite);
    // What came back is in an event that was not looked at yet.
    assert_eq!(pool.free(), 1);
    assert!(matches!(
        event(&p.source),
        Event::Released(..) | Event::Passed(..)
    ));
    pool.destroy().expect("destroy");
}

fn death(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 3);
    let _ = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect("move");
    let own = pool.alloc().expect("alloc");
    let _ = p.source.copy(&own, &[]).expect("copy");
    let taken = moved(&p.sink);
    let late = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect("move");
    assert_eq!(own.state(), BufferState::ReadOnlyOwned);
    // As a death is: nothing is given back.
    let Pair {
        a: _a,
        b,
        source,
        sink,
    } = p;
    std::mem::forget(taken);
    end_of(b, sink);
    assert!(matches!(event(&source), Event::Gone(2)));
    assert_eq!(own.state(), BufferState::ReadWrite);
    assert_eq!(
        (pool.free(), late.result()),
        (2, Some(Err(Kind::PeerGone.into())))
    );
    assert_eq!(source.state(), ChannelState::Closed);
    pool.destroy().expect("destroy");
}

/// Ends a domain whose handles were forgotten.
fn end_of(domain: Domain, channel: Channel) {
    channel.abandon();
    drop(domain);
}

/// Plain slices, where nobody else can write, and only there.
fn slices(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 2);
    let mut own = pool.alloc().expect("alloc");
    let mut other = pool.alloc().expect("alloc");
    match trust {
        Trust::Full | Trust::Half => {
            assert_eq!(
                own.bytes_mut().expect_err("others write"),
                Kind::BufferState
            );
            return assert_eq!(own.bytes().expect_err("others write"), Kind::BufferState);
        }
        Trust::Producer | Trust::None => own.bytes_mut().expect("alone").fill(5),
    }
    other.bytes_mut().expect("alone").fill(6);
    p.source.copy(&own, &[]).expect("copy");
    assert_eq!(own.bytes_mut().expect_err("copied"), Kind::BufferState);
    assert_eq!(own.bytes().expect("read"), [5; PAGE]);
    p.source.move_(other, &[]).expect("move");
    let (copy, _) = copied(&p.sink);
    let (mut taken, _) = moved(&p.sink);
    if trust == Trust::Producer {
        assert_eq!(
            copy.bytes().expect_err("its creator writes"),
            Kind::BufferState
        );
        assert_eq!(
            taken.bytes_mut().expect_err("its creator writes"),
            Kind::BufferState
        );
    } else {
        assert_eq!(
            (copy.bytes().expect("read"), taken.bytes().expect("read")),
            (&[5; PAGE][..], &[6; PAGE][..])
        );
        taken.bytes_mut().expect("alone").fill(7);
    }
    // A handle keeps its bytes, whatever becomes of the pool.
    p.source.abandon();
    let unassigned = p.a.pool(1, PAGE as u64, false).expect("pool");
    let mut open = unassigned.alloc().expect("alloc");
    assert_eq!(
        open.bytes_mut().expect_err("no level yet"),
        Kind::BufferState
    );
    let bytes = own.bytes().expect("read");
    pool.destroy().expect("destroy");
    assert_eq!(bytes, [5; PAGE]);
    assert_eq!(
        own.bytes().expect_err("its pool is gone"),
        Kind::PoolInvalid
    );
}

fn full_copy(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 2);
    let mut from = pool.alloc().expect("alloc");
    from.write(0, &[9; PAGE]).expect("write");
    let to = pool.alloc().expect("alloc");
    let _ = p.source.full_copy(&from, to, &[1]).expect("full copy");
    let (buffer, meta) = moved(&p.sink);
    assert_eq!((bytes(&buffer), meta), (vec![9; PAGE], vec![1].into()));
    from.write(0, &[8; PAGE]).expect("write");
    assert_eq!(bytes(&buffer), [9; PAGE]);
}

fn receive_master(backend: &Arc<dyn Backend>, trust: Trust) {
    let creator = EndOptions::new(trust).role(Role::Slave);
    let p = pair_with(backend, creator, EndOptions::new(trust));
    assert_eq!(
        [p.source.mode(), p.sink.mode()],
        [Some(Mode::ReceiveMaster); 2]
    );
    let pool = p.assigned(&p.sink, &p.b, 4);
    for _ in 0..4 {
        let _ = p
            .sink
            .pass(pool.alloc().expect("alloc"), &[])
            .expect("pass");
    }
    for round in 0..20u8 {
        let (mut buffer, _) = moved(&p.source);
        if trust != Trust::Producer {
            buffer.write(7, &[round]).expect("write");
        }
        let _ = p.source.move_(buffer, &[]).expect("move");
        let (buffer, _) = moved(&p.sink);
        assert!(trust == Trust::Producer || bytes(&buffer)[7] == round);
        let _ = p.sink.pass(buffer, &[]).expect("pass");
    }
    drop(moved(&p.source));
    p.settle();
}

/// Three domains in a row: pools, vetoes, metadata and bytes go through the middle one.
fn passed_on(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let c = domain(backend);
    let address = address();
    let options = || EndOptions::new(trust).meta_bytes(64);
    let onward =
        p.b.create(&address, Direction::Source, options())
            .expect("create");
    let (end, _) = c.bind(&address, options()).expect("bind");
    settle(&[&onward, &end]);
    assert!(
        matches!(event(&end), Event::Bound(Ok(_))) && matches!(event(&onward), Event::Bound(Ok(_)))
    );
    let closed = p.a.pool(1, PAGE as u64, false).expect("pool");
    let pool = p.a.pool(2, PAGE as u64, true).expect("pool");
    for id in [closed.info().id, pool.info().id] {
        let asked = p.source.assign(id).expect("assign");
        p.settle();
        assert_eq!(asked.result(), Some(Ok(())));
    }
    assert_eq!(
        onward.assign(closed.info().id).expect_err("no right"),
        Kind::NotForwardable
    );
    let asked = onward.assign(pool.info().id).expect("assign");
    settle(&[&onward, &end]);
    assert_eq!(asked.result(), Some(Ok(())));
    let mut buffer = pool.alloc().expect("alloc");
    buffer.write(0, &[77; PAGE]).expect("write");
    let _ = p.source.move_(buffer, &[5, 6]).expect("move");
    while !matches!(p.sink.turn(), Ok(false)) {}
    let (buffer, meta) = moved(&p.sink);
    let _ = onward.move_(buffer, &meta).expect("move");
    let (buffer, meta) = moved(&end);
    assert_eq!((bytes(&buffer), meta), (vec![77; PAGE], vec![5, 6].into()));
    drop(buffer);
    drop(moved(&onward));
    drop(moved(&p.source));
    assert_eq!(pool.free(), 2);
    // Copies go on too, and the middle one releases its own last.
    let own = pool.alloc().expect("alloc");
    let _ = p.source.copy(&own, &[]).expect("copy");
    let (middle, _) = copied(&p.sink);
    let _ = onward.copy(&middle, &[]).expect("copy");
    let (last, _) = copied(&end);
    let refused = p.sink.release(middle).expect_err("its copy is out");
    assert_eq!(refused.kind(), Kind::BufferRefcount);
    drop(refused);
    drop(last);
    settle(&[&end, &onward, &p.sink, &p.source]);
    assert_eq!(own.state(), BufferState::ReadWrite);
}
