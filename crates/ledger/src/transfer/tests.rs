use super::*;

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

#[test]
fn a_buffer_goes_there_and_is_released() {
    let [table, sent, rcvd, refs] = [1, u32::MAX, u32::MAX, 0].map(AtomicU32::new);
    let (mut id, handles) = (0, Handles::default());
    handles.begin();
    let mut steps = Vec::new();
    let publish = |generation| {
        assert_eq!(
            get(&sent),
            0,
            "sent++ comes before the publication, modulo 2^32"
        );
        id = generation;
    };
    let reached = |step| {
        steps.push((step, handles.is_private(&table), get(&table)));
    };
    send_first(&handles, &table, &sent, publish, || {}, reached);
    assert_eq!((id, get(&table)), (2, 2));
    // The handle goes while the generation is odd.
    assert_eq!(steps[0], (SendStep::LetGo, false, 1));
    assert!(steps.iter().map(|step| step.0).eq(SEND_FIRST));
    receive_direct(&refs, &rcvd);
    assert_eq!((get(&refs), get(&rcvd)), (1, 0));
    assert_eq!(open(&table), 2);
    count(&sent);
    receive_forwarded(&refs, &rcvd, id, || get(&table)).unwrap();
    assert_eq!(release(&refs), 1);
    assert_eq!(release(&refs), 0);
}

#[test]
fn a_stale_reference_is_given_up_and_not_counted() {
    let [rcvd, refs] = [0, 0].map(AtomicU32::new);
    let mut held = 0;
    let stale = receive_forwarded(&refs, &rcvd, 2, || {
        held = get(&refs);
        3
    });
    assert_eq!(stale, Err(StaleReference { named: 2, found: 3 }));
    assert_eq!(held, 1, "the reference is up when the generation is read");
    assert_eq!((get(&refs), get(&rcvd)), (0, 0));
    skip(&rcvd);
    assert_eq!(get(&rcvd), 1);
}
