//! Subscribers that write anything into their desks, or hold more than was agreed: they cost the publisher a bounded
//! number of buffers, and the others nothing.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use tranship_core::topics::{self, Named};
use tranship_core::{Buffer, BufferId, Domain, PoolId, Receiver};
use tranship_ring::broadcast::{DeskRw, LinesRo, ReaderMemory, Reading, Win};
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
        receiver.send_back(&[0]).expect("said");
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
        if let Ok(Some(buffer)) = self.receiver.topic_take(named) {
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
    while !liar.receiver.topic_has(pool) {
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
    assert_eq!(world.publisher.subscribers(), 1);
    let ids: std::collections::HashSet<u64> = liar.held.iter().map(|b| b.id().0 >> 24).collect();
    assert_eq!(
        ids.len(),
        liar.held.len(),
        "what it holds is not used again"
    );
}
