use super::*;
use tranship_sync::atomic::AtomicU32;

type Heap<'a> = ReaderSet<&'a [AtomicU32], &'a [AtomicU32]>;

fn words<const N: usize>(values: [u32; N]) -> [AtomicU32; N] {
    values.map(AtomicU32::new)
}

#[test]
fn what_joins_leaves_with_what_is_its_own() {
    let [a, b, c, d] = [1, 2, 3, 4].map(|n| words([n]));
    let mut reader_set: Heap<'_> = ReaderSet::new(0);
    reader_set.add_queue(1, Source::Other, &a, &b).unwrap();
    reader_set.add_queue(2, Source::Other, &c, &d).unwrap();
    reader_set.add_reader(1, &a).unwrap();
    reader_set.add_reader(2, &b).unwrap();
    assert_eq!(
        reader_set.add_queue(2, Source::Other, &a, &a),
        Err(ReaderSetError::QueueTaken(2))
    );
    assert_eq!(
        reader_set.add_reader(1, &c),
        Err(ReaderSetError::ReaderTaken(1))
    );
    assert_eq!(
        (reader_set.queues().len(), reader_set.readers().len()),
        (2, 2)
    );
    assert!(reader_set.has_queue(1) && reader_set.has_queue(2) && !reader_set.has_queue(3));
    assert!(reader_set.has_reader(1) && reader_set.has_reader(2) && !reader_set.has_reader(3));

    let gone = reader_set.remove_queue(2).unwrap();
    assert!(std::ptr::eq(gone.sent, &c[..]) && std::ptr::eq(gone.rcvd, &d[..]));
    assert_eq!(
        reader_set.remove_queue(2).unwrap_err(),
        ReaderSetError::NoQueue(2)
    );
    assert!(reader_set.has_queue(1) && !reader_set.has_queue(2));
    assert!(std::ptr::eq(reader_set.queues()[0].sent, &a[..]));

    let gone = reader_set.remove_reader(1).unwrap();
    assert!(gone.domain == 1 && std::ptr::eq(gone.refs, &a[..]));
    let none = reader_set.remove_reader(1).unwrap_err();
    assert_eq!(none, ReaderSetError::NoReader(1));
    assert!(reader_set.has_reader(2) && !reader_set.has_reader(1));
    assert_eq!(reader_set.readers()[0].domain, 2);
}

#[test]
fn epochs_rise_unless_the_manager_is_a_new_one() {
    let mut reader_set: Heap<'_> = ReaderSet::new(7);
    assert_eq!(reader_set.epoch(), 7);
    reader_set.set_epoch(7).unwrap();
    reader_set.set_epoch(9).unwrap();
    assert_eq!(reader_set.set_epoch(8), Err(ReaderSetError::OldEpoch(8, 9)));
    assert_eq!(reader_set.epoch(), 9);
    reader_set.reset_epoch(2);
    assert_eq!(reader_set.epoch(), 2);
    assert_eq!(Heap::default().epoch(), 0);
}

#[test]
fn holders_are_those_with_references() {
    let (a, b, c) = (words([0, 2]), words([1, 0]), words([3, 0]));
    let mut reader_set: Heap<'_> = ReaderSet::new(0);
    for (domain, refs) in [(5, &a), (6, &b), (7, &c)] {
        reader_set.add_reader(domain, refs).unwrap();
    }
    let holders = |slot| reader_set.holders(slot).collect::<Vec<_>>();
    assert_eq!(holders(0), [(6, 1), (7, 3)]);
    assert_eq!(holders(1), [(5, 2)]);
}
