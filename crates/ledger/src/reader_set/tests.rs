use super::*;
use tranship_sync::atomic::AtomicU32;

type Heap<'a> = Roster<&'a [AtomicU32], &'a [AtomicU32]>;

fn words<const N: usize>(values: [u32; N]) -> [AtomicU32; N] {
    values.map(AtomicU32::new)
}

#[test]
fn what_joins_leaves_with_what_is_its_own() {
    let [a, b, c, d] = [1, 2, 3, 4].map(|n| words([n]));
    let mut roster: Heap<'_> = Roster::new(0);
    roster.add_queue(1, Source::Other, &a, &b).unwrap();
    roster.add_queue(2, Source::Other, &c, &d).unwrap();
    roster.add_reader(1, &a).unwrap();
    roster.add_reader(2, &b).unwrap();
    assert_eq!(
        roster.add_queue(2, Source::Other, &a, &a),
        Err(RosterError::QueueTaken(2))
    );
    assert_eq!(roster.add_reader(1, &c), Err(RosterError::ReaderTaken(1)));
    assert_eq!((roster.queues().len(), roster.readers().len()), (2, 2));
    assert!(roster.has_queue(1) && roster.has_queue(2) && !roster.has_queue(3));
    assert!(roster.has_reader(1) && roster.has_reader(2) && !roster.has_reader(3));

    let gone = roster.remove_queue(2).unwrap();
    assert!(std::ptr::eq(gone.sent, &c[..]) && std::ptr::eq(gone.rcvd, &d[..]));
    assert_eq!(roster.remove_queue(2).unwrap_err(), RosterError::NoQueue(2));
    assert!(roster.has_queue(1) && !roster.has_queue(2));
    assert!(std::ptr::eq(roster.queues()[0].sent, &a[..]));

    let gone = roster.remove_reader(1).unwrap();
    assert!(gone.domain == 1 && std::ptr::eq(gone.refs, &a[..]));
    let none = roster.remove_reader(1).unwrap_err();
    assert_eq!(none, RosterError::NoReader(1));
    assert!(roster.has_reader(2) && !roster.has_reader(1));
    assert_eq!(roster.readers()[0].domain, 2);
}

#[test]
fn epochs_rise_unless_the_manager_is_a_new_one() {
    let mut roster: Heap<'_> = Roster::new(7);
    assert_eq!(roster.epoch(), 7);
    roster.set_epoch(7).unwrap();
    roster.set_epoch(9).unwrap();
    assert_eq!(roster.set_epoch(8), Err(RosterError::OldEpoch(8, 9)));
    assert_eq!(roster.epoch(), 9);
    roster.reset_epoch(2);
    assert_eq!(roster.epoch(), 2);
    assert_eq!(Heap::default().epoch(), 0);
}

#[test]
fn holders_are_those_with_references() {
    let (a, b, c) = (words([0, 2]), words([1, 0]), words([3, 0]));
    let mut roster: Heap<'_> = Roster::new(0);
    for (domain, refs) in [(5, &a), (6, &b), (7, &c)] {
        roster.add_reader(domain, refs).unwrap();
    }
    let holders = |slot| roster.holders(slot).collect::<Vec<_>>();
    assert_eq!(holders(0), [(6, 1), (7, 3)]);
    assert_eq!(holders(1), [(5, 2)]);
}
