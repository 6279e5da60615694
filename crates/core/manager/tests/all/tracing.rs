//! Domains that have a pool are told to record their operations on it. The records are kept, within bounds, and shown
//! to allowed clients.

use crate::ask::{code, object};
use crate::house::{House, Object};
use crate::pool::{OTHER, OWNER, Reader, TOTAL, Writer, house as of_chunks};
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Input};
use tranship_proto::{DomainId, Event, PoolId, RefusalCode, Req, Request};

fn house() -> House {
    of_chunks(TOTAL, Limits::default())
}

fn ring() -> Object {
    object(9, 4096, 4096 + 4096 * 64)
}

fn trace(
    house: &mut House,
    client: ClientId,
    pool: PoolId,
    on: bool,
    while_here: bool,
) -> Vec<Event> {
    let request = Request::Trace {
        req: Req(7),
        pool,
        on,
        while_here,
    };
    let events = house.ask(client, request, None);
    house.state.audit().expect("no contradiction");
    events
}

fn traced(events: &[Event]) -> Vec<bool> {
    let on = |e: &Event| match e {
        Event::Traced { on, .. } => Some(*on),
        _ => None,
    };
    events.iter().filter_map(on).collect()
}

/// Makes a domain with a traced pool, which has shown its ring.
fn recorder(house: &mut House, uid: u32) -> (ClientId, DomainId) {
    let (client, domain) = house.join(uid, None);
    let pool = Writer::with_pool(house, client, 8).pool;
    trace(house, client, pool, true, false);
    show(house, client, ring());
    (client, domain)
}

/// Ends a domain that records.
fn end(house: &mut House, client: ClientId) {
    house.ask(client, Request::Goodbye, None);
    house.step(Input::Parted { client });
    house.state.audit().expect("no contradiction");
}

fn show(house: &mut House, client: ClientId, object: Object) {
    house.ask(client, Request::ShowTrace, [object]);
    house.state.audit().expect("no contradiction");
}

/// Returns the domains whose records this client may see, and whether each is alive.
fn rings(house: &mut House, client: ClientId) -> Vec<(DomainId, bool)> {
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let events = house.ask(client, Request::NextTrace { req: Req(9), after }, None);
        match events.first() {
            Some(Event::TraceRing {
                number,
                domain,
                alive,
                ..
            }) => {
                assert!(*number > after);
                after = *number;
                found.push((*domain, *alive));
            }
            Some(Event::TraceEnd { .. }) => return found,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn all_who_have_the_pool_are_told_once() {
    let mut house = house();
    let writer = Writer::join(&mut house, OWNER, 8);
    let _reader = Reader::join(&mut house, OWNER, &writer);
    let (tool, _) = house.join(OWNER, None);
    let (follower, _) = house.join(OWNER, None);
    let first = trace(&mut house, tool, writer.pool, true, false);
    assert_eq!(traced(&first), [true; 2]);
    let again = trace(&mut house, tool, writer.pool, true, false);
    assert!(traced(&again).is_empty());
    // A reader that comes later.
    let (req, pool) = (Req(7), writer.pool);
    let _second = Reader::join(&mut house, OWNER, &writer);
    // Two followers want it: tracing ends with the second.
    assert!(traced(&trace(&mut house, follower, pool, true, true)).is_empty());
    let off = trace(&mut house, tool, pool, false, false);
    assert!(traced(&off).is_empty() && off.contains(&Event::Tracing { req, on: true }));
    let events = house.step(Input::HungUp { client: follower });
    assert_eq!(traced(&events), [false; 3]);
    house.state.audit().expect("no contradiction");
}

#[test]
fn only_whose_it_is_may_trace_and_see() {
    let mut house = house();
    let [mine, theirs] = [OWNER, OTHER].map(|uid| Writer::join(&mut house, uid, 8));
    let events = trace(&mut house, theirs.client, mine.pool, true, false);
    assert_eq!(code(&events), Some(RefusalCode::NotYours), "{events:?}");
    let events = trace(&mut house, theirs.client, theirs.pool, true, false);
    assert_eq!(traced(&events), [true]);
    trace(&mut house, mine.client, mine.pool, true, false);
    for writer in [&mine, &theirs] {
        show(&mut house, writer.client, ring());
    }
    assert_eq!(rings(&mut house, theirs.client).len(), 1);
    assert_eq!(rings(&mut house, mine.client).len(), 2);
    let gone = trace(&mut house, mine.client, PoolId(4711), true, false);
    assert!(matches!(gone[..], [Event::Refused { .. }]), "{gone:?}");
}

#[test]
fn what_is_shown_is_one_of_its_kind_and_outlives_its_domain_within_bounds() {
    let mut house = house();
    let (tool, _) = house.join(OWNER, None);
    let pool = Writer::with_pool(&mut house, tool, 8).pool;
    trace(&mut house, tool, pool, true, false);
    let (header, bytes) = ring();
    for bad in [
        (header, bytes - 4096),
        object(9, 4095, bytes),
        object(8, 4096, bytes),
    ] {
        show(&mut house, tool, bad);
    }
    assert_eq!(rings(&mut house, tool), []);
    let mut all = Vec::new();
    for _ in 0..50 {
        let (client, domain) = recorder(&mut house, OWNER);
        // The second ring takes the first one's place.
        show(&mut house, client, ring());
        end(&mut house, client);
        all.push((domain, false));
    }
    assert_eq!(rings(&mut house, tool), all[50 - 32..]);
    // A living domain's records are not dropped for another's.
    let mut living = Vec::new();
    for _ in 0..260 {
        let (_, domain) = recorder(&mut house, OWNER);
        living.push((domain, true));
    }
    let kept = rings(&mut house, tool);
    assert_eq!(kept[..32], all[50 - 32..]);
    assert_eq!(kept[32..], living[..256]);
}

/// A level is not an event: a domain that was not told of on, off and on again is told that it is on.
#[test]
fn who_does_not_read_is_told_at_last_how_it_is() {
    let mut house = house();
    let writer = Writer::join(&mut house, OTHER, 8);
    let victim = Reader::join(&mut house, OWNER, &writer);
    let leaves = Reader::join(&mut house, OWNER, &writer);
    for on_at_last in [true, false] {
        house.deaf = [victim.client, leaves.client].into();
        let mut told = 0;
        for n in 0..2001 {
            let on = (n % 2 == 0) == on_at_last;
            let events = trace(&mut house, writer.client, writer.pool, on, false);
            // One message is for the writer itself.
            told += traced(&events).len() - 1;
        }
        assert!(told <= 2 * 256, "{told} messages to two that do not read");
        house.deaf.clear();
        let mut last = None;
        for _ in 0..told / 2 {
            let client = victim.client;
            let events = house.step(Input::Sent { client });
            last = traced(&events).last().copied().or(last);
            house.state.audit().expect("no contradiction");
        }
        assert_eq!(last, Some(on_at_last));
        // The other follower leaves, and then no longer has the pool's trace.
        if on_at_last {
            let client = leaves.client;
            for _ in 0..told / 2 {
                house.step(Input::Sent { client });
            }
        } else {
            house.part(leaves.client);
        }
        house.state.audit().expect("no contradiction");
    }
    let events = house.ask(victim.client, Request::Stat { req: Req(1) }, None);
    assert!(!events.is_empty(), "it is there");
}

#[test]
fn who_has_nothing_that_is_traced_shows_nothing() {
    let mut house = house();
    let writer = Writer::join(&mut house, OWNER, 8);
    let reader = Reader::join(&mut house, OWNER, &writer);
    let (other, _) = house.join(OWNER, None);
    let all = [writer.client, reader.client, other];
    for client in all {
        show(&mut house, client, ring());
    }
    assert_eq!(rings(&mut house, writer.client), []);
    trace(&mut house, writer.client, writer.pool, true, false);
    for client in all {
        show(&mut house, client, ring());
    }
    assert_eq!(rings(&mut house, writer.client).len(), 2);
}

#[test]
fn each_user_has_its_share_of_what_is_kept() {
    let mut house = house();
    let count = |house: &mut House, client, alive| {
        let all = rings(house, client);
        all.iter().filter(|(_, a)| *a == alive).count()
    };
    // Three quarters of the rest that the others leave.
    for (uid, its) in [(OTHER, 192), (OTHER + 1, 48), (OTHER + 2, 12)] {
        let all: Vec<_> = (0..200).map(|_| recorder(&mut house, uid).0).collect();
        assert_eq!(count(&mut house, all[0], true), its, "{uid}");
    }
    let (tool, _) = house.join(OWNER, None);
    assert_eq!(count(&mut house, tool, true), 252);
    let mine: Vec<_> = (0..8).map(|_| recorder(&mut house, OWNER).0).collect();
    assert_eq!(
        count(&mut house, tool, true),
        256,
        "its own user has the rest"
    );
    house.state.audit().expect("no contradiction");
    // A domain that ends leaves its place.
    end(&mut house, mine[0]);
    recorder(&mut house, OWNER);
    assert_eq!(count(&mut house, tool, true), 256);
    assert_eq!(count(&mut house, tool, false), 1);
}

#[test]
fn of_those_that_have_ended_the_user_goes_without_that_has_most() {
    let mut house = house();
    let (mine, _) = recorder(&mut house, OWNER);
    end(&mut house, mine);
    for _ in 0..50 {
        let (client, _) = recorder(&mut house, OTHER);
        end(&mut house, client);
    }
    let seen = [OTHER, OWNER].map(|uid| {
        let (asker, _) = house.join(uid, None);
        rings(&mut house, asker).len()
    });
    assert_eq!(seen, [31, 32]);
}

/// A follower's user is charged for it, for each pool, and no longer when it has gone.
#[test]
fn who_follows_is_charged_for_it() {
    const RECORDS: usize = 5;
    let mut house = house();
    let (follower, _) = house.join(OTHER, None);
    let writers: Vec<Writer> = (0..8).map(|_| Writer::join(&mut house, OTHER, 8)).collect();
    let records = |house: &House| house.state.accounts().get(&OTHER).map_or(0, |c| c[RECORDS]);
    let before = records(&house);
    for _ in 0..2 {
        for writer in &writers {
            trace(&mut house, follower, writer.pool, true, true);
        }
        assert_eq!(records(&house), before + 8);
    }
    trace(&mut house, follower, writers[0].pool, false, true);
    trace(&mut house, follower, writers[0].pool, false, true);
    end(&mut house, writers[1].client);
    assert_eq!(records(&house), before + 6);
    house.part(follower);
    house.state.audit().expect("no contradiction");
    assert_eq!(records(&house), before);
}
