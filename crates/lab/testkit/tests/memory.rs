//! Memory follows its use: after a spike, at the limits, and past a reader that stands still. Bytes are those of the
//! memfds themselves, counted from outside.

use std::time::Duration;

use tranship_core::admin::{ManagerStat, StatRecord};
use tranship_core::error::{Limit, Shortage};
use tranship_core::{
    Body, BufferMut, ChannelOptions, Domain, Error, ErrorKind, Message, Pool, PoolOptions,
    Receiver, Released, Sender, Trust,
};
use tranship_manager::Config;
use tranship_testkit::chaos::{held, returns_to};
use tranship_testkit::{Cgroup, Control, Exit, Held, Peer, Watchdog, child, skipped};

const CHUNK: usize = 256 << 10;

/// `try_alloc` where the manager's answer is waited for, however busy the machine is.
trait AllocNow {
    fn alloc_now(&self, len: usize) -> Result<BufferMut, Error>;
}

impl AllocNow for Pool {
    fn alloc_now(&self, len: usize) -> Result<BufferMut, Error> {
        loop {
            match self.try_alloc(len) {
                Err(error)
                    if matches!(
                        error.find(),
                        Some(Shortage {
                            limit: Limit::Late,
                            ..
                        })
                    ) =>
                {
                    std::thread::yield_now()
                }
                done => return done,
            }
        }
    }
}

fn dog() -> Watchdog {
    Watchdog::new()
}

fn join(name: &str, socket: &str, helper: bool) -> Domain {
    let builder = Domain::builder().name(name).socket(socket);
    builder.helper_thread(helper).connect().expect("connect")
}

/// Kinds of pools: each level of trust, and sealed buffers.
const SEALED: usize = Trust::ALL.len();

fn options(chunks: usize) -> PoolOptions {
    PoolOptions::new((chunks * CHUNK) as u64).chunk_bytes(CHUNK as u64)
}

fn pool(domain: &Domain, chunks: usize) -> Pool {
    domain.create_pool(options(chunks)).expect("pool")
}

fn pool_of(domain: &Domain, chunks: usize, kind: usize) -> Pool {
    let options = match kind {
        SEALED => options(chunks).trust(Trust::None).seal_from(1),
        level => options(chunks).trust(Trust::ALL[level]).seal_from(u64::MAX),
    };
    domain.create_pool(options).expect("pool")
}

/// Takes part in the domain's life until the test says the next thing.
fn turn_until_told(ctl: &Control, domain: &Domain) {
    while !ctl.is_ready() {
        domain.turn().expect("turn");
    }
}

// Commands: a number of chunks to hold (sent too), 0 to let all go.
child!(
    fn writes(ctl: Control) {
        let (socket, helper, kind): (String, bool, usize) = ctl.recv().unwrap().unwrap();
        let domain = join("writer", &socket, helper);
        let pool = pool_of(&domain, 256, kind);
        let mut sender = domain.open::<Sender>("spike").unwrap();
        // The memory of this channel is shared with no process, and counted with the rest.
        let inside = domain.listen::<Receiver>("local:inside").unwrap();
        let _near = domain.open::<Sender>("local:inside").unwrap();
        let _far = inside.accept().unwrap();
        let mut held = Vec::new();
        while let Some(chunks) = ctl.recv::<usize>().unwrap() {
            held.clear();
            for i in 0..chunks {
                let mut buf = pool.alloc(CHUNK).unwrap();
                buf.write(0, &vec![i.to_le_bytes()[0]; CHUNK]).unwrap();
                let buf = buf.freeze();
                sender.send(buf.clone()).unwrap();
                held.push(buf);
            }
            ctl.send(&chunks).unwrap();
            if !helper {
                turn_until_told(&ctl, &domain);
            }
        }
    }
);

// Commands: how many messages to take and to hold.
child!(
    fn reads(ctl: Control) {
        let (socket, helper, _): (String, bool, usize) = ctl.recv().unwrap().unwrap();
        let domain = join("reader", &socket, helper);
        // For buffers that come from a pool of level `none`.
        let copies = pool(&domain, 256);
        let options = ChannelOptions::new().snapshots(copies.id());
        let listener = domain.listen_with::<Receiver>("spike", options).unwrap();
        ctl.send(&0).unwrap();
        let mut receiver = listener.accept().unwrap();
        ctl.send(&0).unwrap();
        let mut held: Vec<Message> = Vec::new();
        while let Some(messages) = ctl.recv::<usize>().unwrap() {
            held.clear();
            for _ in 0..messages {
                held.push(receiver.recv().unwrap());
            }
            ctl.send(&messages).unwrap();
            if !helper {
                turn_until_told(&ctl, &domain);
            }
        }
    }
);

// Has the manager in it; reports its figures, as often as it is asked. Nothing else of this process is shared memory.
child!(
    fn manages(ctl: Control) {
        let domain = Domain::builder().name("manager").embedded().unwrap();
        let socket = domain.socket_path().unwrap().display().to_string();
        ctl.send(&socket).unwrap();
        while ctl.recv::<()>().unwrap().is_some() {
            ctl.send(&domain.admin().stat().unwrap()).unwrap();
        }
    }
);

/// Returns the manager's figures of itself.
fn totals_of(manager: &Peer) -> ManagerStat {
    let records: Vec<StatRecord> = manager.ask(&());
    let mut sums = [0; 3];
    let (mut pools, mut rings) = ([0; 2], 0);
    let mut all = None;
    for record in records {
        match record {
            StatRecord::Manager(m) => all = Some(m),
            StatRecord::Domain(d) => {
                let of = [d.data_bytes, d.table_bytes, d.ring_bytes];
                sums.iter_mut().zip(of).for_each(|(sum, n)| *sum += n);
            }
            StatRecord::Pool(p) => {
                pools[0] += p.data_bytes;
                pools[1] += p.table_bytes;
            }
            StatRecord::Channel(c) => rings += c.ring_bytes,
            _ => {}
        }
    }
    let all = all.expect("the manager");
    // The other records are some moments younger.
    if totals_are(&all) == sums && (all.data_bytes, all.table_bytes) == (pools[0], pools[1]) {
        assert_eq!(all.ring_bytes, rings);
    }
    all
}

fn totals_are(m: &ManagerStat) -> [u64; 3] {
    [m.data_bytes, m.table_bytes, m.ring_bytes]
}

fn resident(all: &[&Peer]) -> u64 {
    let held = Held::by(all.iter().map(|p| p.pid())).expect("held");
    held.resident()
}

/// Waits until the manager accounts for exactly the kernel's memory: memory that was given back is being unmapped
/// meanwhile.
fn accounted(dog: &Watchdog, all: &[&Peer]) -> ManagerStat {
    let mut last = (0, 0);
    loop {
        let before = totals_of(all[0]);
        let kernel = resident(all);
        let manager = totals_of(all[0]);
        let told = manager.shared_bytes();
        if kernel == told && told == before.shared_bytes() {
            return manager;
        }
        if last != (kernel, told) {
            last = (kernel, told);
            dog.step(format!("the kernel has {kernel} B, {manager:?}"));
        }
        std::thread::yield_now();
    }
}

fn chunk_bytes(peers: &[&Peer]) -> u64 {
    let held = Held::by(peers.iter().map(|p| p.pid())).expect("held");
    let chunks = held.memfds_named("tranship-chunk");
    chunks.values().map(|m| m.resident).sum()
}

fn spike(helper: bool, kind: usize) {
    let dog = dog();
    let manager = manages().start().expect("manager");
    let socket: String = manager.expect();
    let alone = accounted(&dog, &[&manager]);
    assert_eq!(totals_are(&alone), [0; 3], "{alone:?}");
    assert!(alone.control_page_bytes > 0, "its own domain's: {alone:?}");
    let reader = reads().start().expect("reader");
    assert_eq!(reader.ask::<usize>(&(&socket, helper, kind)), 0);
    let writer = writes().start().expect("writer");
    writer.send(&(&socket, helper, kind)).expect("send");
    assert_eq!(reader.expect::<usize>(), 0);
    let both = [&writer, &reader];
    let all = [&manager, &writer, &reader];
    let step = |chunks: usize| {
        reader.send(&chunks).expect("send");
        writer.ask::<usize>(&chunks);
        reader.expect::<usize>();
    };
    step(2);
    let before = chunk_bytes(&both);
    assert!((1..=4 * CHUNK as u64).contains(&before), "{before} B");
    let begun = accounted(&dog, &all);
    assert!(totals_are(&begun).iter().all(|n| *n > 0), "{begun:?}");
    for round in 0..2 {
        step(200);
        let peak = chunk_bytes(&both);
        assert!(peak >= 200 * CHUNK as u64, "round {round}: {peak} B");
        let spike = accounted(&dog, &all);
        assert!(spike.data_bytes >= 200 * CHUNK as u64, "{spike:?}");
        step(0);
        // No thread allocates, and none calls anything but the calls of the mode.
        while chunk_bytes(&both) > before + before / 20 {
            std::thread::yield_now();
        }
        let mapped = Held::by(both.map(Peer::pid)).expect("held").mapped;
        assert!(mapped < 30 * CHUNK as u64, "{mapped} B still mapped");
        let after = accounted(&dog, &all);
        assert!(after.granted_bytes <= before, "{after:?}");
        // Tables and rings stay as they are.
        assert_eq!(totals_are(&after)[1..], totals_are(&begun)[1..]);
    }
    step(100); // and it can grow again
    drop((writer, reader));
    // The memory of the dead goes in steps, and at each of them both sides agree.
    let everything = |m: &ManagerStat| (totals_are(m), m.stranded_bytes, m.control_page_bytes);
    while everything(&accounted(&dog, &[&manager])) != everything(&alone) {}
}

#[test]
fn after_a_spike_chunks_go_back_when_programs_call_turn() {
    (0..=SEALED).for_each(|kind| spike(false, kind));
}

#[test]
fn after_a_spike_chunks_go_back_when_programs_never_call() {
    (0..=SEALED).for_each(|kind| spike(true, kind));
}

// Fills a pool until there is no more, touching every byte.
child!(
    fn fills(ctl: Control) {
        // Without this setting the manager's own total would be half of the cgroup's limit, and the quota with it.
        let config = Config {
            total: Some(1 << 30),
            ..Config::default()
        };
        let domain = Domain::builder()
            .name("filler")
            .config(config)
            .embedded()
            .unwrap();
        let pool = pool(&domain, 1024);
        ctl.send(&pool.stats().quota_bytes).unwrap();
        ctl.recv::<()>().unwrap();
        let mut held = Vec::new();
        let error = loop {
            match pool.alloc_now(CHUNK) {
                Ok(mut buf) => {
                    buf.fill(1);
                    held.push(buf);
                }
                Err(error) => break error,
            }
        };
        assert!(
            matches!(error.find(), Some(&Shortage { limit: Limit::Cgroup { free_bytes }, .. }) if free_bytes < CHUNK as u64),
            "{error}"
        );
        // Meanwhile the kernel may find more memory: it has charged some ahead.
        let waited = loop {
            match pool.alloc_timeout(CHUNK, Duration::from_millis(20)) {
                Ok(mut buf) => {
                    buf.fill(1);
                    held.push(buf);
                }
                Err(error) => break error,
            }
        };
        assert_eq!(waited.kind(), ErrorKind::OutOfMemory);
        ctl.send(&(held.len() * CHUNK)).unwrap();
        held.pop();
        pool.alloc(CHUNK).unwrap();
    }
);

#[test]
fn where_the_cgroup_ends_alloc_errs_and_nobody_is_killed() {
    let _dog = dog();
    let group = match Cgroup::new("small") {
        Ok(group) => group,
        Err(e) => return skipped(e),
    };
    let limit = 64 << 20;
    if let Err(e) = group.limit(limit) {
        return skipped(e);
    }
    let peer = fills()
        .cgroup(&group)
        .capture_stderr()
        .start()
        .expect("start");
    let quota: u64 = peer.expect();
    assert_eq!(quota, 1024 * CHUNK as u64, "the quota alone would allow it");
    peer.send(&()).expect("send");
    let got: u64 = peer.expect();
    assert!((limit / 4..limit).contains(&got), "{got} B of {limit}");
    assert_eq!(peer.wait(), Exit::Code(0), "{}", peer.stderr());
}

/// Returns the manager's figures: granted, stranded, and stranded by the domain of that name.
fn totals(manager: &Domain, name: &str) -> (u64, u64, u64) {
    let mut totals = (0, 0, 0);
    for record in manager.admin().stat().expect("stat") {
        match record {
            StatRecord::Manager(m) => {
                assert!(m.granted_bytes + m.stranded_bytes <= m.total_bytes, "{m:?}");
                totals.0 = m.granted_bytes;
                totals.1 = m.stranded_bytes;
            }
            // Others strand memory that pools give back until they have heard of it and unmapped it.
            StatRecord::Domain(d) if d.name == name => totals.2 = d.stranded_bytes,
            _ => {}
        }
    }
    totals
}

/// Sends as many chunks as it can have; says how many.
fn send_all(pool: &Pool, sender: &mut Sender, most: usize) -> usize {
    for sent in 0..most {
        match pool.alloc_now(CHUNK) {
            Ok(mut buf) => {
                buf.fill(sent.to_le_bytes()[0]);
                sender.send(buf.freeze()).expect("send");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                return sent;
            }
        }
    }
    most
}

// Takes messages, keeps some of them, and calls the library in no other way until it is told to.
child!(
    fn holds(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = join("holder", &socket, false);
        let mut receiver = domain.open::<Receiver>("held").unwrap();
        let mut held: Vec<Message> = (0..16).map(|_| receiver.recv().unwrap()).collect();
        let keep: usize = ctl.ask(&held.len()).unwrap();
        held.truncate(keep);
        ctl.ask::<()>(&held.len()).unwrap();
        // Told to take part again, until told to end.
        turn_until_told(&ctl, &domain);
        for (i, message) in held.iter().enumerate() {
            assert!(message.to_vec().iter().all(|b| usize::from(*b) == i));
        }
        ctl.recv::<()>().unwrap();
    }
);

/// Domain that reports before it waits for the next thing.
trait Ask {
    fn ask<T: serde::de::DeserializeOwned>(&self, said: &usize) -> Option<T>;
}

impl Ask for Control {
    fn ask<T: serde::de::DeserializeOwned>(&self, said: &usize) -> Option<T> {
        self.send(said).expect("test");
        self.recv().expect("test")
    }
}

#[test]
fn a_stopped_reader_strands_only_what_it_was_shown() {
    let _dog = dog();
    let chunk = CHUNK as u64;
    let total = 40 * chunk;
    let config = Config {
        total: Some(total),
        ..Config::default()
    };
    let builder = Domain::builder().name("writer").config(config);
    let writer = builder.helper_thread(true).embedded().expect("embedded");
    let socket = writer.socket_path().expect("socket").display().to_string();
    let (one, two) = (pool(&writer, 16), pool(&writer, 64));
    let holder = holds().start().expect("holder");
    holder.send(&socket).expect("send");
    let options = ChannelOptions::new().lines(16);
    let listener = writer.listen_with::<Sender>("held", options);
    let mut to_holder = listener.expect("listen").accept().expect("accept");
    assert_eq!(send_all(&one, &mut to_holder, 16), 16);
    assert_eq!(holder.expect::<usize>(), 16);
    // The holder releases 14 of its 16 buffers, and stands still before it could unmap anything.
    assert_eq!(holder.ask::<usize>(&2usize), 2);
    holder.stop();
    let mut stranded = 0;
    while stranded < 14 * chunk {
        let (_, all, by_holder) = totals(&writer, "holder");
        assert_eq!(all, by_holder);
        assert!(by_holder <= 14 * chunk, "not more than it was shown");
        stranded = by_holder;
    }
    // The ring to the holder fills up, and no sender waits for it.
    let sent = (0..100).filter(|_| to_holder.try_send(b"").is_ok());
    assert_eq!(sent.count(), 16);

    // With another reader the writer goes on in the rest of the total.
    let other = reads().start().expect("other");
    assert_eq!(other.ask::<usize>(&(&socket, true, 1usize)), 0);
    let mut to_other = writer.open::<Sender>("spike").expect("open");
    assert_eq!(other.expect::<usize>(), 0);
    for _ in 0..20 {
        other.send(&4usize).expect("send");
        assert_eq!(send_all(&two, &mut to_other, 4), 4);
        assert_eq!(other.expect::<usize>(), 4);
        assert_eq!(totals(&writer, "holder").2, 14 * chunk);
    }
    // All of the rest can be had, once the other one has unmapped memory that was given back meanwhile; and no more
    // (`totals` checks).
    let mut more = Vec::new();
    loop {
        while let Ok(buf) = two.alloc_now(CHUNK) {
            more.push(buf);
        }
        let (granted, stranded, by_holder) = totals(&writer, "holder");
        assert_eq!(by_holder, 14 * chunk);
        if (granted, stranded) == (total - by_holder, by_holder) {
            break;
        }
    }
    drop(more);

    // Awake again it unmaps the chunks that it does not need.
    holder.resume();
    holder.send(&()).expect("send");
    while totals(&writer, "holder").1 > 0 {
        std::thread::yield_now();
    }
    drop(two.alloc(30 * CHUNK).expect("more than was left before"));
    holder.send(&()).expect("send");
    assert_eq!(holder.wait(), Exit::Code(0));
}

/// Generations of pools over one channel, and the buffers of each.
const GENERATIONS: u32 = 8;
const SENT: u8 = 3;

/// Takes part until it is told the next thing, and uses the channel.
fn stays(ctl: &Control, domain: &Domain, sender: &mut Sender) {
    while !ctl.is_ready() {
        domain.turn().unwrap();
        match sender.wait_taken(Duration::ZERO) {
            // The receiver may not have come to them yet.
            Err(late) if late.kind() == ErrorKind::TimedOut => {}
            taken => taken.unwrap(),
        }
    }
    // The releases of buffers whose pool is gone.
    for _ in 0..SENT {
        let back = sender.try_recv_back().unwrap().unwrap();
        assert!(matches!(back.body, Body::Released(Some(_))), "{back:?}");
    }
}

// Sends buffers of a pool that others may forward, and lives until it is killed.
child!(
    fn is_born(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = join("born", &socket, true);
        let pool = domain.create_pool(options(4).allow_forward(true)).unwrap();
        let mut sender = domain.open::<Sender>("in").unwrap();
        for byte in 0..SENT {
            let buf = pool.copy(&[byte; 100]).unwrap();
            sender.send(buf.freeze()).unwrap();
        }
        ctl.recv::<()>().unwrap();
    }
);

// Forwards the messages of one sender after another over a channel that stays.
child!(
    fn forwards(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = join("forwards", &socket, false);
        let listener = domain.listen::<Receiver>("in").unwrap();
        let mut sender = domain.open::<Sender>("out").unwrap();
        ctl.send(&()).unwrap();
        while ctl.recv::<()>().unwrap().is_some() {
            let mut receiver = listener.accept().unwrap();
            for _ in 0..SENT {
                let buf = receiver.recv().unwrap().into_buffer().unwrap();
                sender.send(buf).unwrap();
            }
            ctl.send(&()).unwrap();
            assert_eq!(receiver.recv().unwrap_err().kind(), ErrorKind::PeerDied);
            drop(receiver);
            stays(&ctl, &domain, &mut sender);
        }
    }
);

// Sends buffers of one pool after another over a channel that stays.
child!(
    fn makes_pools(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = join("makes", &socket, false);
        let mut sender = domain.open::<Sender>("out").unwrap();
        ctl.send(&()).unwrap();
        while ctl.recv::<()>().unwrap().is_some() {
            let pool = pool(&domain, 4);
            for byte in 0..SENT {
                let buf = pool.copy(&[byte; 100]).unwrap();
                sender.send(buf.freeze()).unwrap();
            }
            sender.wait_taken(None).unwrap();
            ctl.send(&()).unwrap();
            drop(pool);
            stays(&ctl, &domain, &mut sender);
        }
    }
);

// Takes the messages of that channel.
child!(
    fn takes(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = join("takes", &socket, false);
        let listener = domain.listen::<Receiver>("out").unwrap();
        ctl.send(&()).unwrap();
        let mut receiver = listener.accept().unwrap();
        // The next generation's first message may come between two looks.
        let mut came = None;
        while ctl.recv::<()>().unwrap().is_some() {
            for byte in 0..SENT {
                let message = came.take().unwrap_or_else(|| receiver.recv().unwrap());
                assert_eq!(message.to_vec(), [byte; 100]);
                receiver.send_back(Released(message.body)).unwrap();
            }
            ctl.send(&()).unwrap();
            while came.is_none() && !ctl.is_ready() {
                domain.turn().unwrap();
                came = receiver.try_recv().unwrap();
            }
        }
    }
);

/// Runs generations of pools between two processes that stay. After each, the processes and the manager have exactly
/// what they had after the first one.
fn generations(sends: Peer, each: impl Fn(&Peer, &str)) {
    let dog = dog();
    let manager = manages().start().expect("manager");
    let socket: String = manager.expect();
    let takes = takes().start().expect("a child");
    takes.ask::<()>(&socket);
    sends.ask::<()>(&socket);
    let living = [&manager, &sends, &takes];
    let mut first: Option<(Held, ManagerStat)> = None;
    for generation in 0..GENERATIONS {
        dog.step(format!("generation {generation}"));
        takes.send(&()).expect("send");
        each(&sends, &socket);
        takes.expect::<()>();
        if let Some((held, _)) = &first {
            returns_to(&format!("generation {generation}"), held, &living);
        }
        let now = without_pools(&dog, &living);
        let (_, before) = first.get_or_insert_with(|| (held(&living), now.clone()));
        assert_eq!(totals_are(&now), totals_are(before), "{now:?}");
        assert_eq!(now.descriptors, before.descriptors, "{now:?}");
    }
}

/// Waits until the manager, and the kernel, have no pool.
fn without_pools(dog: &Watchdog, living: &[&Peer]) -> ManagerStat {
    loop {
        let now = accounted(dog, living);
        if now.data_bytes + now.table_bytes == 0 {
            return now;
        }
    }
}

#[test]
fn writers_that_die_leave_nothing_in_a_channel_that_their_buffers_took() {
    generations(forwards().start().expect("a child"), |forwards, socket| {
        let born = is_born().start().expect("a writer");
        born.send(socket).expect("send");
        forwards.ask::<()>(&());
        assert_eq!(born.kill(), Exit::Signal(libc::SIGKILL));
    });
}

#[test]
fn pools_that_go_leave_nothing_in_their_channel() {
    generations(makes_pools().start().expect("a child"), |makes, _| {
        makes.ask::<()>(&());
    });
}
