use super::*;

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

#[test]
fn a_buffer_that_is_passed_back_is_on_its_way_all_the_time() {
    // The one queue's counters wrap: nothing was ever counted in them.
    for start in [7, 0] {
        let [sent, rcvd, refs] = [start, start, 1].map(AtomicU32::new);
        let handle = AtomicU32::new(0);
        let is_alive = || get(&refs) > 0 || get(&handle) > 0 || get(&sent) != get(&rcvd);
        let mut steps = Vec::new();
        let release_it = || assert_eq!(release(&refs), 0);
        let mut published = false;
        let publish = || {
            assert_ne!(get(&sent), get(&rcvd), "taken back before it is published");
            published = true;
        };
        pass_back(&rcvd, publish, release_it, |step| {
            assert!(is_alive(), "{step:?}");
            steps.push(step);
        });
        assert!(published && steps == PASS_BACK);
        assert_eq!(get(&sent).wrapping_sub(get(&rcvd)), 1);
        let refused = take_return(&sent, || Err::<(), _>("stale"), |_| unreachable!());
        assert_eq!((refused, get(&sent)), (Err("stale"), start));
        let mut steps = Vec::new();
        let hold = || {
            handle.store(1, Ordering::Relaxed);
            Ok::<_, ()>("held")
        };
        let held = take_return(&sent, hold, |step| {
            assert!(is_alive(), "{step:?}");
            steps.push(step);
        });
        assert_eq!((held, steps), (Ok("held"), RETURN.to_vec()));
        assert_eq!(get(&sent), get(&rcvd));
    }
}
