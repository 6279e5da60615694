//! Stored descriptors that the next manager takes back, by the state alone: nothing is counted twice, and nothing is
//! held without a holder.

use crate::ask::{CHUNK, table};
use crate::house::House;
use crate::pool::{OWNER, Reader, Writer, house as made};
use tranship_manager::Limits;
use tranship_manager::state::{Action, Facts, Fd, FdToken, Input, Sealed, Stored};
use tranship_proto::{DomainId, PoolId, Request};

/// Returns the stored descriptors of an orphan of two chunks with a reader.
fn stored(house: &mut House) -> Vec<Stored> {
    house.alive = vec![(0, 1)];
    let writer = Writer::join(house, OWNER, 2);
    writer.grant(house, 2).0.expect("memory");
    let _reader = Reader::join(house, OWNER, &writer);
    for index in 0..2 {
        writer.show(house, index, index + 1).expect("shown");
    }
    assert!(house.state.stored().is_empty(), "its writer shows it again");
    let before = house.state.stored_version();
    house.ask(writer.client, Request::Goodbye, []);
    assert_ne!(house.state.stored_version(), before);
    house.state.audit().expect("sound");
    house.state.stored().into_iter().map(|(s, _)| s).collect()
}

/// Returns the shell's facts about a stored descriptor.
fn facts(stored: &Stored) -> Facts {
    let (size, header) = match stored {
        Stored::Table { shape, .. } => {
            let [(header, size)] = table(*shape);
            (size, Some(header))
        }
        _ => (CHUNK, None),
    };
    Facts {
        sealed: Sealed::OneWriter,
        size,
        header,
        inode: 5,
        ..Facts::default()
    }
}

fn handed(all: &[Stored]) -> Vec<(Stored, Fd)> {
    let numbered = all.iter().zip(1_000_000..);
    let each = numbered.map(|(s, n)| {
        let (token, facts) = (FdToken(n), facts(s));
        (s.clone(), Fd { token, facts })
    });
    each.collect()
}

fn closed(actions: &[Action]) -> usize {
    actions
        .iter()
        .filter(|a| matches!(a, Action::Close(_)))
        .count()
}

#[test]
fn what_is_taken_back_is_what_was_stored_and_goes_with_its_readers() {
    let all = stored(&mut made(8, Limits::default()));
    assert_eq!(all.len(), 4, "{all:?}");
    let mut next = made(8, Limits::default());
    let actions = next.state.take_stored(handed(&all));
    assert_eq!(closed(&actions), 0);
    next.state.audit().expect("sound");
    let again: Vec<Stored> = next.state.stored().into_iter().map(|(s, _)| s).collect();
    assert_eq!(again, all);
    // Nothing is given up as long as the reader lives, however long that is.
    let passes = |next: &mut House| {
        for _ in 0..50 {
            next.now += std::time::Duration::from_secs(60);
            next.step(Input::Tick);
        }
    };
    passes(&mut next);
    assert_eq!(next.state.stored().len(), 4);
    let awaited = next.state.awaited();
    let [(pool, reader, token)] = awaited[..] else {
        panic!("{awaited:?}");
    };
    let actions = next.state.awaited_ended(pool, reader);
    assert_eq!(actions, [Action::Close(token)]);
    next.step(Input::Closed { token });
    passes(&mut next);
    assert!(next.state.stored().is_empty());
    next.state.audit().expect("sound");
}

#[test]
fn what_does_not_fit_is_closed_and_counts_nothing() {
    let all = stored(&mut made(8, Limits::default()));
    type Bend = fn(&mut Vec<(Stored, Fd)>);
    let bends: [Bend; 8] = [
        |a| a.retain(|(s, _)| !matches!(s, Stored::Table { .. })),
        |a| a.retain(|(s, _)| !matches!(s, Stored::Chunk { .. })),
        |a| {
            a.iter_mut()
                .for_each(|(_, fd)| fd.facts.sealed = Sealed::No)
        },
        |a| a.iter_mut().for_each(|(_, fd)| fd.facts.size = 4096),
        |a| a.iter_mut().for_each(|(_, fd)| fd.facts.header = None),
        |a| {
            for (s, _) in a {
                if let Stored::Chunk { index, .. } = s {
                    *index = 7;
                }
            }
        },
        |a| {
            for (s, _) in a {
                if let Stored::Table { writer, .. } = s {
                    *writer = DomainId(0);
                }
            }
        },
        |a| {
            for (s, _) in a {
                let (Stored::Table { pool, .. }
                | Stored::Chunk { pool, .. }
                | Stored::Reader { pool, .. }) = s;
                *pool = PoolId(0);
            }
        },
    ];
    for (n, bend) in bends.into_iter().enumerate() {
        let mut next = made(8, Limits::default());
        let mut bent = handed(&all);
        bend(&mut bent);
        let count = bent.len();
        let actions = next.state.take_stored(bent);
        assert_eq!(closed(&actions), count, "{n}");
        assert!(next.state.stored().is_empty(), "{n}");
        next.state.audit().expect("sound");
    }
}

#[test]
fn a_total_that_is_smaller_now_is_no_reason_to_lose_it() {
    let all = stored(&mut made(8, Limits::default()));
    let mut next = made(1, Limits::default());
    assert_eq!(closed(&next.state.take_stored(handed(&all))), 0);
    next.state.audit().expect("sound");
    let writer = Writer::join(&mut next, OWNER, 1);
    writer
        .grant(&mut next, 1)
        .0
        .expect_err("more than there is");
}
