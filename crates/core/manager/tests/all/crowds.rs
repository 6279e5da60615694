//! The state machine among crowds: a client's request costs time for its own objects, however many others have. A scan
//! over others' objects would be a scan for each request. With so many of both the watchdog would come first.

use crate::ask::*;
use crate::house::House;
use tranship_manager::Limits;
use tranship_proto::{ChannelId, DomainId, Event, PoolId, PoolShape, Req, Request, Role, Trust};

/// The number of clients, and of requests among them.
const CROWD: u32 = 60_000;
/// The total memory.
const TOTAL: u64 = 1 << 30;

fn crowded() -> House {
    let limits = Limits {
        connections: u32::MAX,
        pools: u32::MAX,
        channels: u32::MAX,
        names: u32::MAX,
        descriptors: u32::MAX,
        records: u32::MAX,
        ..Limits::default()
    };
    House::new(limits, TOTAL)
}

/// Returns the shape of a pool of all memory.
fn all() -> PoolShape {
    shape(TOTAL / CHUNK, Trust::Producer)
}

#[test]
fn of_those_that_say_nothing() {
    let mut house = crowded();
    for _ in 0..CROWD {
        house.connect(1);
    }
    let (client, _) = house.join(2, None);
    for n in 0..CROWD {
        house.ask(client, Request::CancelConnect { req: Req(n) }, None);
    }
}

#[test]
fn of_domains() {
    let mut house = crowded();
    for _ in 0..CROWD {
        house.join(1, None);
    }
    let (client, _) = house.join(2, None);
    for index in 0..CROWD {
        let unmapped = Request::Unmapped {
            pool: PoolId(7),
            index,
            serial: 1,
        };
        let events = house.ask(client, unmapped, None);
        assert!(matches!(events[..], [Event::PoolGone { .. }]), "{events:?}");
    }
}

#[test]
fn of_channels() {
    let mut house = crowded();
    let (exporter, _) = house.join(1, None);
    let (connector, _) = house.join(1, None);
    channels(&mut house, connector, exporter, "crowd", CROWD);
    // Other clients come, take back requests that they never made, and go: with their connections, and for good.
    for n in 0..CROWD {
        let (client, _) = house.join(2, None);
        house.ask(client, Request::CancelConnect { req: Req(n) }, None);
        if n % 2 == 0 {
            house.ask(client, Request::Goodbye, None);
        } else {
            house.part(client);
        }
    }
}

#[test]
fn of_claims() {
    let mut house = crowded();
    let (client, _) = house.join(1, Some(DomainId(7)));
    // Half of them have counters of a pool that never comes.
    for n in 0..CROWD / 2 {
        let (req, channel, pool) = (Req(n), ChannelId(1000 + n), PoolId(7));
        let claim = claim_channel(channel, Role::Source, DomainId(8));
        assert_eq!(house.ask(client, claim, half(Role::Source)), []);
        let assign = Request::ClaimAssign { req, channel, pool };
        assert_eq!(house.ask(client, assign, [counters(SENT)]), []);
    }
    // Other domains come back, claim that they have nothing, and make something new.
    for n in 0..CROWD {
        let (client, _) = house.join(2, Some(DomainId(500_000 + n)));
        is_claimed(&house.ask(client, CLAIM_DONE, None));
        let export = export(&format!("name-{n}"), Role::Sink);
        is_exported(&house.ask(client, export, None));
    }
}

/// When there is no memory left, pools are looked at only now and then.
#[test]
fn of_pools() {
    let mut house = crowded();
    let mut pools = Vec::new();
    let mut client = None;
    for n in 0..CROWD {
        if n % 256 == 0 {
            client = Some(house.join(1, None).0);
        }
        let events = house.ask(client.expect("joined"), create_pool(all()), table(all()));
        let [Event::PoolCreated { pool, .. }] = events[..] else {
            panic!("{events:?}");
        };
        pools.push(pool);
    }
    let (client, pool) = (client.expect("joined"), pools[pools.len() - 1]);
    let grant = |n, chunks| Request::Grant {
        req: Req(n),
        pool,
        chunks,
    };
    let events = house.ask(client, grant(0, u32::MAX), None);
    assert!(matches!(events[..], [Event::Granted { .. }]), "{events:?}");
    for n in 0..CROWD {
        let events = house.ask(client, grant(n, 1), None);
        assert!(refused(&events).is_some(), "{events:?}");
    }
}

/// Each claim of a pool is looked at when its reader has claimed everything, and a second time when the pool's writer
/// has.
#[test]
fn of_claims_of_a_pool() {
    let mut house = crowded();
    let pool = PoolId(7);
    for n in 0..CROWD {
        let (client, _) = house.join(1, Some(DomainId(500_000 + n)));
        let claim = claim_reader(pool, vec![]);
        is_claimed(&house.ask(client, claim, [counters(REFS)]));
        is_claimed(&house.ask(client, CLAIM_DONE, None));
    }
    let (writer, _) = house.join(2, Some(DomainId(499_999)));
    let events = house.ask(writer, claim_pool(pool, all()), table(all()));
    let created = matches!(events[..], [Event::PoolCreated { .. }]);
    assert!(created, "{events:?}");
    let before = house.state.held_tokens().len();
    house.ask(writer, CLAIM_DONE, None);
    // The writer has none of them on its reader set.
    let now = house.state.held_tokens().len();
    assert_eq!(before - now, CROWD as usize, "counters that nobody knows");
}

/// Makes a pool whose writer has come back to a manager that it does not know, with these queues and this reader on its
/// reader set.
fn reader_set(
    house: &mut House,
    n: u32,
    reader: DomainId,
    queues: Vec<(ChannelId, DomainId, u64)>,
) {
    let (writer, _) = house.join(1, Some(DomainId(500_000 + n)));
    let pool = PoolId(1 + n);
    let mut events = house.ask(writer, claim_pool(pool, all()), table(all()));
    let named = claim_reader_set(pool, vec![(reader, 1)], queues);
    events.extend(house.ask(writer, named, None));
    events.extend(house.ask(writer, CLAIM_DONE, None));
    assert_eq!(refused(&events), None, "{events:?}");
}

/// Comes back as this process, with these pools and nothing else; returns the events for all clients.
fn comes_back(house: &mut House, me: DomainId, process: u64, reads: u32) -> Vec<Event> {
    let (client, _) = house.join_as(2, Some(me), process);
    for n in 0..reads {
        let claim = claim_reader(PoolId(1 + n), vec![]);
        is_claimed(&house.ask(client, claim, [counters(REFS)]));
    }
    let events = house.ask(client, CLAIM_DONE, None);
    house.part(client);
    events
}

/// Reader sets without the domain cost a returning domain nothing.
#[test]
fn of_reader_sets_that_name_somebody_else() {
    let mut house = crowded();
    let other = DomainId(400_000);
    for n in 0..CROWD / 2 {
        let queues = vec![(ChannelId(1_000_000 + n), other, 7)];
        reader_set(&mut house, n, other, queues);
    }
    house.dog.step("they come back");
    for n in 0..CROWD {
        let (me, process) = (DomainId(700_000 + n), u64::from(n) << 32);
        is_claimed(&comes_back(&mut house, me, process, 0));
    }
}

/// When a domain is back, each of its own queues on reader sets is looked at, and no other domain's, however often it
/// comes.
#[test]
fn of_queues_on_reader_sets() {
    const EACH: u32 = 2048;
    const POOLS: u32 = CROWD / EACH;
    let mut house = crowded();
    let (me, process, other) = (DomainId(400_000), 1 << 32, DomainId(400_001));
    for n in 0..POOLS {
        // The objects of a domain that never comes are found first.
        let of = |first: u32, sink| {
            let from = first + n * EACH;
            (from..from + EACH).map(move |id| (ChannelId(id), sink, process))
        };
        let queues = of(1_000_000, other).chain(of(2_000_000, me)).collect();
        reader_set(&mut house, n, me, queues);
    }
    let left = |events: &[Event]| {
        let left = |e: &&Event| matches!(e, Event::QueueLeft { .. });
        events.iter().filter(left).count()
    };
    let events = comes_back(&mut house, me, process, POOLS);
    assert_eq!(left(&events), (POOLS * EACH) as usize);
    house.dog.step("it comes back again");
    for _ in 0..2 * CROWD {
        assert_eq!(left(&comes_back(&mut house, me, process, 0)), 0);
    }
}
