//! Clients that know the protocol and break it: each costs itself its session, with words about it.

use crate::kit::*;
use std::io::Write;
use tranship_testkit::Watchdog;
use tranship_transport::ErrorKind;

#[test]
fn what_cannot_be_ends_the_session_with_words() {
    let _dog = Watchdog::new();
    let net = plain();
    let at = open(&net);
    let good = record(1, b"frame", 0, 0, 0);
    for (number, (what, lie)) in (b'a'..).zip([
        ("nonsense", vec![9; 64]),
        ("no such record", record(4, b"", 0, 0, 0)),
        ("a frame that is too long", {
            let mut long = good.clone();
            long[2..4].copy_from_slice(&4097u16.to_le_bytes());
            long
        }),
        (
            "a buffer that is too large",
            record(1, b"frame", (1 << 30) + 1, 0, 0),
        ),
        ("the second frame first", record(1, b"frame", 0, 1, 0)),
        (
            "the first frame twice",
            [good.clone(), good.clone()].concat(),
        ),
        ("more taken than sent", record(2, b"", 0, 0, 1)),
        ("a keepalive with a frame", record(2, b"x", 0, 0, 0)),
        ("zeros that are none", {
            let mut not = good.clone();
            not[5] = 1;
            not
        }),
    ]) {
        let session = [number; 16];
        let listener = listen(&net, &format!("{at}/lies"));
        let mut socket = met(at, session, "lies");
        socket.write_all(&lie).expect("lie");
        let mut end = accept(&listener);
        let why = loop {
            match end.try_look() {
                Ok(Some((frame, _))) => assert_eq!(frame, b"frame", "{what}"),
                Ok(None) => end.wait(),
                Err(why) if why == ErrorKind::PeerViolation => {
                    break why.to_string();
                }
                Err(other) => panic!("{what}: {other:?}, {:?}", end.transport.why()),
            }
        };
        assert!(why.contains("127.0.0.1"), "{what}: {why}");
        // The session does not come back either.
        let answer = say(at, &hello(true, session, 0, "lies"));
        assert_eq!(answer.get(10), Some(&3), "{what}");
        drop((end, listener));
    }
}

/// A count of taken frames does not go back.
#[test]
fn a_count_does_not_go_back() {
    let _dog = Watchdog::new();
    let net = plain();
    let at = open(&net);
    let listener = listen(&net, &format!("{at}/counts"));
    let mut socket = met(at, [1; 16], "counts");
    let mut end = accept(&listener);
    end.send(b"frame", Vec::new());
    for taken in [1, 0] {
        socket.write_all(&record(2, b"", 0, 0, taken)).expect("say");
    }
    let why = end.over();
    assert_eq!(why, ErrorKind::PeerViolation, "{why}");
    let why = why.to_string();
    assert!(why.contains("taken 0 frames, of which 1 to 1"), "{why}");
}

#[test]
fn a_session_is_gone_on_with_only_by_who_knows_it() {
    let _dog = Watchdog::new();
    let net = plain();
    let at = open(&net);
    let listener = listen(&net, &format!("{at}/mine"));
    let session = *b"fedcba9876543210";
    let first = met(at, session, "mine");
    // The same number again, as if it were new; one that nobody has; and more frames taken than there are.
    assert_eq!(say(at, &hello(false, session, 0, "mine")).get(10), Some(&4));
    assert_eq!(say(at, &hello(true, [5; 16], 0, "mine")).get(10), Some(&3));
    let mut end = accept(&listener);
    assert_eq!(end.look(), None);
    assert_eq!(say(at, &hello(true, session, 7, "mine")).get(10), Some(&0));
    end.over();
    let why = end.transport.why().expect("words");
    assert!(why.contains("has taken 7 frames"), "{why}");
    drop(first);
}

/// A frame whose buffer had not come when the connection was lost comes again as the same one.
#[test]
fn what_is_sent_again_is_the_same() {
    let _dog = Watchdog::new();
    let net = plain();
    let at = open(&net);
    for (session, frame, bytes, honest) in [
        ([1; 16], b"frame", 100, true),
        ([2; 16], b"frame", 200, false),
        ([3; 16], b"fram\0", 1 << 20, false),
    ] {
        let listener = listen(&net, &format!("{at}/again"));
        let mut first = met(at, session, "again");
        let mut end = accept(&listener);
        let begun = [record(1, b"frame", 100, 0, 0), vec![7; 50]].concat();
        first.write_all(&begun).expect("half of it");
        while end.transport.came() < 50 {
            assert_eq!(end.look(), None);
            end.wait();
        }
        let mut second = met_with(at, &hello(true, session, 0, "again"));
        let again = [record(1, frame, bytes, 0, 0), vec![8; 100]].concat();
        second.write_all(&again).expect("again");
        match honest {
            true => assert_eq!(end.next(), (b"frame".to_vec(), vec![8; 100])),
            false => {
                let why = end.over();
                assert_eq!(why, ErrorKind::PeerViolation, "{why}");
                let why = why.to_string();
                assert!(why.contains("another frame the second time"), "{why}");
            }
        }
    }
}
