use super::*;
use crate::store::Mode;
use proptest::prelude::*;

#[test]
fn commands_are_understood() {
    let put = |mode, noreply| {
        Command::Store(Put {
            mode,
            key: b"k",
            flags: 7,
            expiry: -1,
            len: 10,
            noreply,
        })
    };
    assert_eq!(parse(b"set k 7 -1 10"), Ok(put(Mode::Set, false)));
    assert_eq!(
        parse(b"cas k 7 -1 10 99 noreply"),
        Ok(put(Mode::Cas(99), true))
    );
    let get = |keys, cas, touch| Command::Get { keys, cas, touch };
    assert_eq!(parse(b"gets a b"), Ok(get(b" a b", true, None)));
    assert_eq!(parse(b"gat 5 a b"), Ok(get(b" a b", false, Some(5))));
    let delete = |noreply| Command::Delete { key: b"k", noreply };
    assert_eq!(parse(b"delete k 0 noreply"), Ok(delete(true)));
    assert_eq!(parse(b"delete k"), Ok(delete(false)));
    assert!(parse(b"delete k 1").is_err());
    let flush = |time, noreply| Command::Flush { time, noreply };
    assert_eq!(parse(b"flush_all noreply"), Ok(flush(0, true)));
    assert_eq!(parse(b"flush_all 9"), Ok(flush(9, false)));
    let Ok(Command::Meta(meta)) = parse(b"ms k 5 T30 c q") else {
        panic!("a meta command");
    };
    assert_eq!((meta.kind, meta.key), (MetaKind::Set(5), &b"k"[..]));
    assert_eq!(meta.flag(b'T').expect("there").number(), Ok(30));
    assert!(meta.has(b'q') && !meta.has(b'k'));
}

#[test]
fn what_is_wrong_is_said_and_the_value_behind_it_swallowed() {
    assert_eq!(parse(b"fetch k").expect_err("unknown").answer, "ERROR");
    assert_eq!(parse(b"get").expect_err("no key").answer, "ERROR");
    let long = [b"set ", &[b'x'; 251][..], b" 0 0 12"].concat();
    assert_eq!(parse(&long).expect_err("too long").swallow, Some(12));
    assert_eq!(parse(b"set k 0 0 -1").expect_err("negative").swallow, None);
    assert_eq!(parse(b"set k x 0 9").expect_err("flags").swallow, Some(9));
    for line in [&b"set k 0 0 2147483646"[..], b"ms k 2147483646", b"ms k -1"] {
        let wrong = parse(line).expect_err("too long");
        assert_eq!((wrong.answer, wrong.swallow), (Wrong::FORMAT.answer, None));
    }
    let most = parse(b"set k 0 0 2147483645");
    assert!(matches!(most, Ok(Command::Store(_))), "{most:?}");
    let answer = parse(b"incr k x").expect_err("no number").answer;
    assert_eq!(answer, "CLIENT_ERROR invalid numeric delta argument");
}

#[test]
fn each_key_of_a_get_is_looked_at() {
    let get = |keys: &[&[u8]]| parse(&[&b"get "[..], &keys.join(&b' ')].concat()).is_ok();
    let key = |len| vec![b'x'; len];
    assert!(get(&[&key(250)]) && get(&[b"a", &key(250), b"b"]));
    assert!(!get(&[&key(251)]) && !get(&[b"a", &key(251), b"b"]));
    assert!(get(&[&key(100)[..]; 5]), "long together, and each short");
    for wrong in [b"\t", b"\x1f", b"\x7f", b"\0"] {
        assert!(!get(&[wrong]) && !get(&[b"a", wrong]), "{wrong:?}");
    }
    assert!(get(&[&[0x80, 0xff]]), "no character set is asked for");
    assert_eq!(parse(b"get   ").expect_err("no key").answer, "ERROR");
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(line in proptest::collection::vec(any::<u8>(), 0..80), which in 0..12usize) {
        let names: [&[u8]; 12] = [
            b"get ", b"set ", b"cas ", b"incr ", b"mg ", b"ms ", b"ma ", b"me ", b"gat ", b"delete ", b"flush_all ", b"",
        ];
        let line = [names[which], &line].concat();
        if let Ok(Command::Meta(meta)) = parse(&line) {
            let _ = meta.flags().count();
        }
    }
}
