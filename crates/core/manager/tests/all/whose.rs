//! The owner of a queue on a reader set that is older than the manager. Only the queue's sink can say that it has given
//! the queue up: ids can be guessed, processes cannot.

use crate::ask::*;
use crate::house::House;
use crate::pool::house;
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Input};
use tranship_proto::{ChannelId, DomainId, Event, PoolId, Request, Role, Trust};

const POOL: PoolId = PoolId(5);
const WRITER: DomainId = DomainId(6);
const SINK: DomainId = DomainId(7);
const SOURCE: DomainId = DomainId(8);
const CHANNEL: ChannelId = ChannelId(9);
/// The sink's process, and another.
const ITS: u64 = 100_000;
const OTHER: u64 = 100_001;
const USER: u32 = 5;
const CLOSE: Request = Request::CloseChannel { channel: CHANNEL };

/// Lets the writer claim a pool with a queue to the sink, and checks that nothing has left.
fn writer(house: &mut House) {
    let (writer, _) = house.join(USER, Some(WRITER));
    let shape = shape(1, Trust::Producer);
    house.ask(writer, claim_pool(POOL, shape), table(shape));
    let reader_set = claim_reader_set(POOL, vec![(SINK, 3)], vec![(CHANNEL, SINK, ITS)]);
    house.ask(writer, reader_set, []);
    assert!(!done(house, writer), "nobody has said anything");
}

fn left(events: &[Event]) -> bool {
    let left = |e: &Event| matches!(e, Event::QueueLeft { channel, .. } if *channel == CHANNEL);
    events.iter().any(left)
}

/// Ends the claims; returns whether the queue leaves.
fn done(house: &mut House, client: ClientId) -> bool {
    left(&house.ask(client, CLAIM_DONE, []))
}

fn claims_channel(house: &mut House, client: ClientId) -> Vec<Event> {
    let claim = claim_channel(CHANNEL, Role::Sink, SOURCE);
    house.ask(client, claim, half(Role::Sink))
}

/// Makes a house in which the writer has claimed its pool.
fn written() -> House {
    let mut house = house(16, Limits::default());
    writer(&mut house);
    house
}

#[test]
fn its_process_is_believed_whatever_it_still_has_of_the_pool() {
    let mut house = written();
    let (sink, id) = house.join_as(USER, Some(SINK), ITS);
    assert_eq!(id, SINK);
    assert!(done(&mut house, sink));
}

#[test]
fn who_has_taken_its_id_is_not() {
    let mut house = written();
    let (thief, id) = house.join_as(USER, Some(SINK), OTHER);
    assert_eq!(id, SINK);
    assert!(!done(&mut house, thief));
    assert!(!left(&house.ask(thief, Request::Goodbye, [])));
}

#[test]
fn a_queue_that_its_sink_has_stays_until_it_is_closed() {
    for drained in [false, true] {
        let mut house = written();
        let (sink, _) = house.join_as(USER, Some(SINK), ITS);
        claims_channel(&mut house, sink);
        assert!(!done(&mut house, sink));
        let over = match drained {
            true => Request::Drained { channel: CHANNEL },
            false => CLOSE,
        };
        assert!(left(&house.ask(sink, over, [])));
    }
}

/// A close during the claims counts once everything is claimed.
#[test]
fn nothing_leaves_in_the_midst_of_claims() {
    let mut house = written();
    let (sink, _) = house.join_as(USER, Some(SINK), ITS);
    claims_channel(&mut house, sink);
    assert!(!left(&house.ask(sink, CLOSE, [])));
    assert!(done(&mut house, sink));
}

/// Its id is refused to it, and with it all objects under that id: it has the channel nevertheless, until it closes it.
#[test]
fn a_channel_that_was_refused_is_had_all_the_same() {
    let mut house = house(16, Limits::default());
    let (thief, _) = house.join_as(USER, Some(DomainId(CHANNEL.0)), OTHER);
    writer(&mut house);
    let (sink, _) = house.join_as(USER, Some(SINK), ITS);
    let refused = claims_channel(&mut house, sink);
    assert!(code(&refused).is_some(), "{refused:?}");
    assert!(!done(&mut house, sink));
    assert!(left(&house.ask(sink, CLOSE, [])));
    house.part(thief);
}

/// It is not a domain that has only heaps, which would end with its connection.
#[test]
fn a_channel_that_was_refused_outlasts_the_connection() {
    let mut house = house(16, Limits::default());
    house.join(USER, Some(DomainId(CHANNEL.0)));
    writer(&mut house);
    let (sink, _) = house.join_as(USER, Some(SINK), ITS);
    claims_channel(&mut house, sink);
    let made = house.ask(sink, create_heap(CHUNK, 0), []);
    assert!(matches!(made[..], [Event::HeapCreated { .. }]), "{made:?}");
    assert!(!done(&mut house, sink));
    assert!(!left(&house.step(Input::HungUp { client: sink })));
    let (sink, id) = house.join_as(USER, Some(SINK), ITS);
    assert_eq!(id, SINK);
    assert!(!done(&mut house, sink));
    assert!(left(&house.ask(sink, CLOSE, [])));
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
    let mapped = (0..records).map(|n| (n, n + 1)).collect();
    house.ask(sink, claim_reader(PoolId(77), mapped), [counters(REFS)]);
    let refused = claims_channel(&mut house, sink);
    assert!(code(&refused).is_some(), "{refused:?}");
    assert!(!done(&mut house, sink));
}

#[test]
fn who_says_good_bye_has_nothing() {
    let mut house = written();
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
        // The probed: the writer and the sink of another user, with a channel between them.
        let mut house = written();
        let (sink, _) = house.join_as(USER, Some(SINK), ITS);
        claims_channel(&mut house, sink);
        let (prober, id) = house.join(USER + 1, Some(PROBER));
        assert_eq!(id, PROBER);
        let shape = shape(1, Trust::Producer);
        house.ask(prober, claim_pool(PROBED, shape), table(shape));
        let mut said = Vec::new();
        for pool in [PROBED, POOL] {
            let reader_set = claim_reader_set(pool, vec![reader], vec![queue]);
            said.extend(house.ask(prober, reader_set, []));
        }
        said.extend(house.ask(prober, CLAIM_DONE, []));
        // And it learns nothing of the fate of those that it named.
        assert!(!done(&mut house, sink), "the sink still has its channel");
        said.extend(house.ask(prober, Request::Goodbye, []));
        assert!(!left(&said), "a queue of another's pool");
        said
    };
    let unknown = DomainId(1000);
    let nobody = answers((unknown, 1), (ChannelId(1000), unknown, OTHER));
    assert!(
        refused(&nobody).is_some(),
        "another's pool is refused: {nobody:?}"
    );
    let (least, most) = (DomainId(0), DomainId(u32::MAX));
    for domain in [SINK, WRITER, SOURCE, PROBER, least, most] {
        for inode in [0, 1, 3, u64::MAX] {
            for channel in [CHANNEL, ChannelId(0), ChannelId(1000)] {
                let said = answers((domain, inode), (channel, domain, OTHER));
                assert_eq!(said, nobody, "{domain:?}, {inode}, {channel:?}");
            }
        }
    }
}
