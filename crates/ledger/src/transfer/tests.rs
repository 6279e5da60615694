use super::*;

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

#[test]
fn a_buffer_goes_there_and_is_released() {
    let [table, sent, rcvd, refs] = [1, u32::MAX, u32::MAX, 0].map(AtomicU32::new);
    let (mut id, handles) = (0, Handles::default());
    handles.begin();
    let (mut steps, mut queued) = (Vec::new(), false);
    struct First<'a> {
        words: (&'a AtomicU32, &'a AtomicU32, &'a Handles),
        id: &'a mut u32,
        queued: &'a mut bool,
        steps: &'a mut Vec<(SendStep, bool, u32)>,
    }
    impl FirstSend for First<'_> {
        fn publish(&mut self, generation: u32) {
            let text = "sent++ comes before the publication, modulo 2^32";
            assert_eq!(get(self.words.1), 0, "{text}");
            *self.id = generation;
        }
        fn queue(&mut self) {
            *self.queued = true;
        }
        fn reached(&mut self, step: SendStep) {
            let (table, _, handles) = self.words;
            let seen = (step, handles.is_private(table), get(table));
            self.steps.push(seen);
        }
    }
    let first = First {
        words: (&table, &sent, &handles),
        id: &mut id,
        queued: &mut queued,
        steps: &mut steps,
    };
    send_first(&handles, &table, &sent, first);
    assert_eq!((id, get(&table)), (2, 2));
    // Queued once, and marked so: nobody else queues it.
    assert!(queued && handles.count() == 0 && handles.stays_queued());
    // The handle goes while the generation is odd.
    assert_eq!(steps[0], (SendStep::LetGo, false, 1));
    assert!(steps.iter().map(|step| step.0).eq(SEND_FIRST));
    let direct = None::<fn() -> Result<(), ()>>;
    let mut steps = Vec::new();
    receive(
        || raise(&refs),
        &rcvd,
        direct,
        |step| {
            steps.push((step, get(&refs), get(&rcvd)));
        },
    )
    .unwrap();
    let [hold, counted] = RECEIPT_DIRECT;
    assert_eq!(steps, [(hold, 1, u32::MAX), (counted, 1, 0)]);
    assert_eq!((get(&refs), get(&rcvd)), (1, 0));
    assert_eq!(open(&table), 2);
    count(&sent);
    let mut held = 0;
    let check = || {
        held = get(&refs);
        still_names(id, || get(&table))
    };
    receive(|| raise(&refs), &rcvd, Some(check), |_| {}).unwrap();
    assert_eq!(held, 2, "the reference is up when the generation is read");
    assert_eq!((get(&refs), get(&rcvd)), (2, 1));
    assert_eq!(release(&refs), 1);
    assert_eq!(release(&refs), 0);
}

#[test]
fn a_stale_reference_is_not_counted() {
    let [rcvd, refs] = [0, 0].map(AtomicU32::new);
    let stale = StaleReference { named: 2, found: 3 };
    let check = || still_names(2, || 3);
    assert_eq!(
        receive(|| raise(&refs), &rcvd, Some(check), |_| {}),
        Err(stale)
    );
    assert_eq!((release(&refs), get(&rcvd)), (0, 0));
    skip(&rcvd);
    assert_eq!(get(&rcvd), 1);
}

#[test]
fn an_id_is_of_the_present_generation_and_of_a_sent_buffer() {
    assert_eq!(still_names(4, || 4), Ok(()));
    for (named, found) in [(2, 4), (6, 4), (4, 5), (5, 4), (5, 5)] {
        let stale = StaleReference { named, found };
        assert_eq!(still_names(named, || found), Err(stale));
    }
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
