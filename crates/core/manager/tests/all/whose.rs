//! The owner of a queue on a reader set that is older than the manager. Only the queue's sink can say that it has given
//! the queue up: ids can be guessed, processes cannot.

use crate::house::House;
use crate::pool::{CHUNK, house};
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Header, Input};
use tranship_proto::{ChannelClaim, ChannelId, DomainId, Event, PoolId, Req, Request, Role};

const POOL: PoolId = PoolId(5);
const WRITER: DomainId = DomainId(6);
const SINK: DomainId = DomainId(7);
const SOURCE: DomainId = DomainId(8);
const CHANNEL: ChannelId = ChannelId(9);
/// The sink's process, and another.
const ITS: u64 = 100_000;
const OTHER: u64 = 100_001;
const SLOTS: u32 = 16;
const USER: u32 = 5;

fn object(kind: u32, count: u32, size: u64) -> [(Header, u64); 1] {
    let header = Header {
        kind,
        count,
        max_bytes: CHUNK,
        chunk_bytes: CHUNK,
    };
    [(header, size)]
}

/// Lets the writer claim a pool with a queue to the sink, and checks that nothing has left.
fn writer(house: &mut House) {
    let (writer, _) = house.join(USER, Some(WRITER));
    let claim = Request::ClaimPool {
        req: Req(1),
        pool: POOL,
        name: "pool".into(),
        shape: tranship_proto::PoolShape {
            max_bytes: CHUNK,
            slots: SLOTS,
            chunk_bytes: CHUNK,
            trust: tranship_proto::Trust::Producer,
        },
    };
    house.ask(writer, claim, object(2, SLOTS, 8192));
    let reader_set = Request::ClaimReaderSet {
        req: Req(2),
        pool: POOL,
        readers: vec![(SINK, 3)],
        queues: vec![(CHANNEL, SINK, ITS)],
    };
    house.ask(writer, reader_set, []);
    assert!(!done(house, writer), "nobody has said anything");
}

fn left(events: &[Event]) -> bool {
    let left = |e: &Event| {
        matches!(
            e,
            Event::QueueLeft {
                channel: CHANNEL,
                ..
            }
        )
    };
    events.iter().any(left)
}

/// Ends the claims; returns whether the queue leaves.
fn done(house: &mut House, client: ClientId) -> bool {
    left(&house.ask(client, Request::ClaimDone { req: Req(3) }, []))
}

fn claims_channel(house: &mut House, client: ClientId) -> Vec<Event> {
    let claim = ChannelClaim {
        channel: CHANNEL,
        name: "n".into(),
        role: Role::Sink,
        peer: SOURCE,
        lines: 2,
        peer_inode: 1,
    };
    let req = Req(4);
    house.ask(
        client,
        Request::ClaimChannel { req, claim },
        object(7, 2, 8192),
    )
}

fn roomy() -> House {
    house(16, Limits::default())
}

#[test]
fn its_process_is_believed_whatever_it_still_has_of_the_pool() {
    let mut house = roomy();
    writer(&mut house);
    let (sink, id) = house.join_as(USER, Some(SINK), ITS);
    assert_eq!(id, SINK);
    assert!(done(&mut house, sink));
}

#[test]
fn who_has_taken_its_id_is_not() {
    let mut house = roomy();
    writer(&mut house);
    let (thief, id) = house.join_as(USER, Some(SINK), OTHER);
    assert_eq!(id, SINK);
    assert!(!done(&mut house, thief));
    assert!(!left(&house.ask(thief, Request::Goodbye, [])));
}

#[test]
fn a_queue_that_its_sink_has_stays_until_it_is_closed() {
    for drained in [false, true] {
        let mut house = roomy();
        writer(&mut house);
        let (sink, _) = house.join_as(USER, Some(SINK), ITS);
        claims_channel(&mut house, sink);
        assert!(!done(&mut house, sink));
        let channel = CHANNEL;
        let over = match drained {
            true => Request::Drained { channel },
            false => Request::CloseChannel { channel },
        };
        assert!(left(&house.ask(sink, over, [])));
    }
}

/// A close during the claims counts once everything is claimed.
#[test]
fn nothing_leaves_in_the_midst_of_claims() {
    let mut house = roomy();
    writer(&mut house);
    let (sink, _) = house.join_as(USER, Some(SINK), ITS);
    claims_channel(&mut house, sink);
    let channel = CHANNEL;
    let close = Request::CloseChannel { channel };
    assert!(!left(&house.ask(sink, close, [])));
    assert!(done(&mut house, sink));
}

/// Its id is refused to it, and with it all objects under that id: it has the channel nevertheless, until it closes it.
#[test]
fn a_channel_that_was_refused_is_had_all_the_same() {
    let mut house = roomy();
    let (thief, _) = house.join_as(USER, Some(DomainId(CHANNEL.0)), OTHER);
    writer(&mut house);
    let (sink, _) = house.join_as(USER, Some(SINK), ITS);
    let refused = claims_channel(&mut house, sink);
    assert!(
        matches!(refused[..], [Event::Refused { .. }]),
        "{refused:?}"
    );
    assert!(!done(&mut house, sink));
    let channel = CHANNEL;
    assert!(left(&house.ask(
        sink,
        Request::CloseChannel { channel },
        []
    )));
    house.part(thief);
}

/// It is not a domain that has only heaps, which would end with its connection.
#[test]
fn a_channel_that_was_refused_outlasts_the_connection() {
    let mut house = roomy();
    house.join(USER, Some(DomainId(CHANNEL.0)));
    writer(&mut house);
    let (sink, _) = house.join_as(USER, Some(SINK), ITS);
    claims_channel(&mut house, sink);
    let heap = Request::CreateHeap {
        req: Req(6),
        name: "heap".into(),
        max_bytes: CHUNK,
        held_bytes: 0,
    };
    let made = house.ask(sink, heap, []);
    assert!(matches!(made[..], [Event::HeapCreated { .. }]), "{made:?}");
    assert!(!done(&mut house, sink));
    assert!(!left(&house.step(Input::HungUp { client: sink })));
    let (sink, id) = house.join_as(USER, Some(SINK), ITS);
    assert_eq!(id, SINK);
    assert!(!done(&mut house, sink));
    let channel = CHANNEL;
    assert!(left(&house.ask(
        sink,
        Request::CloseChannel { channel },
        []
    )));
}

#[test]
fn what_there_was_no_room_to_note_is_had_all_the_same() {
    let records = 16;
    let limits = Limits {
        records,
        ..Limits::default()
    };
    let mut house = house(16, limits);
    writer(&mut house);
    let (sink, _) = house.join_as(USER + 1, Some(SINK), ITS);
    let reader = Request::ClaimReader {
        req: Req(5),
        pool: PoolId(77),
        slots: SLOTS,
        table: 1,
        trust: tranship_proto::Trust::Producer,
        mapped: (0..records).map(|n| (n, n + 1)).collect(),
    };
    house.ask(sink, reader, object(3, SLOTS, 4096));
    let refused = claims_channel(&mut house, sink);
    assert!(
        matches!(refused[..], [Event::Refused { .. }]),
        "{refused:?}"
    );
    assert!(!done(&mut house, sink));
}

#[test]
fn who_says_good_bye_has_nothing() {
    let mut house = roomy();
    writer(&mut house);
    let (sink, _) = house.join_as(USER, Some(SINK), ITS);
    claims_channel(&mut house, sink);
    assert!(!done(&mut house, sink));
    assert!(left(&house.ask(sink, Request::Goodbye, [])));
}

/// A returning writer that names readers and queues gets the same answer whether the named ones are here, were here, or
/// never were.
#[test]
fn a_reader_set_is_no_probe() {
    const PROBER: DomainId = DomainId(60);
    const PROBED: PoolId = PoolId(50);
    let answers = |reader: (DomainId, u64), queue: (ChannelId, DomainId, u64)| {
        let mut house = roomy();
        // The probed: the writer and the sink of another user, with a channel between them.
        writer(&mut house);
        let (sink, _) = house.join_as(USER, Some(SINK), ITS);
        claims_channel(&mut house, sink);
        let (prober, id) = house.join(USER + 1, Some(PROBER));
        assert_eq!(id, PROBER);
        let claim = Request::ClaimPool {
            req: Req(1),
            pool: PROBED,
            name: "probe".into(),
            shape: tranship_proto::PoolShape {
                max_bytes: CHUNK,
                slots: SLOTS,
                chunk_bytes: CHUNK,
                trust: tranship_proto::Trust::Producer,
            },
        };
        house.ask(prober, claim, object(2, SLOTS, 8192));
        let mut said = Vec::new();
        for pool in [PROBED, POOL] {
            let reader_set = Request::ClaimReaderSet {
                req: Req(2),
                pool,
                readers: vec![reader],
                queues: vec![queue],
            };
            said.extend(house.ask(prober, reader_set, []));
        }
        said.extend(house.ask(prober, Request::ClaimDone { req: Req(3) }, []));
        // And it learns nothing of the fate of those that it named.
        assert!(!done(&mut house, sink), "the sink still has its channel");
        said.extend(house.ask(prober, Request::Goodbye, []));
        assert!(!left(&said), "a queue of another's pool");
        said
    };
    let nobody = answers(
        (DomainId(1000), 1),
        (ChannelId(1000), DomainId(1000), OTHER),
    );
    assert!(
        nobody.iter().any(|e| matches!(e, Event::Refused { .. })),
        "another's pool is refused: {nobody:?}"
    );
    for domain in [
        SINK,
        WRITER,
        SOURCE,
        PROBER,
        DomainId(0),
        DomainId(u32::MAX),
    ] {
        for inode in [0, 1, 3, u64::MAX] {
            for channel in [CHANNEL, ChannelId(0), ChannelId(1000)] {
                let said = answers((domain, inode), (channel, domain, OTHER));
                assert_eq!(said, nobody, "{domain:?}, {inode}, {channel:?}");
            }
        }
    }
}
