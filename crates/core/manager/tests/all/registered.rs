//! Channels that no manager makes: their domains' words, and the part that is believed.

use crate::ask::{SINK, SOURCE, object};
use crate::house;
use crate::house::{House, Object};
use tranship_manager::Limits;
use tranship_manager::state::ClientId;
use tranship_proto::{
    ChannelId, ChannelStat, DomainId, LocalChannel, ManagerStat, PoolId, Request, Role, StatRecord,
};

const LINES: u32 = 64;
const HALF: u64 = 8192;
/// The most channels of a domain that are shown.
const MOST: u32 = 256;

fn halves(kinds: [u32; 2]) -> [Object; 2] {
    kinds.map(|kind| object(kind, LINES, HALF))
}

fn channel(number: u32) -> LocalChannel {
    LocalChannel {
        channel: ChannelId(number),
        address: format!("tcp:10.0.0.1:7700/film-{number}"),
        role: Role::Source,
        peer: None,
        place: Some("10.0.0.7:51000".into()),
        pool: None,
        lines: [LINES; 2],
    }
}

fn register(house: &mut House, client: ClientId, channel: LocalChannel) {
    let request = Request::RegisterChannel { channel };
    let said = house.ask(client, request, halves([SOURCE, SINK]));
    assert!(said.is_empty(), "{said:?}");
    house.state.audit().expect("no contradiction");
}

fn stat(house: &mut House, client: ClientId) -> (ManagerStat, Vec<ChannelStat>) {
    let (mut manager, mut channels) = (None, Vec::new());
    for record in house.stat(client) {
        match record {
            StatRecord::Manager(m) => manager = Some(m),
            StatRecord::Channel(c) => channels.push(c),
            _ => {}
        }
    }
    (manager.expect("the manager"), channels)
}

fn shown(house: &mut House, client: ClientId) -> Vec<ChannelStat> {
    stat(house, client).1
}

fn one_house() -> (House, ClientId, DomainId) {
    let mut house = House::new(Limits::default(), 1 << 30);
    let (client, domain) = house.join(1000, None);
    (house, client, domain)
}

#[test]
fn a_carried_channel_is_shown_until_it_is_over() {
    let (mut house, client, me) = one_house();
    register(&mut house, client, channel(u32::MAX));
    let (manager, channels) = stat(&mut house, client);
    let [c] = &channels[..] else {
        panic!("{channels:?}")
    };
    assert_eq!(c.name, "tcp:10.0.0.1:7700/film-4294967295");
    assert_eq!((c.source, c.sink), (Some(me), None));
    assert_eq!(c.place.as_deref(), Some("10.0.0.7:51000"));
    assert_eq!((c.lines, c.taken), (LINES, house::TAKEN));
    assert_eq!((c.ring_bytes, manager.ring_bytes), (2 * HALF, 2 * HALF));
    let over = Request::UnregisterChannel {
        channel: ChannelId(u32::MAX),
    };
    house.ask(client, over.clone(), []);
    let (manager, channels) = stat(&mut house, client);
    assert_eq!((channels, manager.ring_bytes), (vec![], 0));
    // Repeating it does no harm.
    assert!(house.ask(client, over, []).is_empty());
    house.state.audit().expect("no contradiction");
}

#[test]
fn it_is_gone_with_its_connection() {
    let (mut house, client, _) = one_house();
    let (other, _) = house.join(1000, None);
    register(&mut house, client, channel(1));
    register(&mut house, client, channel(2));
    register(&mut house, other, channel(1));
    assert_eq!(shown(&mut house, other).len(), 3);
    house.part(client);
    assert_eq!(shown(&mut house, other).len(), 1);
    house.state.audit().expect("no contradiction");
}

#[test]
fn what_a_domain_makes_up_is_not_shown() {
    let (mut house, client, me) = one_house();
    let (near, far) = (7_000, 7_001);
    let (_, same) = house.join_as(1000, None, near);
    let (_, strange) = house.join_as(1000, None, far);
    let (of_near, _) = house.join_as(1000, None, near);
    let peered = |number, peer| LocalChannel {
        peer: Some(peer),
        place: None,
        ..channel(number)
    };
    register(&mut house, of_near, peered(1, same));
    register(&mut house, of_near, peered(2, strange));
    register(&mut house, of_near, peered(3, DomainId(1)));
    let sinks: Vec<_> = shown(&mut house, client).iter().map(|c| c.sink).collect();
    assert_eq!(sinks, [Some(same), None, None]);
    // The pool belongs to another domain.
    let pooled = LocalChannel {
        pool: Some(PoolId(1)),
        ..channel(4)
    };
    register(&mut house, client, pooled);
    let channels = shown(&mut house, client);
    let ours = channels.iter().find(|c| c.source == Some(me));
    assert_eq!(ours.map(|c| c.pools.len()), Some(0));
}

#[test]
fn what_is_wrong_is_refused_and_costs_nothing() {
    let (mut house, client, _) = one_house();
    let held = house.state.held_tokens();
    let bad = [
        LocalChannel {
            address: String::new(),
            ..channel(1)
        },
        LocalChannel {
            address: "a\nb".into(),
            ..channel(1)
        },
        LocalChannel {
            address: "x".repeat(401),
            ..channel(1)
        },
        LocalChannel {
            place: Some("\u{7}".into()),
            ..channel(1)
        },
        LocalChannel {
            lines: [LINES, 63],
            ..channel(1)
        },
    ];
    for channel in bad {
        register(&mut house, client, channel);
    }
    // Memory of another kind, on either side.
    for kind in [SOURCE, SINK] {
        let channel = channel(1);
        let objects = halves([kind, kind]);
        house.ask(client, Request::RegisterChannel { channel }, objects);
    }
    assert_eq!(shown(&mut house, client), []);
    assert_eq!(house.state.held_tokens(), held, "no descriptor is kept");
    house.state.audit().expect("no contradiction");
}

#[test]
fn of_one_domain_so_many_are_shown_and_each_once() {
    let (mut house, client, _) = one_house();
    for number in 1..=MOST + 10 {
        register(&mut house, client, channel(number));
        register(&mut house, client, channel(number));
    }
    assert_eq!(shown(&mut house, client).len(), MOST as usize);
    let channel = ChannelId(1);
    house.ask(client, Request::UnregisterChannel { channel }, []);
    register(&mut house, client, self::channel(MOST + 20));
    assert_eq!(shown(&mut house, client).len(), MOST as usize);
}

/// Registration is for information only.
#[test]
fn without_room_for_its_descriptors_it_is_not_shown_and_nobody_is_expelled() {
    let (mut house, client, _) = one_house();
    let request = Request::RegisterChannel {
        channel: channel(1),
    };
    house.step(tranship_manager::state::Input::Crippled { client, request });
    assert_eq!(shown(&mut house, client), []);
}
