//! Random programs on two channels, one each way, beside a model of them: plain bytes, two queues, and the writers of
//! each buffer. The same program has the same outcome at every address and level of trust, up to the differences that
//! the model states. A failing program is reduced to a smaller one.

use crate::kit::*;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use std::collections::VecDeque;
use tranship_core::{
    Aggregate, Body, Buffer, BufferMut, ChannelOptions, DomainId, ErrorKind, Message, Pool,
    PoolOptions, Receiver, Sender, Trust,
};
use tranship_testkit::Random;

/// The whole pool is one chunk, so that all of it can be had at the end.
const POOL: usize = 4 << 20;
const MOST_BYTES: usize = 20_000;
/// Most things that a party has, and most that are on their way to it.
const MOST_THINGS: usize = 12;
const MOST_UNDER_WAY: usize = 10;

/// Operation of a party. Things have numbers, which are taken modulo the number that the party has.
#[derive(Clone, Debug)]
enum Op {
    Alloc(usize),
    Write(usize, usize, u8),
    Freeze(usize),
    Clone(usize),
    Slice(usize, usize, usize),
    /// A frozen buffer of the party's own that was never sent becomes writable again; of another one the bytes are copied.
    MakeMut(usize),
    Drop(usize),
    Inline(usize),
    /// Sends it; keeps it too, or not.
    Send(usize, bool),
    Move(usize),
    /// All frozen ones, at most as many.
    Gather(usize),
    Recv,
    Pass(usize),
    TakeBack,
}

fn ops() -> impl Strategy<Value = Vec<(bool, Op)>> {
    let at = || any::<u16>().prop_map(usize::from);
    let op = prop_oneof![
        3 => (0..MOST_BYTES).prop_map(Op::Alloc),
        3 => (at(), at(), any::<u8>()).prop_map(|(i, at, byte)| Op::Write(i, at, byte)),
        3 => at().prop_map(Op::Freeze),
        1 => at().prop_map(Op::Clone),
        1 => (at(), at(), at()).prop_map(|(i, from, to)| Op::Slice(i, from, to)),
        1 => at().prop_map(Op::MakeMut),
        2 => at().prop_map(Op::Drop),
        1 => (0..41usize).prop_map(Op::Inline),
        4 => (at(), any::<bool>()).prop_map(|(i, keep)| Op::Send(i, keep)),
        4 => at().prop_map(Op::Move),
        1 => (1..6usize).prop_map(Op::Gather),
        8 => Just(Op::Recv),
        3 => at().prop_map(Op::Pass),
        2 => Just(Op::TakeBack),
    ];
    prop::collection::vec((any::<bool>(), op), 1..120)
}

/// Way by which memory reaches the other end.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    /// `local:`: the handle itself.
    Inside,
    /// `shm:`: the same memory, or at level `none` a copy.
    Shared,
    Carried,
}

#[derive(Debug)]
enum Buf {
    Mine(BufferMut),
    Frozen(Buffer),
}

/// Owner of a buffer's pool, and the pool's level.
type Home = (usize, Trust);

/// The level of the pools for copies.
const COPIES: Trust = Trust::Producer;

/// Thing of a party, with the model's knowledge of it.
#[derive(Debug)]
struct Thing {
    buf: Buf,
    bytes: Vec<u8>,
    home: Home,
    /// The handle was given away, so it can be handed back.
    moved: bool,
}

/// A message on its way.
#[derive(Debug)]
enum Sent {
    Inline(Vec<u8>),
    Shared(Vec<u8>, Home),
    /// A moved thing: its bytes and its home.
    Moved(Vec<u8>, Home),
    All(Vec<u8>),
}

struct Party {
    pool: Pool,
    to: Sender,
    from: Receiver,
    things: Vec<Thing>,
    /// Messages on the way here, with their words; and those that were sent back to here.
    coming: VecDeque<(u64, Sent)>,
    back: VecDeque<(u64, Vec<u8>, Home)>,
}

struct Run {
    way: Way,
    trust: Trust,
    parties: [Party; 2],
    words: u64,
}

impl Run {
    fn new(world: &World, address: &str, trust: Trust) -> Run {
        let way = match address.split_once(':').expect("a scheme").0 {
            "local" => Way::Inside,
            "shm" => Way::Shared,
            _ => Way::Carried,
        };
        // Inside a process one domain has both ends: only that domain may send on a buffer of another.
        let domains = match way {
            Way::Inside => [&world.a; 2],
            _ => [&world.a, &world.b],
        };
        let pools = domains.map(|domain| {
            let options = PoolOptions::new(POOL as u64).chunk_bytes(POOL as u64);
            domain.create_pool(options.trust(trust)).expect("pool")
        });
        let copies = domains.map(|domain| pool(domain, 2 * POOL as u64));
        let receives = |at: usize| ChannelOptions::new().lines(16).snapshots(copies[at].id());
        let sends = || ChannelOptions::new().lines(16);
        let (there, back) = (format!("{address}1"), format!("{address}2"));
        let (to_b, from_a) = connect(domains, &there, sends(), receives(1));
        let backward = [domains[1], domains[0]];
        let (to_a, from_b) = connect(backward, &back, sends(), receives(0));
        if way == Way::Shared {
            // Back to their writers, that is.
            let peers: [DomainId; 2] = [to_b.status().peer, to_a.status().peer];
            for (own, peer) in [(&pools, peers), (&copies, peers)] {
                for (pool, peer) in own.iter().zip(peer) {
                    pool.allow_forward(peer).expect("its own pool");
                }
            }
        }
        let [pool_a, pool_b] = pools;
        let party = |pool, to, from| Party {
            pool,
            to,
            from,
            things: Vec::new(),
            coming: VecDeque::new(),
            back: VecDeque::new(),
        };
        Run {
            way,
            trust,
            parties: [party(pool_a, to_b, from_b), party(pool_b, to_a, from_a)],
            words: 0,
        }
    }

    fn word(&mut self) -> u64 {
        self.words += 1;
        self.words
    }

    /// Does the operation, if the party has the things that it needs.
    fn step(&mut self, who: usize, op: &Op) {
        let (way, trust, word) = (self.way, self.trust, self.word());
        let [a, b] = &mut self.parties;
        let (me, peer) = if who == 0 { (a, b) } else { (b, a) };
        let room = me.things.len() < MOST_THINGS;
        let may_send = peer.coming.len() < MOST_UNDER_WAY;
        match *op {
            Op::Alloc(len) if room => {
                let bytes = pattern(word, len);
                let mut buf = me.pool.alloc(len).expect("alloc");
                buf.write(0, &bytes).expect("inside");
                me.things.push(Thing {
                    buf: Buf::Mine(buf),
                    bytes,
                    home: (who, trust),
                    moved: false,
                });
            }
            Op::Write(i, at, byte) => {
                let Some(thing) = me.mine(i) else { return };
                let Buf::Mine(buf) = &mut thing.buf else {
                    return;
                };
                let at = at % (thing.bytes.len() + 1);
                let fits = at < thing.bytes.len();
                let written = buf.write(at, &[byte]);
                assert_eq!(written.is_ok(), fits, "{way:?} {trust:?}");
                if fits {
                    thing.bytes[at] = byte;
                }
            }
            Op::Freeze(i) => {
                let Some(at) = me.mine_at(i) else { return };
                let thing = me.things.swap_remove(at);
                let Buf::Mine(buf) = thing.buf else { return };
                let buf = Buf::Frozen(buf.freeze());
                let moved = false;
                me.things.push(Thing {
                    buf,
                    moved,
                    ..thing
                });
            }
            Op::Clone(i) if room => {
                if let Some((buf, bytes, home)) = me.frozen(i) {
                    me.things.push(Thing::frozen(buf, bytes, home));
                }
            }
            Op::Slice(i, from, to) if room => {
                if let Some((buf, bytes, home)) = me.frozen(i) {
                    let (from, to) = (from % (bytes.len() + 1), to % (bytes.len() + 1));
                    let range = from.min(to)..from.max(to);
                    let piece = bytes[range.clone()].to_vec();
                    me.things.push(Thing::frozen(buf.slice(range), piece, home));
                }
            }
            Op::MakeMut(i) => {
                let Some(at) = me.frozen_at(i) else { return };
                let thing = me.things.swap_remove(at);
                let Buf::Frozen(buf) = thing.buf else { return };
                let made = match buf.id().pool() == me.pool.id() {
                    true => buf.try_into_mut(),
                    false => Err(buf),
                };
                let made = made.unwrap_or_else(|buf| me.pool.copy(&buf.to_vec()).expect("room"));
                me.things.push(Thing {
                    moved: false,
                    home: (who, trust),
                    buf: Buf::Mine(made),
                    ..thing
                });
            }
            Op::Drop(i) if !me.things.is_empty() => {
                let at = i % me.things.len();
                me.things.swap_remove(at);
            }
            Op::Inline(len) if may_send => {
                let bytes = pattern(word, len);
                me.to.send((&bytes[..], word)).expect("send");
                peer.coming.push_back((word, Sent::Inline(bytes)));
            }
            Op::Send(i, keep) if may_send => {
                let Some((buf, bytes, home)) = me.frozen(i) else {
                    return;
                };
                if !keep && let Some(at) = me.frozen_at(i) {
                    me.things.swap_remove(at);
                }
                me.to.send((buf, word)).expect("send");
                peer.coming.push_back((word, Sent::Shared(bytes, home)));
            }
            Op::Move(i) if may_send => {
                let Some(at) = me.mine_at(i) else { return };
                let thing = me.things.swap_remove(at);
                let Buf::Mine(buf) = thing.buf else { return };
                me.to.send((buf, word)).expect("move");
                let moved = Sent::Moved(thing.bytes, thing.home);
                peer.coming.push_back((word, moved));
            }
            Op::Gather(most) if may_send => {
                let (mut all, mut bytes) = (Aggregate::new(), Vec::new());
                for thing in me.things.iter().take(most) {
                    if let Buf::Frozen(buf) = &thing.buf {
                        all.push_back(buf.clone()).expect("room");
                        bytes.extend_from_slice(&thing.bytes);
                    }
                }
                if !all.is_empty() || !all.pieces().is_empty() {
                    all.set_list_pool(&me.pool);
                    me.to.send((all, word)).expect("send");
                    peer.coming.push_back((word, Sent::All(bytes)));
                }
            }
            Op::Recv if room && !me.coming.is_empty() => {
                let message = me.from.recv().expect("what is on its way");
                me.take(message, who, way);
            }
            Op::Pass(i) if peer.back.len() < MOST_UNDER_WAY => me.pass(peer, i, word, who, way),
            Op::TakeBack if room => me.take_back(way),
            _ => {}
        }
    }

    /// Checks that every byte is the model's.
    fn check(&self) {
        for thing in self.parties.iter().flat_map(|party| &party.things) {
            let found = match &thing.buf {
                Buf::Mine(buf) => buf.to_vec(),
                Buf::Frozen(buf) => buf.to_vec(),
            };
            assert!(found == thing.bytes, "{:?} {:?}", self.way, self.trust);
        }
    }

    /// Lets everything on its way arrive; then all of both pools can be allocated.
    fn end(self) {
        let way = self.way;
        let [mut a, mut b] = self.parties;
        for (who, me) in [&mut a, &mut b].into_iter().enumerate() {
            while !me.coming.is_empty() {
                me.things.clear();
                let message = me.from.recv().expect("what is on its way");
                me.take(message, who, way);
            }
            while !me.back.is_empty() {
                me.things.clear();
                me.take_back(way);
            }
            me.things.clear();
        }
        drop(a.to);
        let end = b.from.recv().expect_err("closed");
        assert_eq!(end.kind(), ErrorKind::PeerGone, "{end}");
        drop((a.from, b.from, b.to));
        for pool in [a.pool, b.pool] {
            drop(pool.alloc(POOL).expect("all of it"));
        }
    }
}

impl Thing {
    fn frozen(buf: Buffer, bytes: Vec<u8>, home: Home) -> Thing {
        Thing {
            buf: Buf::Frozen(buf),
            bytes,
            home,
            moved: false,
        }
    }
}

impl Party {
    fn at(&self, i: usize, wanted: impl Fn(&Buf) -> bool) -> Option<usize> {
        let found = |(at, thing): (usize, &Thing)| wanted(&thing.buf).then_some(at);
        let all: Vec<usize> = self.things.iter().enumerate().filter_map(found).collect();
        all.get(i.checked_rem(all.len())?).copied()
    }

    fn mine_at(&self, i: usize) -> Option<usize> {
        self.at(i, |buf| matches!(buf, Buf::Mine(_)))
    }

    fn frozen_at(&self, i: usize) -> Option<usize> {
        self.at(i, |buf| matches!(buf, Buf::Frozen(_)))
    }

    fn mine(&mut self, i: usize) -> Option<&mut Thing> {
        let at = self.mine_at(i)?;
        self.things.get_mut(at)
    }

    /// A copy of its handle.
    fn frozen(&self, i: usize) -> Option<(Buffer, Vec<u8>, Home)> {
        let thing = &self.things[self.frozen_at(i)?];
        match &thing.buf {
            Buf::Frozen(buf) => Some((buf.clone(), thing.bytes.clone(), thing.home)),
            Buf::Mine(_) => None,
        }
    }

    fn take(&mut self, message: Message, who: usize, way: Way) {
        let (word, sent) = self.coming.pop_front().expect("looked");
        assert_eq!(message.word, word);
        let found = message.to_vec();
        // Bytes that were copied or carried are in a pool of one's own.
        let home = |from: Home| match (way, from.1) {
            (Way::Carried, _) | (Way::Shared, Trust::None) => (who, COPIES),
            _ => from,
        };
        match (message.body, sent) {
            (Body::Inline(_), Sent::Inline(bytes)) => assert!(found == bytes),
            (Body::Buffer(buf), Sent::Shared(bytes, from)) => {
                assert!(found == bytes);
                self.things.push(Thing::frozen(buf, bytes, home(from)));
            }
            (body, Sent::Moved(bytes, from)) => {
                assert!(found == bytes);
                let copied = home(from) != from || way == Way::Carried;
                let home = home(from);
                let written = way == Way::Inside || copied || (home.0 != who && home.1.all_write());
                let buf = match body {
                    Body::BufferMut(buf) => Buf::Mine(buf),
                    Body::Buffer(buf) => Buf::Frozen(buf),
                    other => panic!("a moved buffer is {other:?}"),
                };
                assert_eq!(matches!(buf, Buf::Mine(_)), written, "{way:?} {home:?}");
                self.things.push(Thing {
                    buf,
                    bytes,
                    home,
                    moved: true,
                });
            }
            (Body::Aggregate(all), Sent::All(bytes)) => {
                assert!(found == bytes);
                drop(all);
            }
            (body, sent) => panic!("{sent:?} is {body:?}"),
        }
    }

    fn pass(&mut self, peer: &mut Party, i: usize, word: u64, who: usize, way: Way) {
        let all: Vec<usize> = (0..self.things.len())
            .filter(|at| self.things[*at].moved)
            .collect();
        let Some(at) = i.checked_rem(all.len()).map(|i| all[i]) else {
            return;
        };
        // The buffer is at its home already: nothing to give back.
        let own = self.things[at].home.0 == who;
        if own && way == Way::Inside {
            return;
        }
        let thing = self.things.swap_remove(at);
        let passed = match thing.buf {
            Buf::Mine(buf) => {
                let passed = self.from.send_back((buf, word));
                passed.map_err(|failed| failed.map(|(buf, _)| Buf::Mine(buf)))
            }
            Buf::Frozen(buf) => {
                let passed = self.from.send_back((buf, word));
                passed.map_err(|failed| failed.map(|(buf, _)| Buf::Frozen(buf)))
            }
        };
        match passed {
            Ok(()) => {
                assert!(!own, "{way:?}: there was nothing to give back");
                peer.back.push_back((word, thing.bytes, thing.home));
            }
            Err(failed) => {
                assert!(own, "{way:?}: {}", failed.error);
                assert_eq!(failed.kind(), ErrorKind::BufferNotOwned, "{}", failed.error);
                let buf = failed.unsent;
                self.things.push(Thing { buf, ..thing });
            }
        }
    }

    fn take_back(&mut self, way: Way) {
        let found = self.to.try_recv_back().expect("what came back");
        let Some((word, bytes, home)) = self.back.pop_front() else {
            assert!(found.is_none(), "nothing was passed back");
            return;
        };
        let message = found.expect("what was passed back is there at once");
        assert_eq!(message.word, word);
        assert!(message.to_vec() == bytes);
        let buf = match message.body {
            Body::BufferMut(buf) if way == Way::Inside => Buf::Mine(buf),
            Body::Buffer(buf) if way != Way::Inside => Buf::Frozen(buf),
            other => panic!("{way:?}: {other:?} came back"),
        };
        self.things.push(Thing {
            buf,
            bytes,
            home,
            moved: true,
        });
    }
}

fn conforms(scheme: &str, cases: u32) {
    let _dog = dog();
    let world = World::new();
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let config = ProptestConfig {
        cases: if torture { 50 * cases } else { cases },
        rng_seed: RngSeed::Fixed(Random::printed(scheme).seed()),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    };
    let levels = [Trust::None, Trust::Producer, Trust::Half, Trust::Full];
    let number = std::cell::Cell::new(0u32);
    let outcome = TestRunner::new(config).run(&(0..levels.len(), ops()), |(level, ops)| {
        number.set(number.get() + 1);
        let name = format!("model-{}-", number.get());
        let all = world.addresses(&name);
        let address = all.iter().find(|a| a.split(':').next() == Some(scheme));
        let mut run = Run::new(&world, address.expect("known"), levels[level]);
        for (second, op) in &ops {
            run.step(usize::from(*second), op);
            run.check();
        }
        run.end();
        Ok(())
    });
    outcome.unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn local() {
    conforms("local", 300);
}

#[test]
fn shm() {
    conforms("shm", 300);
}

#[test]
fn copy() {
    conforms("copy", 80);
}

#[test]
fn tcp_plain() {
    conforms("tcp+plain", 80);
}

#[test]
fn tcp() {
    conforms("tcp", 80);
}
