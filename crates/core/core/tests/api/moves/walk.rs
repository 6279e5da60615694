//! Random walks: given away, handed back, shared, and written by the domain that may.

use super::*;
use std::collections::{HashSet, VecDeque};
use tranship_core::{Body, Receiver};
use tranship_testkit::Random;

/// And what it is to be.
struct Has {
    held: Held,
    id: BufferId,
    byte: u8,
    len: usize,
    /// Whether its handle is the one that was given away, so that it can be handed back.
    given: bool,
}

impl Has {
    fn bytes(&self) -> Vec<u8> {
        match &self.held {
            Held::Mut(buf) => buf.to_vec(),
            Held::Shared(buf) => buf.to_vec(),
        }
    }

    fn at(&self) -> *const u8 {
        match &self.held {
            Held::Mut(buf) => buf.view().as_ptr(),
            Held::Shared(buf) => buf.view().as_ptr(),
        }
    }

    fn id(&self) -> BufferId {
        match &self.held {
            Held::Mut(buf) => buf.id(),
            Held::Shared(buf) => buf.id(),
        }
    }
}

struct Way {
    from: usize,
    to: usize,
    sender: Sender,
    receiver: Receiver,
    /// Buffer on its way: id, byte, length, whether it is moved.
    queue: VecDeque<(BufferId, u8, usize, bool)>,
    /// And what on its way back.
    back: VecDeque<(BufferId, u8, usize)>,
}

/// Three domains, of which each has a pool, that do whatever comes to mind with their buffers.
#[test]
fn whatever_is_done_each_buffer_has_what_its_holder_wrote() {
    let mut random = Random::printed("moves");
    for trust in LEVELS {
        let _dog = dog();
        walk(&mut random, trust);
    }
}

fn walk(random: &mut Random, trust: Trust) {
    let a = embedded();
    let domains = [join(&a, "b"), join(&a, "c"), a];
    let pools = domains.each_ref().map(|domain| pool_of(domain, trust));
    for pool in &pools {
        for domain in &domains {
            // Of its own pool a domain may do so anyhow.
            let _ = pool.allow_forward(domain.id());
        }
    }
    let way = |(from, to): (usize, usize)| {
        let options = ChannelOptions::new().lines(4);
        let name = format!("{from}{to}");
        let (sender, receiver) = link_with(&domains[from], &domains[to], &name, options);
        let (queue, back) = Default::default();
        Way {
            from,
            to,
            sender,
            receiver,
            queue,
            back,
        }
    };
    let mut ways = [(0, 1), (1, 2), (2, 0), (1, 0)].map(way);
    let mut has: [Vec<Has>; 3] = Default::default();
    let mut sent = HashSet::new();
    for _ in 0..1000 {
        let d = below(random, 3);
        let one = (!has[d].is_empty()).then(|| below(random, has[d].len()));
        match (random.below(12), one) {
            (0 | 1, _) => alloc(random, &pools[d], &mut has[d]),
            (2, Some(one)) => write(random, &mut has[d][one]),
            (3, Some(one)) => {
                let old = has[d].swap_remove(one);
                let turned = turn(old, &has[d], &sent);
                has[d].push(turned);
            }
            (4, Some(one)) if has[d].len() < 12 => {
                if let Held::Shared(buf) = &has[d][one].held {
                    let held = Held::Shared(buf.clone());
                    let copy = Has {
                        held,
                        given: false,
                        ..has[d][one]
                    };
                    has[d].push(copy);
                }
            }
            (5, Some(one)) => drop(has[d].swap_remove(one)),
            (6 | 7, Some(one)) => {
                let of_d = ways.iter_mut().filter(|way| way.from == d);
                let mut of_d: Vec<_> = of_d.collect();
                let at = below(random, of_d.len());
                let old = has[d].swap_remove(one);
                has[d].extend(send(old, of_d[at], &mut sent));
            }
            (8, Some(one)) => {
                let to_d = ways.iter_mut().filter(|way| way.to == d);
                let mut to_d: Vec<_> = to_d.collect();
                let at = below(random, to_d.len());
                let old = has[d].swap_remove(one);
                has[d].extend(pass(old, to_d[at], &pools));
            }
            (9, _) => {
                let at = below(random, ways.len());
                let from = ways[at].from;
                has[from].extend(take_reply(&mut ways[at]));
            }
            _ => {
                let at = below(random, ways.len());
                let to = ways[at].to;
                has[to].extend(take(&mut ways[at], &pools));
            }
        }
        for (d, all) in has.iter().enumerate() {
            for one in all {
                assert_eq!(one.id(), one.id);
                assert_eq!(one.bytes(), vec![one.byte; one.len], "{} of {d}", one.id);
                let own = pools[d].id() == one.id.pool();
                assert_eq!(access(one.at()), may(one, own, trust), "{} of {d}", one.id);
            }
        }
    }
    drop(has);
    for way in &mut ways {
        while take(way, &pools).is_some() {}
        while take_reply(way).is_some() {}
    }
    pools.iter().for_each(is_whole);
}

/// Access that the kernel gives to the buffer's pages.
fn may(one: &Has, own: bool, trust: Trust) -> Access {
    match (trust, &one.held) {
        (Trust::Full, _) => Access::ReadWrite,
        (Trust::Half, Held::Mut(_)) => Access::ReadWrite,
        (Trust::Half, _) => Access::Read,
        _ if own => Access::ReadWrite,
        _ => Access::Read,
    }
}

fn below(random: &mut Random, n: usize) -> usize {
    usize::try_from(random.below(n as u64)).expect("small")
}

fn alloc(random: &mut Random, pool: &Pool, has: &mut Vec<Has>) {
    let (len, byte) = (1 + below(random, 6000), random.next().to_le_bytes()[0]);
    if has.len() < 12
        && let Ok(mut buf) = pool.try_alloc(len)
    {
        buf.write(0, &vec![byte; len]).expect("inside");
        has.push(Has {
            id: buf.id(),
            held: Held::Mut(buf),
            byte,
            len,
            given: false,
        });
    }
}

fn write(random: &mut Random, one: &mut Has) {
    let Held::Mut(buf) = &mut one.held else {
        return;
    };
    let byte = random.next().to_le_bytes()[0];
    buf.write(0, &vec![byte; one.len])
        .expect("it is ours to write");
    one.byte = byte;
}

/// Frozen, or exclusive again, if nobody else has it.
fn turn(old: Has, others: &[Has], sent: &HashSet<BufferId>) -> Has {
    let was_written = matches!(old.held, Held::Mut(_));
    let held = match old.held {
        Held::Mut(buf) => Held::Shared(buf.freeze()),
        Held::Shared(buf) => {
            let may = !sent.contains(&old.id) && others.iter().all(|other| other.id != old.id);
            let again = buf.try_into_mut();
            assert_eq!(again.is_ok(), may, "{}", old.id);
            again.map_or_else(Held::Shared, Held::Mut)
        }
    };
    let given = old.given && !was_written;
    Has { held, given, ..old }
}

/// Returns the buffer, if it was not sent.
fn send(old: Has, way: &mut Way, sent: &mut HashSet<BufferId>) -> Option<Has> {
    let Has { id, byte, len, .. } = old;
    let is_moved = matches!(old.held, Held::Mut(_));
    let failed = match old.held {
        Held::Mut(buf) => {
            let moved = way.sender.try_send(buf);
            moved.err().map(|failed| failed.map(Held::Mut))
        }
        Held::Shared(buf) => {
            let shared = way.sender.try_send(buf);
            shared.err().map(|failed| failed.map(Held::Shared))
        }
    };
    let Some(failed) = failed else {
        way.queue.push_back((id, byte, len, is_moved));
        sent.insert(id);
        return None;
    };
    let behind = matches!(failed.kind(), ErrorKind::Full | ErrorKind::PoolPending);
    assert!(behind, "{}", failed.error);
    let held = failed.unsent;
    Some(Has { held, ..old })
}

/// What was not passed back, if so: what is of another pool than the sender's, or before anything else of that went this way.
fn pass(old: Has, way: &mut Way, pools: &[Pool; 3]) -> Option<Has> {
    let Has { id, byte, len, .. } = old;
    let may = old.given || matches!(old.held, Held::Mut(_));
    let passed = match old.held {
        Held::Mut(buf) => {
            let passed = way.receiver.send_back(buf);
            passed.map_err(|failed| failed.map(Held::Mut))
        }
        Held::Shared(buf) => {
            let passed = way.receiver.send_back(buf);
            passed.map_err(|failed| failed.map(Held::Shared))
        }
    };
    let Err(failed) = passed else {
        assert!(may && id.pool() == pools[way.from].id());
        way.back.push_back((id, byte, len));
        return None;
    };
    let expected: &[ErrorKind] = match id.pool() {
        _ if !may => &[ErrorKind::BufferNotOwned],
        pool if pool == pools[way.to].id() => &[ErrorKind::BufferNotOwned],
        pool if pool == pools[way.from].id() => &[
            ErrorKind::PoolNotAssigned,
            ErrorKind::PoolPending,
            ErrorKind::Full,
        ],
        _ => &[ErrorKind::PoolNotAssigned],
    };
    assert!(expected.contains(&failed.kind()), "{}", failed.error);
    let held = failed.unsent;
    Some(Has { held, ..old })
}

fn take_reply(way: &mut Way) -> Option<Has> {
    let reply = way.sender.try_recv_back().expect("no lie");
    let Some((id, byte, len)) = way.back.pop_front() else {
        assert!(reply.is_none(), "{reply:?}");
        return None;
    };
    let reply = reply.expect("it is on its way back");
    let held = Held::Shared(buf(reply));
    Some(Has {
        held,
        id,
        byte,
        len,
        given: false,
    })
}

fn take(way: &mut Way, pools: &[Pool; 3]) -> Option<Has> {
    let (id, byte, len, is_moved) = way.queue.pop_front()?;
    let held = match way.receiver.recv().expect("recv").body {
        Body::BufferMut(buf) => Held::Mut(buf),
        Body::Buffer(buf) => Held::Shared(buf),
        other => panic!("{other:?}"),
    };
    let own = &pools[way.to];
    let others = own.id() != id.pool();
    let written = is_moved && others && own.trust().all_write();
    assert_eq!(matches!(held, Held::Mut(_)), written, "{id}");
    Some(Has {
        held,
        id,
        byte,
        len,
        given: is_moved && others,
    })
}
