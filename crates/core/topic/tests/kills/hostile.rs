//! Subscribers that write anything into their desks, or hold more than was agreed: they cost the publisher a bounded
//! number of buffers, and the others nothing. Publishers that lie: their subscribers' calls end in time.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Named, Readers, Taken};
use tranship_core::{
    Buffer, BufferId, Domain, Error, ErrorKind, Message, Pool, PoolId, PoolOptions, Receiver,
    Sender,
};
use tranship_ring::broadcast::{
    BellRw, DeskRw, LinesRo, LinesRw, ReaderMemory, Reading, T_NS, Win, Writer, WriterMemory,
    sequence,
};
use tranship_testkit::{Random, Watchdog, payload};
use tranship_topic::{Publisher, Subscriber, TopicOptions, Topics};

const DEPTH: u32 = 8;
const KEEP: u32 = 4;
const SEED: u64 = 77;

/// A subscriber of the test's own, which keeps no rule.
struct Liar {
    receiver: Receiver,
    desk: DeskRw,
    lines: LinesRo,
    _bell: OwnedFd,
    held: Vec<Buffer>,
}

struct World {
    publisher: Publisher,
    honest: Subscriber,
    socket: std::path::PathBuf,
    published: u64,
}

impl World {
    fn new() -> World {
        let here = Domain::embedded().expect("a domain");
        let options = TopicOptions::new().depth(DEPTH).keep(KEEP);
        let mut publisher = here.publish_with("camera", options).expect("publish");
        let socket = here.socket_path().expect("a socket");
        let there = Domain::builder().socket(&socket).connect().expect("join");
        let mut honest = there.subscribe("camera").expect("subscribe");
        while publisher.subscribers() == 0 {
            assert!(honest.try_recv().expect("nothing").is_none());
            publisher.tend().expect("tend");
        }
        World {
            publisher,
            honest,
            socket,
            published: 0,
        }
    }

    fn liar(&mut self) -> Liar {
        let before = self.publisher.subscribers();
        let domain = Domain::builder()
            .socket(&self.socket)
            .connect()
            .expect("join");
        let (fd, desk) = DeskRw::create().expect("a desk");
        let mut opening = topics::subscribe(&domain, "camera", fd).expect("subscribe");
        let mut receiver = loop {
            self.publisher.tend().expect("tend");
            if let Some(receiver) = opening.try_open().expect("opened") {
                break receiver;
            }
        };
        let (lines, count, bell) = receiver.topic_ring().expect("a ring");
        receiver.send_back(&[]).expect("said");
        while self.publisher.subscribers() == before {
            self.publisher.tend().expect("tend");
            domain.turn().expect("turn");
        }
        Liar {
            receiver,
            desk,
            lines: LinesRo::open(lines, count).expect("lines"),
            _bell: bell,
            held: Vec::new(),
        }
    }

    /// The honest subscriber gets each message whole.
    fn goes_on(&mut self, messages: u64) {
        for _ in 0..messages {
            self.published += 1;
            let mut frame = self.publisher.alloc(100).expect("a buffer");
            payload::fill(&mut frame, self.published, SEED);
            self.publisher.send((frame, self.published)).expect("send");
            let message = self.honest.recv().expect("a message");
            assert_eq!(message.word, self.published);
            payload::verify_seed(&message.to_vec(), self.published, SEED).expect("whole");
        }
    }
}

impl Liar {
    /// Takes the buffer of a line, as it is there.
    fn take(&mut self, line: u64) {
        let word = |i| self.word(line, i);
        let named = Named {
            id: BufferId(word(2)),
            offset: word(3),
            length: word(4),
            serial: u32::try_from(word(5)).unwrap_or(0),
        };
        if let Ok(Taken::Here(buffer)) = self.receiver.topic_take(named) {
            self.held.push(buffer);
        }
    }

    fn pool(&self) -> PoolId {
        BufferId(self.word(0, 2)).pool()
    }

    fn word(&self, line: u64, index: usize) -> u64 {
        let memory = Reading {
            lines: self.lines.lines(),
            desk: self.desk.desk(),
            table: &[],
        };
        let Ok(word) = memory.word(line, index);
        word
    }
}

#[test]
fn garbage_in_a_desk_costs_a_bounded_number_of_buffers() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("garbage_in_a_desk");
    let mut world = World::new();
    let liar = world.liar();
    let most = DEPTH as usize + 64 + 8 + 12 + 12;
    for _ in 0..400 {
        let desk = liar.desk.desk();
        desk.win.store(random.next(), Ordering::Relaxed);
        for kept in &desk.kept {
            let any = u32::try_from(random.below(1 << 32)).unwrap_or(0);
            let some = u32::try_from(random.below(200)).unwrap_or(0);
            kept.store(if random.one_in(2) { any } else { some }, Ordering::Relaxed);
        }
        desk.more
            .store(u32::from(random.one_in(3)), Ordering::Relaxed);
        world.goes_on(3);
        let buffers = world.publisher.status().buffers;
        assert!(buffers <= most, "{buffers} buffers, at most {most}");
    }
    // It goes, and what its desk said with it: its process is this one, and lives, so the desk has to be empty.
    let desk = liar.desk.desk();
    desk.win.store(0, Ordering::Relaxed);
    desk.kept
        .iter()
        .for_each(|kept| kept.store(0, Ordering::Relaxed));
    desk.more.store(0, Ordering::Relaxed);
    drop(liar);
    while world.publisher.status().subscribers.len() > 1 {
        world.publisher.tend().expect("tend");
    }
    world.goes_on(10);
}

#[test]
fn a_subscriber_that_holds_more_than_was_agreed_is_expelled() {
    let _dog = Watchdog::new();
    let mut world = World::new();
    let mut liar = world.liar();
    world.goes_on(1);
    let pool = liar.pool();
    let all = Win {
        low: 0,
        entries: 1,
        len: 0,
    };
    liar.desk.desk().more.store(1, Ordering::Release);
    liar.desk.desk().win.store(all.pack(), Ordering::Release);
    while liar.receiver.topic_awaits(pool) {
        world.publisher.tend().expect("tend");
    }
    for n in 0..200 {
        world.goes_on(1);
        if world.publisher.status().expelled == 0 {
            liar.take((world.published - 1) % u64::from(DEPTH));
        }
        assert!(
            n < 199 || world.publisher.status().expelled == 1,
            "{} are held",
            liar.held.len()
        );
    }
    assert!(liar.held.len() > KEEP as usize + 12);
    let told = std::iter::from_fn(|| liar.receiver.try_recv().expect("a word"));
    let last = told.last().expect("words");
    assert_eq!(
        last.to_vec(),
        [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "it is told"
    );
    assert_eq!(world.publisher.subscribers(), 1);
    let ids: std::collections::HashSet<u64> = liar.held.iter().map(|b| b.id().0 >> 24).collect();
    assert_eq!(
        ids.len(),
        liar.held.len(),
        "what it holds is not used again"
    );
}

/// Lines from one to the next, all around the ring a multiple of 2^48.
const FAR: u64 = 3 << 45;

/// A publisher of the test's own, which keeps no rule.
struct FalsePublisher {
    readers: Readers,
    pool: Pool,
    ring: LinesRw,
    bell: BellRw,
}

impl FalsePublisher {
    /// A publisher and its only subscriber, which is connected. The pool is assigned.
    fn new() -> (FalsePublisher, Sender, Subscriber) {
        let here = Domain::embedded().expect("a domain");
        let socket = here.socket_path().expect("a socket");
        let pool = topics::pool(&here, PoolOptions::new(1 << 20)).expect("a pool");
        let (lines, ring) = LinesRw::create(DEPTH).expect("lines");
        let (bell, word) = BellRw::create().expect("a bell");
        let bell = Arc::new(bell);
        let shown = move |_| Ok(Arc::clone(&bell));
        let readers = topics::publish(
            &here,
            "camera",
            (lines, DEPTH),
            (topics::Kind::Topic, false),
            shown,
        )
        .expect("the name is free");
        let there = Domain::builder().socket(socket).connect().expect("join");
        let mut subscriber = there.subscribe("camera").expect("subscribe");
        let mut sender = loop {
            assert!(subscriber.try_recv().expect("nothing").is_none());
            if let Some(sender) = readers.try_next().expect("accept") {
                break sender;
            }
        };
        while !sender.try_assign(&pool).expect("assign") {
            assert!(subscriber.try_recv().expect("nothing").is_none());
        }
        let publisher = FalsePublisher {
            readers,
            pool,
            ring,
            bell: word,
        };
        (publisher, sender, subscriber)
    }

    /// Says where to begin: `Word::Go` of the first line.
    fn go(sender: &mut Sender, pool: u32) {
        let mut bytes = [1, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0];
        bytes[1..5].copy_from_slice(&pool.to_le_bytes());
        sender.send(&bytes[..]).expect("said");
    }

    /// Publishes a line with a few bytes, and rings no bell.
    fn publish(&self, writer: &mut Writer) {
        let line = tranship_ring::broadcast::Message {
            kind: 1 << 48,
            content: [writer.tail(), 0, 0, 0, 0, 0],
        };
        let Ok(_) = writer.publish(&self.ring.lines(), line);
    }

    /// Has each line show a number that is later, for ever: of a position in the place of the next line.
    fn run_in_circles(&self) {
        for at in 0..u64::from(DEPTH) {
            let next = (at + 1) * (FAR + 1);
            let Ok(()) = self.ring.lines().set_first(at, sequence(next));
        }
    }
}

/// A receipt that has to end soon.
fn in_time(subscriber: &mut Subscriber) -> Result<Message, Error> {
    let begun = Instant::now();
    let received = subscriber.recv_timeout(Duration::from_millis(50));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    received
}

#[test]
fn lines_that_are_always_later_end_no_call_late() {
    let _dog = Watchdog::new();
    let (publisher, mut sender, mut subscriber) = FalsePublisher::new();
    FalsePublisher::go(&mut sender, publisher.pool.id().0);
    while !subscriber.status().joined {
        assert!(subscriber.try_recv().expect("nothing").is_none());
    }
    publisher.run_in_circles();
    assert!(subscriber.try_recv().expect("nothing").is_none());
    for _ in 0..12_000 {
        assert!(subscriber.try_recv().expect("nothing").is_none());
    }
    assert_eq!(subscriber.missed(), u64::MAX, "their sum is more than that");
    let error = in_time(&mut subscriber).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    drop((sender, publisher.readers));
    let error = subscriber.recv().expect_err("the publisher has ended");
    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
}

#[test]
fn a_word_that_cannot_be_ends_the_connection() {
    let _dog = Watchdog::new();
    let (publisher, mut sender, mut subscriber) = FalsePublisher::new();
    FalsePublisher::go(&mut sender, u32::MAX);
    FalsePublisher::go(&mut sender, u32::MAX);
    let error = in_time(&mut subscriber).expect_err("two first words");
    assert_eq!(error.kind(), ErrorKind::PeerViolation, "{error}");
    drop((sender, publisher.readers));
    let error = in_time(&mut subscriber).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(subscriber.status().publisher, None, "it seeks another one");
}

/// The time for which a subscriber has to see nothing before it may sleep without a limit.
const QUIET: Duration = Duration::from_nanos(T_NS);

/// Takes what the publisher says, until it has said where to begin. Returns a time before that was heard.
fn begins(subscriber: &mut Subscriber) -> Instant {
    loop {
        let before = Instant::now();
        assert!(subscriber.try_recv().expect("nothing").is_none());
        if subscriber.status().joined {
            return before;
        }
    }
}

/// A burst may be under way when the publisher says where to begin, and its next lines may wake nobody.
#[test]
fn the_quiet_time_begins_with_the_first_look_at_the_ring() {
    let _dog = Watchdog::new();
    let (publisher, mut sender, mut subscriber) = FalsePublisher::new();
    let connected = Instant::now();
    assert!(
        subscriber
            .arm()
            .expect("it has its descriptor from here on")
    );
    subscriber.disarm();
    while connected.elapsed() < 2 * QUIET {
        std::hint::spin_loop();
    }
    FalsePublisher::go(&mut sender, publisher.pool.id().0);
    let before = begins(&mut subscriber);
    assert!(subscriber.arm().expect("arm"));
    let took = before.elapsed();
    assert!(took >= QUIET, "it sleeps after {took:?}");
}

/// The bell of the message that was just taken, a signal, or another publisher's bell ends a sleep early.
#[test]
fn a_bell_does_not_end_the_quiet_time() {
    let _dog = Watchdog::new();
    let (publisher, mut sender, mut subscriber) = FalsePublisher::new();
    assert!(
        subscriber
            .arm()
            .expect("it has its descriptor from here on")
    );
    subscriber.disarm();
    FalsePublisher::go(&mut sender, publisher.pool.id().0);
    begins(&mut subscriber);
    let mut writer = Writer::new(0);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                publisher.bell.wake(1);
            }
        });
        let mut early = Vec::new();
        for id in 0..100 {
            // Two: after a single one the next one wakes.
            publisher.publish(&mut writer);
            publisher.publish(&mut writer);
            for id in [2 * id, 2 * id + 1] {
                assert_eq!(subscriber.recv().expect("a message").word, id);
            }
            let taken = Instant::now();
            assert!(subscriber.arm().expect("arm"));
            early.extend(Some(taken.elapsed()).filter(|took| *took < QUIET));
            subscriber.disarm();
        }
        over.store(true, Ordering::Relaxed);
        assert!(early.is_empty(), "it sleeps after {early:?}");
    });
}

#[test]
fn lines_that_are_always_later_let_a_task_go() {
    struct Told(std::sync::atomic::AtomicBool);
    impl std::task::Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }
    let _dog = Watchdog::new();
    let (publisher, mut sender, mut subscriber) = FalsePublisher::new();
    FalsePublisher::go(&mut sender, publisher.pool.id().0);
    begins(&mut subscriber);
    publisher.run_in_circles();
    let told = Arc::new(Told(false.into()));
    let waker = std::task::Waker::from(Arc::clone(&told));
    let mut context = std::task::Context::from_waker(&waker);
    let mut receipt = std::pin::pin!(subscriber.recv_async());
    for _ in 0..3 {
        told.0.store(false, Ordering::Release);
        assert!(receipt.as_mut().poll(&mut context).is_pending());
        assert!(told.0.load(Ordering::Acquire), "it comes again at once");
    }
}

/// A list of more pieces than may be kept could never be taken.
#[test]
fn a_list_of_more_pieces_than_may_be_kept_ends_the_connection() {
    const PIECES: usize = 13;
    let _dog = Watchdog::new();
    let (publisher, mut sender, mut subscriber) = FalsePublisher::new();
    let pool = &publisher.pool;
    // `Word::Go` with nothing to be kept beside the 12 entries of the desk.
    let mut bytes = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[1..5].copy_from_slice(&pool.id().0.to_le_bytes());
    sender.send(&bytes[..]).expect("said");
    begins(&mut subscriber);
    let pieces: Vec<_> = (0..PIECES)
        .map(|_| pool.alloc(8).expect("a buffer").freeze())
        .collect();
    let named = |buffer: &Buffer| topics::named(pool, buffer).expect("the pool's");
    let names: Vec<Named> = pieces.iter().map(named).collect();
    let mut list = pool.alloc(topics::list_len(PIECES)).expect("a list");
    topics::write_list(&names, &mut list);
    let list = list.freeze();
    let Named {
        id,
        offset,
        length,
        serial,
    } = named(&list);
    let line = tranship_ring::broadcast::Message {
        kind: 3 << 48,
        content: [0, id.0, offset, length, serial.into(), 0],
    };
    let Ok(_) = Writer::new(0).publish(&publisher.ring.lines(), line);
    let error = subscriber.recv().expect_err("it cannot be held");
    assert_eq!(error.kind(), ErrorKind::PeerViolation, "{error}");
    assert!(error.to_string().contains("13 pieces"), "{error}");
}

/// A publisher of the test's own, beside others of the name. Returns the number of the lines' file, too.
fn offers(domain: &Domain) -> (Readers, LinesRw, u64) {
    let (lines, ring) = LinesRw::create(DEPTH).expect("lines");
    let (bell, _word) = BellRw::create().expect("a bell");
    let bell = Arc::new(bell);
    let file = std::fs::File::from(lines.try_clone().expect("a descriptor"));
    let inode = file.metadata().expect("its number").ino();
    let readers = topics::publish(
        domain,
        "camera",
        (lines, DEPTH),
        (topics::Kind::Topic, true),
        move |_| Ok(Arc::clone(&bell)),
    );
    (readers.expect("the name is shared"), ring, inode)
}

/// Overwrites the header of a file that this process has mapped.
fn spoil(inode: u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let is_its = |line: &&str| {
        let mut words = line.split_whitespace();
        let is_writable = words.nth(1).is_some_and(|rights| rights.starts_with("rw"));
        is_writable && words.nth(2) == Some(&*inode.to_string())
    };
    let line = maps.lines().find(is_its).expect("it is mapped");
    let (from, _) = line.split_once('-').expect("a range");
    let from = u64::from_str_radix(from, 16).expect("an address");
    let memory = std::fs::File::options().write(true).open("/proc/self/mem");
    let memory = memory.expect("its own memory");
    memory.write_all_at(&[0xff; 64], from).expect("written");
}

/// Publishers of a shared name, and one subscriber.
struct Shared {
    publishers: Vec<Publisher>,
    subscriber: Subscriber,
    /// The manager's: the others end before it.
    here: Domain,
}

impl Shared {
    fn new() -> Shared {
        let here = Domain::embedded().expect("a domain");
        let subscriber = Shared::join(&here).subscribe("camera").expect("subscribe");
        Shared {
            here,
            publishers: Vec::new(),
            subscriber,
        }
    }

    fn join(here: &Domain) -> Domain {
        let socket = here.socket_path().expect("a socket");
        Domain::builder().socket(socket).connect().expect("join")
    }

    /// One more publisher, which the subscriber has to find.
    fn grows(&mut self) {
        let options = TopicOptions::new().shared();
        let publisher = Shared::join(&self.here).publish_with("camera", options);
        self.publishers.push(publisher.expect("publish"));
        let count = self.publishers.len();
        while self.publishers[count - 1].subscribers() == 0 {
            let nothing = self.subscriber.try_recv().expect("no error");
            assert!(nothing.is_none());
        }
        for (word, publisher) in (0..).zip(&mut self.publishers) {
            publisher.send((b"x", word)).expect("send");
        }
        let mut words: Vec<u64> = (0..count)
            .map(|_| self.subscriber.recv().expect("a message").word)
            .collect();
        words.sort_unstable();
        assert!(words.into_iter().eq(0..count as u64));
    }
}

#[test]
fn a_publisher_that_does_not_answer_keeps_no_subscriber_from_others() {
    let _dog = Watchdog::new();
    let mut shared = Shared::new();
    let (_silent, ..) = offers(&shared.here);
    shared.grows();
    shared.grows();
}

#[test]
fn a_publisher_that_does_not_fit_keeps_no_subscriber_from_others() {
    let _dog = Watchdog::new();
    let mut shared = Shared::new();
    shared.grows();
    let (readers, _ring, inode) = offers(&shared.here);
    let accept = || loop {
        if let Some(sender) = readers.try_next().expect("accept") {
            break sender;
        }
    };
    // The subscriber looks for further publishers.
    assert!(shared.subscriber.try_recv().expect("nothing").is_none());
    let sender = accept();
    spoil(inode);
    while sender.topic_gone() == topics::Gone::No {
        let nothing = shared.subscriber.try_recv();
        assert!(nothing.expect("others are there").is_none());
        topics::catch_up(&shared.here);
    }
    shared.grows();
}
