use super::*;

#[test]
fn only_the_last_release_tells_and_only_who_wants_it() {
    let [refs, wake, relinquish] = [3, 7, 0].map(AtomicU32::new);
    let get = |word: &AtomicU32| word.load(Ordering::Relaxed);
    let release = || {
        let mut woken = false;
        let is_wanted = || get(&relinquish) != 0;
        release_and_tell(&refs, |_| false, is_wanted, &wake, || woken = true);
        (get(&refs), get(&wake), woken)
    };
    want_releases(&relinquish, true);
    assert_eq!(release(), (2, 7, false));
    assert_eq!(release(), (1, 7, false));
    assert_eq!(release(), (0, 8, true));
    want_releases(&relinquish, false);
    refs.store(1, Ordering::Relaxed);
    assert_eq!(release(), (0, 8, false));
}
