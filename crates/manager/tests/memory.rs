//! What is granted, to whom and for how long, and what is shown of it.

#[path = "common/house.rs"]
mod house;

use house::House;
use std::time::Duration;
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Header};
use tranship_proto::{Event, PoolId, RefusalCode, Req, Request};

const CHUNK: u64 = 64 << 10;
const SLOTS: u32 = 16;
/// Whose manager it is: no share of the total is kept from it.
const OWNER: u32 = 1;
const OTHER: u32 = 2;

fn house(chunks: u64, limits: Limits) -> House {
    let mut house = House::new(limits, chunks * CHUNK);
    house.state.set_owner(OWNER);
    house
}

/// A domain with a pool.
struct Writer {
    client: ClientId,
    pool: PoolId,
}

impl Writer {
    fn join(house: &mut House, uid: u32, chunks: u64) -> Writer {
        let (client, _) = house.join(uid, None);
        Writer::with_pool(house, client, chunks)
    }

    fn with_pool(house: &mut House, client: ClientId, chunks: u64) -> Writer {
        let table = Header {
            kind: 2,
            count: SLOTS,
            max_bytes: chunks * CHUNK,
            chunk_bytes: CHUNK,
        };
        let request = Request::CreatePool {
            req: Req(1),
            name: "pool".into(),
            max_bytes: chunks * CHUNK,
            slots: SLOTS,
            chunk_bytes: CHUNK,
        };
        let events = house.ask(client, request, Some((table, 8192)));
        let pool = events.iter().find_map(|e| match e {
            Event::PoolCreated { pool, .. } => Some(*pool),
            _ => None,
        });
        let pool = pool.unwrap_or_else(|| panic!("{events:?}"));
        Writer { client, pool }
    }

    /// The answer, and what a pool is asked to come down to by the way.
    fn grant(&self, house: &mut House, chunks: u32) -> (Result<u32, RefusalCode>, Option<u64>) {
        let (req, pool) = (Req(2), self.pool);
        let events = house.ask(self.client, Request::Grant { req, pool, chunks }, None);
        let answer = events.iter().find_map(|e| match e {
            Event::Granted { chunks, .. } => Some(Ok(*chunks)),
            Event::Refused { refusal, .. } => Some(Err(refusal.code)),
            _ => None,
        });
        let shrink = events.iter().find_map(|e| match e {
            Event::Shrink { target_bytes, .. } => Some(target_bytes / CHUNK),
            _ => None,
        });
        (answer.unwrap_or_else(|| panic!("{events:?}")), shrink)
    }

    fn show(&self, house: &mut House, index: u32, serial: u32) -> Result<(), RefusalCode> {
        let request = Request::ShowChunk {
            req: Req(3),
            pool: self.pool,
            index,
            serial,
        };
        let events = house.ask(self.client, request, Some((Header::default(), CHUNK)));
        let answer = events.iter().find_map(|e| match e {
            Event::ChunkReady { .. } => Some(Ok(())),
            Event::Refused { refusal, .. } => Some(Err(refusal.code)),
            _ => None,
        });
        answer.unwrap_or_else(|| panic!("{events:?}"))
    }
}

#[test]
fn a_domain_has_no_more_than_one_domain_may() {
    let limits = Limits {
        domain_memory: Some(3 * CHUNK),
        ..Limits::default()
    };
    let mut house = house(100, limits);
    let first = Writer::join(&mut house, OWNER, 8);
    let second = Writer::with_pool(&mut house, first.client, 8);
    assert_eq!(first.grant(&mut house, 2).0, Ok(2));
    assert_eq!(second.grant(&mut house, 2).0, Ok(1));
    assert_eq!(second.grant(&mut house, 1).0, Err(RefusalCode::Total));
    let other = Writer::join(&mut house, OWNER, 8);
    assert_eq!(other.grant(&mut house, 4).0, Ok(3), "each domain");
}

#[test]
fn what_was_granted_and_not_used_for_a_while_is_taken_back() {
    let mut house = house(4, Limits::default());
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, 4));
    assert_eq!(one.grant(&mut house, 4).0, Ok(4));
    assert_eq!(one.show(&mut house, 0, 1), Ok(()));
    let refused = Err(RefusalCode::Total);
    assert_eq!(
        two.grant(&mut house, 1).0,
        refused,
        "it was granted just now"
    );
    house.now += Duration::from_secs(3);
    assert_eq!(two.grant(&mut house, 4).0, Ok(3), "what is shown is used");
    assert_eq!(one.show(&mut house, 1, 2), Err(RefusalCode::Total));
}

#[test]
fn who_has_more_than_an_equal_share_is_asked_to_come_down_to_it() {
    let mut house = house(8, Limits::default());
    let much = Writer::join(&mut house, OTHER, 8);
    assert_eq!(much.grant(&mut house, 6), (Ok(6), None));
    let little = Writer::join(&mut house, OWNER, 8);
    // As yet the other is the only one who has anything: all of it is its equal share.
    assert_eq!(little.grant(&mut house, 4), (Ok(2), None));
    house.now += Duration::from_secs(1);
    let refused = Err(RefusalCode::Total);
    assert_eq!(little.grant(&mut house, 1), (refused, Some(4)));
}

#[test]
fn pools_of_who_asks_come_down_too_if_only_a_part_can_be_granted() {
    let mut house = house(8, Limits::default());
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, 8));
    assert_eq!(one.grant(&mut house, 6), (Ok(6), None));
    assert_eq!(two.grant(&mut house, 4), (Ok(2), Some(4)));
}

#[test]
fn serials_go_up_and_places_are_below_the_maximum() {
    let mut house = house(8, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 2);
    assert_eq!(writer.grant(&mut house, 2).0, Ok(2));
    assert_eq!(writer.show(&mut house, 0, 5), Ok(()));
    let refused = Err(RefusalCode::BadArgument);
    assert_eq!(writer.show(&mut house, 1, 5), refused, "a serial that was");
    assert_eq!(writer.show(&mut house, 2, 6), refused, "a third of two");
    assert_eq!(writer.show(&mut house, 1, 6), Ok(()));
}
