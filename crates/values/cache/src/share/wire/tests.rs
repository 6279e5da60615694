use super::*;
use proptest::prelude::*;

fn say() -> impl Strategy<Value = Say> {
    let numbers = any::<(u64, u64, u64)>();
    let refused = (0..6, numbers).prop_map(|(which, (a, b, most))| {
        Say::Refused(match which {
            0 => Refused::Bytes {
                held: a,
                more: b,
                most,
            },
            1 => Refused::Values { held: a, most },
            2 => Refused::Time { seconds: a, most },
            3 => Refused::NoRoom { bytes: a, most },
            4 => Refused::Late { bytes: a },
            _ => Refused::Readers { most },
        })
    });
    let hello = any::<(u16, u64, u32, u32)>().prop_map(|(version, bytes, values, seconds)| {
        let limits = Limits {
            bytes,
            values,
            seconds,
        };
        Say::Hello(version, limits)
    });
    let hit = any::<Option<u32>>().prop_map(Say::Hit);
    prop_oneof![hello, hit, Just(Say::Miss), refused]
}

proptest! {
    #[test]
    fn what_is_said_is_heard(say in say()) {
        let (word, bytes) = say.encode();
        prop_assert!(bytes.len() <= INLINE_BYTES);
        prop_assert_eq!(Say::decode(word, &bytes), Some(say));
    }

    #[test]
    fn a_key_is_put_together(key in proptest::collection::vec(any::<u8>(), 1..=KEY), other in any::<u8>()) {
        let mut asked = Asked::default();
        for key in [&key[..], &[other][..]] {
            let pieces: Vec<_> = ask(key).collect();
            for (number, (piece, word)) in pieces.iter().enumerate() {
                prop_assert_eq!(asked.take(piece, *word), Ok(number + 1 == pieces.len()));
            }
            prop_assert_eq!(asked.key(), key);
            asked.clear();
        }
    }

    #[test]
    fn anything_else_is_refused_and_nothing_grows(pieces in proptest::collection::vec((0u64..400, 0usize..60, any::<bool>()), 1..40)) {
        let mut asked = Asked::default();
        for (len, size, ours) in pieces {
            let word = if ours { word(ASK, len) } else { len };
            match asked.take(&vec![1; size], word) {
                Ok(true) => asked.clear(),
                Ok(false) => {}
                Err(_) => break,
            }
            prop_assert!(asked.key().len() <= KEY);
        }
    }

    #[test]
    fn garbage_is_nothing_or_something(word in any::<u64>(), kind in 0u64..8, low in any::<u32>(), bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
        let _ = Say::decode(word, &bytes);
        let _ = Say::decode(super::word(kind, low.into()), &bytes);
    }
}

#[test]
fn another_services_word_is_none() {
    let (word, bytes) = Say::Miss.encode();
    assert_eq!(Say::decode(word ^ 1 << 63, &bytes), None);
    assert_eq!(Say::decode(word, b"x"), None);
    let tail = tail(7, u64::MAX - 3);
    assert_eq!(read_tail(tail), (7, u64::MAX - 3));
}
