use super::*;

fn handles(word: u32) -> Handles {
    Handles(AtomicU32::new(word))
}
fn word(handles: &Handles) -> u32 {
    handles.0.load(Ordering::Relaxed)
}
fn generation(value: u32) -> AtomicU32 {
    AtomicU32::new(value)
}

#[test]
fn the_last_handle_decides_once() {
    let (odd, even) = (generation(5), generation(6));
    let held = handles(2);
    assert!(!held.is_private(&odd));
    assert_eq!(held.let_go(&odd), LetGo::Left);
    assert!(held.is_private(&odd) && !held.is_private(&even));
    assert_eq!(held.let_go(&odd), LetGo::Unsent);
    assert_eq!(word(&held), 0);
    let sent = handles(2);
    assert_eq!(sent.let_go(&even), LetGo::Left);
    assert_eq!(sent.let_go(&even), LetGo::ToQueue);
    assert_eq!((word(&sent), sent.count()), (QUEUED, 0));
    // It comes back and goes again while it is queued: once is enough.
    sent.hold();
    assert!(!sent.is_private(&odd));
    assert_eq!(sent.let_go(&even), LetGo::Left);
    assert_eq!(word(&sent), QUEUED);
}

#[test]
fn the_only_handle_of_what_was_never_sent_goes_at_once() {
    let (odd, even) = (generation(5), generation(6));
    let private = Handles::default();
    private.begin();
    assert_eq!(private.count(), 1);
    private.hold();
    assert_eq!((private.count(), private.let_go(&odd)), (2, LetGo::Left));
    assert_eq!((private.let_go(&odd), word(&private)), (LetGo::Unsent, 0));
    let queued = handles(QUEUED | 1);
    assert_eq!((queued.let_go(&odd), word(&queued)), (LetGo::Left, QUEUED));
    let sent = handles(1);
    assert_eq!((sent.let_go(&even), word(&sent)), (LetGo::ToQueue, QUEUED));
}

#[test]
fn what_is_alive_is_queued_by_the_collector_or_by_its_last_handle() {
    let free = handles(QUEUED);
    assert!(free.stays_queued());
    assert_eq!(word(&free), QUEUED);
    free.hold();
    assert!(!free.stays_queued());
    assert_eq!(free.let_go(&generation(2)), LetGo::ToQueue);
}

#[test]
fn an_id_names_what_was_sent_and_is_not_collected() {
    assert_eq!(is_named(&generation(4), 4), Ok(()));
    for (now, named) in [(4, 2), (4, 6), (5, 4), (5, 5), (3, 4)] {
        let stale = StaleReference { named, found: now };
        assert_eq!(is_named(&generation(now), named), Err(stale));
        let held = handles(QUEUED);
        let look = || -> Result<(), _> { unreachable!("it is looked at no further") };
        let found = held.find(&generation(now), named, |stale| stale, look);
        assert_eq!((found, word(&held)), (Err(stale), QUEUED));
    }
    let held = handles(QUEUED);
    let refused = held.find(&generation(4), 4, |_| "stale", || Err::<(), _>("elsewhere"));
    assert_eq!((refused, word(&held)), (Err("elsewhere"), QUEUED));
    let found = held.find(&generation(4), 4, |_| "stale", || Ok(7));
    assert_eq!((found, word(&held)), (Ok(7), QUEUED | 1));
}

/// A handle goes at any moment of a collector's turn: the slot is queued by one of the two, never by both.
#[test]
fn of_a_collector_and_a_handle_that_goes_one_queues() {
    for _ in 0..2000 {
        let (shared, even) = (handles(QUEUED | 1), generation(2));
        let (kept, queued) = std::thread::scope(|s| {
            let goes = s.spawn(|| shared.let_go(&even) == LetGo::ToQueue);
            (shared.stays_queued(), goes.join().expect("no panic"))
        });
        assert!(kept != queued, "kept: {kept}, queued: {queued}");
        assert_eq!(word(&shared), QUEUED);
    }
}
