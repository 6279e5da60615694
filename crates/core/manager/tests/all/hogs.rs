//! Others' memory that a domain holds is charged to it, and a rule says what happens to a domain that holds too much.

use crate::ask::{CHUNK, SLOTS, numbers, refused};
use crate::house::House;
use crate::pool::{OTHER, OWNER, Reader, TOTAL, Writer, ruled};
use std::time::Duration;
use tranship_manager::state::{HeldSlot, Input};
use tranship_proto::{
    DomainId, DomainStat, Event, HogAction, HoldStat, PoolStat, RefusalCode, Req, Request,
    StatRecord,
};

const PERIOD: Duration = Duration::from_millis(250);

/// Ends a period, and lets everything be looked through.
fn period(house: &mut House) -> Vec<Event> {
    house.now += PERIOD;
    let mut events = house.step(Input::Tick);
    // A look begins, and the next one finds the domain that holds too much.
    house.now += Duration::from_millis(10);
    events.extend(house.step(Input::Tick));
    house.state.audit().expect("no contradiction");
    events
}

/// Makes a writer with chunks in use, and a reader of another user that holds some of its slots, a chunk each.
fn pair(house: &mut House, chunks: u32) -> (Writer, Reader) {
    let writer = Writer::join(house, OWNER, TOTAL);
    let reader = Reader::join(house, OTHER, &writer);
    for n in 0..chunks {
        assert_eq!(writer.show(house, n, n + 1), Ok(()));
    }
    (writer, reader)
}

fn holds(house: &mut House, writer: &Writer, reader: &Reader, slots: u32, moved: bool) {
    let held = (0..slots).map(|slot| HeldSlot {
        slot,
        generation: 2,
        bytes: CHUNK,
        moved,
    });
    house.held.insert((writer.pool, reader.id), held.collect());
}

fn grant(of: &Writer, chunks: u32) -> Request {
    let (req, pool) = (Req(2), of.pool);
    Request::Grant { req, pool, chunks }
}

fn domain(house: &mut House, of: &Writer, id: DomainId) -> Option<DomainStat> {
    house.stat(of.client).into_iter().find_map(|r| match r {
        StatRecord::Domain(d) if d.domain == id => Some(d),
        _ => None,
    })
}

fn hold(house: &mut House, of: &Writer) -> HoldStat {
    let found = house.stat(of.client).into_iter().find_map(|r| match r {
        StatRecord::Hold(h) => Some(h),
        _ => None,
    });
    found.expect("somebody reads")
}

fn pool(house: &mut House, of: &Writer) -> PoolStat {
    let found = house.stat(of.client).into_iter().find_map(|r| match r {
        StatRecord::Pool(p) if p.pool == of.pool => Some(p),
        _ => None,
    });
    found.expect("it is there")
}

#[test]
fn what_is_held_for_longer_than_linger_is_charged_until_it_is_dropped() {
    let mut house = ruled("linger = \"1s\"");
    let (writer, reader) = pair(&mut house, 3);
    holds(&mut house, &writer, &reader, 3, false);
    for _ in 0..3 {
        period(&mut house);
        let d = domain(&mut house, &writer, reader.id).expect("there");
        assert_eq!(d.charged_bytes(), 0);
    }
    for _ in 0..3 {
        period(&mut house);
    }
    let d = domain(&mut house, &writer, reader.id).expect("there");
    assert_eq!((d.lingering_bytes, d.own_bytes), (3 * CHUNK, 0));
    let h = hold(&mut house, &writer);
    assert_eq!(h.lingering_bytes, 3 * CHUNK);
    assert!(h.held_ms >= Some(1000), "{h:?}");
    let p = pool(&mut house, &writer);
    assert_eq!(
        (p.lingering_bytes, p.granted_bytes),
        (3 * CHUNK, 3 * CHUNK),
        "it stays the pool's"
    );
    house.held.clear();
    period(&mut house);
    let d = domain(&mut house, &writer, reader.id).expect("there");
    assert_eq!(d.lingering_bytes, 0);
    assert_eq!(hold(&mut house, &writer).held_ms, None);
}

/// A moved buffer is the writer's word. In another user's pool it counts like any held buffer.
#[test]
fn what_was_moved_within_a_user_is_charged_at_the_next_look() {
    let mut house = ruled("linger = \"1h\"");
    let (writer, other) = pair(&mut house, 2);
    let reader = Reader::join(&mut house, OWNER, &writer);
    holds(&mut house, &writer, &reader, 2, true);
    holds(&mut house, &writer, &other, 2, true);
    period(&mut house);
    period(&mut house);
    let d = domain(&mut house, &writer, reader.id).expect("there");
    assert_eq!(d.lingering_bytes, 2 * CHUNK);
    let d = domain(&mut house, &writer, other.id).expect("there");
    assert_eq!(d.lingering_bytes, 0);
    house.now += Duration::from_secs(3600);
    period(&mut house);
    let d = domain(&mut house, &writer, other.id).expect("there");
    assert_eq!(d.lingering_bytes, 2 * CHUNK);
    house.part(other.client);
    house.step(Input::ProcessDied { domain: other.id });
    // It ends with the reader, whatever its counters say.
    house.part(reader.client);
    house.step(Input::ProcessDied { domain: reader.id });
    house.state.audit().expect("no contradiction");
    assert_eq!(pool(&mut house, &writer).lingering_bytes, 0);
}

#[test]
fn what_is_not_unmapped_is_charged_too() {
    let mut house = ruled("");
    let (writer, reader) = pair(&mut house, 2);
    writer.give_back(&mut house, 1, 2);
    let d = domain(&mut house, &writer, reader.id).expect("there");
    assert_eq!((d.stranded_bytes, d.charged_bytes()), (CHUNK, CHUNK));
    reader.unmapped(&mut house, 1, 2);
    let d = domain(&mut house, &writer, reader.id).expect("there");
    assert_eq!(d.charged_bytes(), 0);
}

/// A writer's table gives the lengths of its buffers: the charge is at most the pool's size.
#[test]
fn no_more_is_charged_than_there_is() {
    let mut house = ruled("linger = \"10ms\"");
    let (writer, reader) = pair(&mut house, 2);
    let lie = |slot| HeldSlot {
        slot,
        generation: 2,
        bytes: u64::MAX,
        moved: true,
    };
    let held = (0..16).map(lie).collect();
    house.held.insert((writer.pool, reader.id), held);
    period(&mut house);
    period(&mut house);
    let d = domain(&mut house, &writer, reader.id).expect("there");
    assert_eq!(d.lingering_bytes, 2 * CHUNK);
}

#[test]
fn what_is_charged_counts_against_what_the_holder_may_have() {
    let mut house = ruled("linger = \"10ms\"\n[limits]\ndomain_memory = \"512KiB\"");
    let (writer, reader) = pair(&mut house, 6);
    holds(&mut house, &writer, &reader, 6, true);
    let own = Writer::with_pool(&mut house, reader.client, 8);
    assert_eq!(own.grant(&mut house, 1).0, Ok(1));
    period(&mut house);
    period(&mut house);
    let some = own.grant(&mut house, 4).0;
    assert_eq!(
        some,
        Ok(3),
        "of 8 chunks 4 are its own, whatever others say"
    );
    let events = house.ask(reader.client, grant(&own, 1), None);
    let charged = Some((RefusalCode::Charged, CHUNK, 0));
    assert_eq!(numbers(&events), charged);
    let text = refused(&events).map(|refusal| refusal.to_string());
    assert!(text.is_some_and(|text| text.contains("dropping buffers")));
    // Dropping buffers makes room.
    house.held.clear();
    period(&mut house);
    assert_eq!(own.grant(&mut house, 4).0, Ok(4));
    // The writer keeps its own memory, whichever domain holds it.
    assert_eq!(writer.grant(&mut house, 3).0, Ok(2));
    assert_eq!(writer.grant(&mut house, 1).0, Err(RefusalCode::Quota));
}

#[test]
fn a_user_is_charged_for_other_users_memory_only() {
    let mut house = ruled("linger = \"10ms\"\n[limits]\nmemory = \"512KiB\"");
    let writer = Writer::join(&mut house, OTHER, TOTAL);
    for n in 0..4 {
        assert_eq!(writer.show(&mut house, n, n + 1), Ok(()));
    }
    let same = Reader::join(&mut house, OTHER, &writer);
    holds(&mut house, &writer, &same, 4, true);
    let other = Reader::join(&mut house, OTHER + 1, &writer);
    holds(&mut house, &writer, &other, 4, true);
    period(&mut house);
    period(&mut house);
    let own = Writer::with_pool(&mut house, same.client, 8);
    assert_eq!(own.grant(&mut house, 8).0, Ok(4), "they are counted once");
    let own = Writer::with_pool(&mut house, other.client, 8);
    assert_eq!(own.grant(&mut house, 8).0, Ok(4), "four of eight are held");
}

const RULE: &str =
    "linger = \"10ms\"\n[[hog]]\nname = \"one\"\nuid = 2\nover = \"128KiB\"\nfor = \"1s\"\n";

/// Makes a domain a hog, and lets it be judged.
fn overdo(house: &mut House, writer: &Writer, reader: &Reader) {
    holds(house, writer, reader, 4, true);
    for _ in 0..3 {
        period(house);
        assert!(house.notices.is_empty(), "not for a second yet");
    }
    for _ in 0..5 {
        period(house);
    }
}

#[test]
fn a_hog_is_reported_once_and_again_when_it_has_let_go() {
    let mut house = ruled(RULE);
    let (writer, reader) = pair(&mut house, 4);
    overdo(&mut house, &writer, &reader);
    let [notice] = &house.notices[..] else {
        panic!("{:?}", house.notices);
    };
    assert_eq!(
        (notice.domain, notice.charged_bytes, notice.over_bytes),
        (reader.id, 4 * CHUNK, 2 * CHUNK)
    );
    assert_eq!(notice.action, Some(HogAction::Report), "unless a rule says");
    let d = domain(&mut house, &writer, reader.id).expect("there");
    let hog = d.hog.expect("it is one");
    assert_eq!((hog.action, hog.over_bytes), (HogAction::Report, 2 * CHUNK));
    assert!(hog.since_ms >= 1000, "{hog:?}");
    // Around the limit it stays a hog.
    for slots in [2, 3, 2, 4, 2] {
        holds(&mut house, &writer, &reader, slots, true);
        period(&mut house);
        period(&mut house);
    }
    assert_eq!(house.notices.len(), 1);
    holds(&mut house, &writer, &reader, 1, true);
    period(&mut house);
    period(&mut house);
    assert_eq!(house.notices.last().map(|n| n.action), Some(None));
    let d = domain(&mut house, &writer, reader.id).expect("there");
    assert_eq!(d.hog, None);
    house.held.clear();
    for _ in 0..20 {
        period(&mut house);
    }
    assert_eq!(house.notices.len(), 2);
}

#[test]
fn others_and_short_bursts_are_no_hogs() {
    let mut house = ruled(RULE);
    let (writer, reader) = pair(&mut house, 4);
    for n in 0..20 {
        let slots = if n % 4 == 3 { 0 } else { 4 };
        holds(&mut house, &writer, &reader, slots, true);
        period(&mut house);
    }
    let another = Reader::join(&mut house, OTHER + 1, &writer);
    holds(&mut house, &writer, &reader, 0, true);
    holds(&mut house, &writer, &another, 4, true);
    for _ in 0..20 {
        period(&mut house);
    }
    assert!(house.notices.is_empty(), "{:?}", house.notices);
}

#[test]
fn a_throttled_hog_is_granted_little_and_rarely() {
    let mut house = ruled(&format!("{RULE}action = \"throttle\""));
    let (writer, reader) = pair(&mut house, 4);
    let own = Writer::with_pool(&mut house, reader.client, 32);
    assert_eq!(own.grant(&mut house, 4).0, Ok(4));
    overdo(&mut house, &writer, &reader);
    assert_eq!(own.grant(&mut house, 4).0, Ok(1), "no more than it needs");
    let events = house.ask(reader.client, grant(&own, 4), None);
    let is_hog = Some((RefusalCode::Hog, 4 * CHUNK, 2 * CHUNK));
    assert_eq!(numbers(&events), is_hog);
    house.now += PERIOD;
    assert_eq!(own.grant(&mut house, 4).0, Ok(1));
    house.held.clear();
    period(&mut house);
    period(&mut house);
    assert_eq!(own.grant(&mut house, 4).0, Ok(4));
    assert_eq!(own.grant(&mut house, 4).0, Ok(4));
}

#[test]
fn a_hog_that_is_disconnected_counts_as_dead_and_its_process_stays_out() {
    let mut house = ruled(&format!("{RULE}action = \"disconnect\""));
    let (writer, reader) = pair(&mut house, 4);
    holds(&mut house, &writer, &reader, 4, true);
    let mut told = Vec::new();
    for _ in 0..8 {
        told.extend(period(&mut house));
    }
    let left = |e: &Event| matches!(e, Event::ReaderLeft { domain, .. } if *domain == reader.id);
    assert!(told.iter().any(left), "{told:?}");
    assert_eq!(domain(&mut house, &writer, reader.id), None);
    let process = house.process_of(reader.id);
    let refused = house.kept_out(OTHER, process);
    let refusal = refused.expect("it is not let in");
    assert_eq!(refusal.code, RefusalCode::Hog);
    assert_eq!((refusal.asked, refusal.available), (4 * CHUNK, 2 * CHUNK));
    // Another process of that user is.
    house.join(OTHER, None);
    house.state.audit().expect("no contradiction");
}

#[test]
fn a_hog_is_killed_and_where_that_is_not_permitted_disconnected() {
    for may_kill in [true, false] {
        let mut house = ruled(&format!("{RULE}action = \"kill\""));
        house.may_kill = may_kill;
        let (writer, reader) = pair(&mut house, 4);
        overdo(&mut house, &writer, &reader);
        assert_eq!(house.killed, [reader.id]);
        assert_eq!(domain(&mut house, &writer, reader.id), None);
        let process = house.process_of(reader.id);
        let barred = house.is_barred(OTHER, process);
        assert_eq!(barred, !may_kill, "the dead do not come back");
    }
}

#[test]
fn nobody_is_looked_at_where_nobody_reads() {
    let mut house = ruled("");
    let writer = Writer::join(&mut house, OWNER, TOTAL);
    period(&mut house);
    assert_eq!(house.state.deadline(), None);
    let reader = Reader::join(&mut house, OTHER, &writer);
    assert!(house.state.deadline().is_some());
    house.part(reader.client);
    house.step(Input::ProcessDied { domain: reader.id });
    period(&mut house);
    period(&mut house);
    assert_eq!(house.state.deadline(), None);
}

const VICTIM: u32 = OTHER + 1;

/// A writer's table gives its buffers' lengths, and says that they were moved: a buffer of 64 bytes can look as large
/// as the pool.
#[test]
fn one_small_buffer_of_another_users_pool_takes_no_more_than_half_of_a_share() {
    let mut house = ruled("linger = \"10ms\"");
    let liar = Writer::join(&mut house, OTHER, TOTAL);
    for n in 0..32 {
        assert_eq!(liar.show(&mut house, n, n + 1), Ok(()), "{n}");
    }
    let victim = Reader::join(&mut house, VICTIM, &liar);
    let lie = HeldSlot {
        slot: 0,
        generation: 2,
        bytes: u64::MAX,
        moved: true,
    };
    house.held.insert((liar.pool, victim.id), vec![lie]);
    period(&mut house);
    period(&mut house);
    let d = domain(&mut house, &liar, victim.id).expect("there");
    assert_eq!(d.lingering_bytes, 32 * CHUNK);
    // Its share is three quarters of the other half.
    let own = Writer::with_pool(&mut house, victim.client, TOTAL);
    assert_eq!(own.grant(&mut house, 24).0, Ok(12));
    assert_eq!(own.grant(&mut house, 1).0, Err(RefusalCode::Charged));
}

/// Another user's table expels no domain, unless a rule names that user.
#[test]
fn what_lingers_in_another_users_pool_throws_nobody_out() {
    for (action, writers, out) in [
        ("report", "", true),
        ("disconnect", "", false),
        ("kill", "", false),
        ("disconnect", "writers = [7, 3]", true),
        ("kill", "writers = [3]", true),
    ] {
        let mut house = ruled(&format!("{RULE}action = \"{action}\"\n{writers}"));
        let liar = Writer::join(&mut house, VICTIM, TOTAL);
        let victim = Reader::join(&mut house, OTHER, &liar);
        for n in 0..4 {
            assert_eq!(liar.show(&mut house, n, n + 1), Ok(()));
        }
        overdo(&mut house, &liar, &victim);
        let said = house.notices.len();
        assert_eq!(said, usize::from(out), "{action} {writers}");
    }
}

/// A process whose connection is closed may run another program by now (`exec`), with other rights.
#[test]
fn a_hog_without_a_connection_is_not_killed() {
    let mut house = ruled(&format!("{RULE}action = \"kill\""));
    let (writer, reader) = pair(&mut house, 4);
    house.part(reader.client);
    overdo(&mut house, &writer, &reader);
    assert_eq!(house.killed, []);
    assert_eq!(domain(&mut house, &writer, reader.id), None);
    let process = house.process_of(reader.id);
    assert!(house.is_barred(OTHER, process));
}

/// However many users there are, a tick reads a bounded number, and the others have their turn in the next.
#[test]
fn many_users_have_their_turns() {
    const USERS: u32 = 1000;
    // The words of one look: its fixed cost, a pool's counters, and its table.
    let look = 64 + u64::from(SLOTS) * 9;
    let mut house = ruled("");
    let writer = Writer::join(&mut house, OWNER, TOTAL);
    let readers: Vec<Reader> = (0..USERS)
        .map(|n| Reader::join(&mut house, 10 + n, &writer))
        .collect();
    for reader in &readers {
        holds(&mut house, &writer, reader, SLOTS, false);
    }
    house.now += PERIOD;
    house.step(Input::Tick);
    let mut ticks = 0;
    while house.looked.len() < readers.len() {
        ticks += 1;
        let most = (1 << 17) / look + 1;
        assert!(house.looks <= most, "{} looks in a tick", house.looks);
        (house.looks, house.now) = (0, house.now + Duration::from_millis(10));
        house.step(Input::Tick);
    }
    assert_eq!(ticks, 1, "nobody waits for longer than it takes");
    house.state.audit().expect("no contradiction");
}
