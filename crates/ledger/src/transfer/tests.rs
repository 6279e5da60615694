use super::*;

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

#[test]
fn a_buffer_goes_there_and_is_released() {
    let [table, sent, rcvd, refs] = [1, u32::MAX, u32::MAX, 0].map(AtomicU32::new);
    let mut id = 0;
    send_first::<()>(&table, &sent, |generation| {
        assert_eq!(
            get(&sent),
            0,
            "sent++ comes before the publication, modulo 2^32"
        );
        id = generation;
        Ok(())
    })
    .unwrap();
    assert_eq!((id, get(&table)), (2, 2));
    receive_direct(&refs, &rcvd);
    assert_eq!((get(&refs), get(&rcvd)), (1, 0));
    send_again::<()>(&sent, || Ok(())).unwrap();
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

#[test]
fn a_refused_publication_takes_the_count_back() {
    let [table, sent] = [5, 0].map(AtomicU32::new);
    assert_eq!(send_first(&table, &sent, |_| Err("full")), Err("full"));
    assert_eq!((get(&sent), get(&table)), (0, 6));
}
