mod asking;
mod pressed;

use super::*;

const LONGEST: usize = 4 << 20;

fn store(memory: u64) -> Store {
    store_of(memory, 4)
}

fn store_of(memory: u64, shards: usize) -> Store {
    let options = StoreOptions {
        domain: None,
        memory,
        longest: LONGEST,
        shards,
    };
    Store::new(options).expect("store")
}

fn value(store: &Store, bytes: &[u8]) -> Value {
    let mut value = store.reserve(bytes.len()).expect("room");
    value[..bytes.len()].copy_from_slice(bytes);
    value.freeze()
}

/// A value for which nothing is evicted: a manager on a busy machine may not answer in time.
fn patient(store: &Store, len: usize) -> Value {
    loop {
        if let Ok(mut value) = store.arena().alloc(len) {
            value.fill(7);
            return value.freeze();
        }
        std::thread::yield_now();
    }
}

fn set(store: &Store, key: &[u8], bytes: &[u8], mode: Mode) -> Outcome {
    store.put(key, value(store, bytes), 5, 0, mode)
}

#[test]
fn modes_hold_what_they_promise() {
    let store = store(64 << 20);
    assert!(matches!(
        set(&store, b"k", b"1", Mode::Replace),
        Outcome::NotStored
    ));
    assert!(matches!(
        set(&store, b"k", b"1", Mode::Cas(1)),
        Outcome::NotFound
    ));
    assert!(matches!(
        set(&store, b"k", b"b", Mode::Add),
        Outcome::Stored { .. }
    ));
    assert!(matches!(
        set(&store, b"k", b"1", Mode::Add),
        Outcome::NotStored
    ));
    set(&store, b"k", b"c", Mode::Append(None));
    set(&store, b"k", b"a", Mode::Prepend(None));
    let item = store.get(b"k", None).expect("there");
    assert_eq!(
        (&item.value[..], item.flags, item.ttl),
        (&b"abc"[..], 5, -1)
    );
    assert!(matches!(
        set(&store, b"k", b"x", Mode::Cas(item.cas + 9)),
        Outcome::Exists
    ));
    assert!(matches!(
        set(&store, b"k", b"x", Mode::Cas(item.cas)),
        Outcome::Stored { .. }
    ));
    assert!(matches!(
        store.delete(b"k", Some(item.cas)),
        Outcome::Exists
    ));
    assert!(matches!(store.delete(b"k", None), Outcome::Stored { .. }));
    assert!(store.get(b"k", None).is_none());
    assert_eq!(store.memory().1, 0);
}

#[test]
fn numbers_go_up_and_down_as_in_memcached() {
    let store = store(64 << 20);
    set(&store, b"n", b"10", Mode::Set);
    let go = |delta, down| {
        let (new, _) = store
            .arithmetic(b"n", delta, down, None, None)
            .expect("a number");
        (new, store.get(b"n", None).expect("there").value.to_vec())
    };
    assert_eq!(go(5, true), (5, b"5 ".to_vec()));
    assert_eq!(go(95, false), (100, b"100".to_vec()));
    assert_eq!(go(200, true), (0, b"0  ".to_vec()));
    assert_eq!(go(u64::MAX, false).0, u64::MAX);
    assert_eq!(go(2, false).0, 1);
    set(&store, b"t", b"text", Mode::Set);
    let no = |key| {
        store
            .arithmetic(key, 1, false, None, None)
            .expect_err("no number")
    };
    assert_eq!(no(b"t"), NotCounted::NoNumber);
    assert_eq!(no(b"?"), NotCounted::NotFound);
}

#[test]
fn what_is_over_is_not_there() {
    let store = store(64 << 20);
    store.put(b"a", value(&store, b"x"), 0, -1, Mode::Set);
    store.put(b"b", value(&store, b"x"), 0, 1000, Mode::Set);
    store.put(b"c", value(&store, b"x"), 0, 1_000_000_000, Mode::Set);
    assert!(store.get(b"a", None).is_none() && store.get(b"c", None).is_none());
    let item = store.peek(b"b").expect("there");
    assert!((1..=1000).contains(&item.ttl));
    store.get(b"b", Some(-1)).expect("there");
    store.tidy();
    assert_eq!(store.memory().1, 0);
}

#[test]
fn the_limit_holds_and_what_is_used_often_stays() {
    let store = store(8 << 20);
    set(&store, b"often", &[1; 1000], Mode::Set);
    for number in 0..40_000u32 {
        set(&store, &number.to_be_bytes(), &[2; 1000], Mode::Set);
        assert!(store.memory().1 <= 8 << 20);
        if number % 100 == 0 {
            assert!(store.get(b"often", None).is_some(), "after {number}");
        }
    }
    // Relaxed: nobody else counts.
    assert!(store.counts.evictions.load(Ordering::Relaxed) > 10_000);
}

/// An arena can be full although the store is within its limit, while values that were taken out are still being read.
#[test]
fn what_grows_has_others_evicted_and_stays_within_the_longest_value() {
    let part = vec![b'v'; 1 << 20];
    let store = store_of(8 << 20, 1);
    for key in [b"grows", b"one  ", b"two  ", b"three"] {
        set(&store, key, &part, Mode::Set);
    }
    let more = value(&store, b"more");
    let mut read = Vec::new();
    while let Ok(value) = store.arena().copy(&part) {
        read.push(value);
    }
    let grown = store.put(b"grows", more.clone(), 0, 0, Mode::Append(None));
    assert!(matches!(grown, Outcome::Stored { .. }), "{grown:?}");
    let item = store.peek(b"grows").expect("there");
    assert_eq!(item.value[..], [&part[..], b"more"].concat());
    assert!(store.peek(b"one  ").is_none(), "evicted for it");
    // Nothing is left to be evicted but itself.
    drop(item);
    for key in [b"two  ", b"three"] {
        store.delete(key, None);
    }
    while let Ok(value) = store.arena().copy(&part) {
        read.push(value);
    }
    let grown = store.put(b"grows", more.clone(), 0, 0, Mode::Append(None));
    assert!(matches!(grown, Outcome::NoMemory), "{grown:?}");
    drop(read);
    // No longer than a value may be, however it came to be.
    set(&store, b"k", &vec![b'v'; LONGEST - 4], Mode::Set);
    for (mode, fits) in [(Mode::Append(None), true), (Mode::Prepend(None), false)] {
        let grown = store.put(b"k", more.clone(), 0, 0, mode);
        assert_eq!(matches!(grown, Outcome::Stored { .. }), fits, "{grown:?}");
        assert_eq!(matches!(grown, Outcome::TooLarge), !fits, "{grown:?}");
    }
    assert_eq!(store.peek(b"k").expect("kept").value.len(), LONGEST);
}

#[test]
fn sparse_blocks_are_emptied_and_their_memory_goes_back() {
    let store = store(512 << 20);
    let name = |number: u32| number.to_string().into_bytes();
    for number in 0..20_000 {
        let bytes = [u8::try_from(number % 251).expect("a byte"); 4000];
        set(&store, &name(number), &bytes, Mode::Set);
        store.arena().protect();
    }
    let full = store.arena().stats().used_bytes;
    for number in (0..20_000).filter(|number| number % 10 != 0) {
        store.delete(&name(number), None);
    }
    assert!(
        store.arena().stats().used_bytes > full / 10 * 9,
        "one in ten holds each block"
    );
    for _ in 0..200 {
        store.clean(16);
    }
    let stats = store.arena().stats();
    assert!(
        stats.used_bytes < full / 2,
        "{} of {full} are held still",
        stats.used_bytes
    );
    for number in (0..20_000).step_by(10) {
        let item = store.get(&name(number), None).expect("there");
        assert!(
            item.value[..4000]
                .iter()
                .all(|byte| u32::from(*byte) == number % 251)
        );
    }
}

#[test]
fn a_value_of_whole_pages_takes_no_page_more() {
    let store = store(64 << 20);
    for number in 0..16u8 {
        set(&store, &[b'k', number], &[number; 64 << 10], Mode::Set);
    }
    assert_eq!(store.arena().stats().used_bytes, 16 * (64 << 10));
    for (number, len) in [0, 1, 4096].into_iter().enumerate() {
        let key = number.to_string();
        set(&store, key.as_bytes(), &vec![7; len], Mode::Set);
        let item = store.get(key.as_bytes(), None).expect("there");
        assert_eq!(item.value[..], vec![7; len]);
    }
}

#[test]
fn an_index_that_lies_costs_values_and_nothing_else() {
    use tranship_testkit::Random;
    let mut random = Random::printed("an index that lies");
    let small = |n: u64| usize::try_from(n).expect("small");
    for _ in 0..30 {
        let former = store(16 << 20);
        for number in 0..200u32 {
            let key = number.to_string();
            set(
                &former,
                key.as_bytes(),
                &vec![b'v'; small(random.below(40_000))],
                Mode::Set,
            );
        }
        former.arena().give_away();
        let (mut kept, lost) = former.write_down();
        assert_eq!((kept.len(), lost), (200, 0));
        let honest = kept.clone();
        for _ in 0..60 {
            let (one, other) = (small(random.below(200)), small(random.below(200)));
            let place = &mut kept[one].place;
            match random.below(9) {
                0 => place.offset = random.below(u64::MAX),
                1 => place.offset = place.offset.wrapping_add(16 * random.below(100)),
                2 => place.offset += 4096 * random.below(100),
                3 => place.len = random.below(1 << 20),
                4 => place.len = u64::MAX - random.below(10),
                5 => place.kind = u32::try_from(random.below(90)).expect("small"),
                6 => place.kind = 1 << 31 | u32::try_from(random.below(9)).expect("small"),
                7 => place.kind = u32::MAX,
                _ => kept[one] = kept[other].clone(),
            }
        }
        let options = StoreOptions {
            domain: None,
            memory: 16 << 20,
            longest: LONGEST,
            shards: 2,
        };
        let file = || former.file().try_clone_to_owned().expect("a descriptor");
        let (bent, adopted) = Store::adopt(options.clone(), file(), &kept, 1).expect("a store");
        assert_eq!(adopted.values + adopted.refused, 200);
        for kept in &kept {
            if let Some(item) = bent.peek(&kept.key) {
                // All of it is there.
                std::hint::black_box(item.value.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            }
        }
        // A successor that does not finish leaves everything as it is.
        drop(bent);
        let (next, adopted) = Store::adopt(options, file(), &honest, 7).expect("a store");
        assert_eq!((adopted.values, adopted.refused), (200, 0));
        next.begin().expect("begin");
        for kept in &honest {
            let item = next.get(&kept.key, None).expect("there");
            assert!(item.value.iter().all(|byte| *byte == b'v'));
        }
        // The numbers are the store's own from here on.
        next.clear();
        for number in 0..200u32 {
            set(
                &next,
                number.to_string().as_bytes(),
                &[b'n'; 20_000],
                Mode::Set,
            );
        }
    }
}
