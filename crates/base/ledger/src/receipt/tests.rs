use super::*;
use crate::transfer::{raise, release};
use std::cell::RefCell;
use tranship_sync::atomic::Ordering;

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

const UNCHECKED: Option<fn() -> Result<(), &'static str>> = None;

fn raised<E>(refs: &AtomicU32) -> impl FnOnce() -> Result<(), E> {
    || {
        raise(refs);
        Ok(())
    }
}

#[test]
fn a_reference_is_held_before_it_is_counted() {
    let [rcvd, refs] = [u32::MAX, 0].map(AtomicU32::new);
    let steps = RefCell::new(Vec::new());
    let reached = |step| steps.borrow_mut().push((step, get(&refs), get(&rcvd)));
    let take = || hold(raised(&refs), UNCHECKED, || unreachable!(), reached);
    receive(take, &rcvd, reached).unwrap();
    let [held, counted] = RECEIPT_DIRECT;
    let all = [(held, 1, u32::MAX), (counted, 1, 0)];
    assert_eq!(steps.take(), all);
    let check = || Ok::<_, &str>(());
    let take = || hold(raised(&refs), Some(check), || unreachable!(), reached);
    receive(take, &rcvd, reached).unwrap();
    let [held, _, checked, counted] = RECEIPT_FORWARDED;
    let all = [(held, 2, 0), (checked, 2, 0), (counted, 2, 1)];
    assert_eq!(steps.take(), all);
}

#[test]
fn an_aggregate_is_received_as_a_whole_or_not_at_all() {
    let (list, rcvd) = (AtomicU32::new(0), [0, 0].map(AtomicU32::new));
    let counted = || (get(&list), rcvd.each_ref().map(get));
    let held = std::rc::Rc::new(());
    let piece = |n: usize| {
        assert_eq!(
            counted(),
            (0, [0, 0]),
            "nothing is counted before all are held"
        );
        Ok::<_, &str>((held.clone(), &rcvd[n]))
    };
    let broken = [0, 1, 2].map(|n| if n < 2 { piece(n) } else { Err("no") });
    let refused = receive_all(broken, &list, |_| unreachable!());
    assert_eq!((refused, counted()), (Err("no"), (0, [0, 0])));
    assert_eq!(std::rc::Rc::strong_count(&held), 1, "those before it go");
    let mut steps = 0;
    let all = receive_all([0, 1].map(piece), &list, |_| steps += 1).expect("all");
    assert_eq!((all.len(), steps, counted()), (2, 3, (1, [1, 1])));
}

#[test]
fn a_stale_reference_is_not_counted() {
    let [rcvd, refs] = [0, 0].map(AtomicU32::new);
    let stale = StaleReference { named: 2, found: 3 };
    let check = || {
        assert_eq!(get(&refs), 1, "it is up when the generation is read");
        still_names(2, || 3)
    };
    let give_up = || _ = release(&refs);
    let take = || hold(raised(&refs), Some(check), give_up, |_| {});
    let received = receive(take, &rcvd, |_| unreachable!());
    assert_eq!((received, get(&refs), get(&rcvd)), (Err(stale), 0, 0));
    let take = || hold(|| Err("none"), UNCHECKED, || unreachable!(), |_| {});
    let received = receive(take, &rcvd, |_| unreachable!());
    assert_eq!((received, get(&rcvd)), (Err("none"), 0));
}

#[test]
fn an_id_is_of_the_present_generation_and_of_a_sent_buffer() {
    assert_eq!(still_names(4, || 4), Ok(()));
    for (named, found) in [(2, 4), (6, 4), (4, 5), (5, 4), (5, 5)] {
        let stale = StaleReference { named, found };
        assert_eq!(still_names(named, || found), Err(stale));
    }
}
