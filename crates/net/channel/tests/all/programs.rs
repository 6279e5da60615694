//! Programs with which the report's implementation was measured, as tests: round trips, throughput with a checksum,
//! clients of the block service, older benchmarks. The shapes are those of the report. Every byte is checked, at each
//! address, with nobody trusted and everybody.

use crate::kit::*;
use std::thread;
use tranship_core::{Body, BufferMut, ChannelOptions, Pool, Receiver, Sender, Trust};

const PAGE: usize = 4096;
const LEVELS: [Trust; 2] = [Trust::None, Trust::Full];

/// The whole number of rounds takes long: `TRANSHIP_TORTURE`.
fn rounds(whole: u64) -> u64 {
    match std::env::var_os("TRANSHIP_TORTURE") {
        Some(_) => whole,
        None => (whole / 100).max(2),
    }
}

/// Two channels, one each way, and a pool at each end.
struct Both {
    there: (Sender, Receiver),
    back: (Sender, Receiver),
    pools: [Pool; 2],
}

fn everywhere(name: &str, test: impl Fn(&str, Both)) {
    let _dog = dog();
    let world = World::new();
    for trust in LEVELS {
        let all = world.addresses(&format!("{name}-{trust}-there"));
        let others = world.addresses(&format!("{name}-{trust}-back"));
        for (there, back) in all.iter().zip(&others) {
            // Inside a process a domain sends its own.
            let a = &world.a;
            let b = if there.starts_with("local:") {
                a
            } else {
                &world.b
            };
            let copies = [pool(a, 16 << 20), pool(b, 16 << 20)];
            let receives = |at: usize| ChannelOptions::new().snapshots(copies[at].id());
            let both = Both {
                there: connect([a, b], there, ChannelOptions::new(), receives(1)),
                back: connect([b, a], back, ChannelOptions::new(), receives(0)),
                pools: [pool_of(a, 8 << 20, trust), pool_of(b, 8 << 20, trust)],
            };
            test(there, both);
        }
    }
}

/// Takes a buffer that was given away. It may be writable here or not.
fn moved(from: &mut Receiver) -> (Body, u64) {
    let message = from.recv().expect("recv");
    (message.body, message.word)
}

fn bytes(body: &Body) -> Vec<u8> {
    match body {
        Body::BufferMut(buf) => buf.to_vec(),
        Body::Buffer(buf) => buf.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Hands it back, if it is the other end's.
fn hand_back(from: &mut Receiver, body: Body, word: u64) -> Result<(), BufferMut> {
    match body {
        Body::BufferMut(buf) => {
            let back = from.send_back((buf, word));
            back.map_err(|failed| failed.unsent.0)
        }
        Body::Buffer(buf) => {
            from.send_back((buf, word)).expect("it was given");
            Ok(())
        }
        other => panic!("{other:?}"),
    }
}

fn filled(pool: &Pool, bytes: &[u8]) -> BufferMut {
    let mut buf = pool.alloc(bytes.len()).expect("alloc");
    buf.write(0, bytes).expect("inside");
    buf
}

/// One buffer of 4 KiB to and fro: passed back where it is the same memory, else as a buffer of the other's.
#[test]
fn round_trips() {
    everywhere("trips", |address, mut both| {
        let (to, from) = (&mut both.there.0, &mut both.there.1);
        let (home, answers) = (&mut both.back.0, &mut both.back.1);
        for round in 0..rounds(10_000) {
            let mut bytes = [0; PAGE];
            bytes[..8].copy_from_slice(&round.to_le_bytes());
            to.send(filled(&both.pools[0], &bytes)).expect("move");
            let (buf, _) = moved(from);
            assert!(self::bytes(&buf) == bytes, "{address}");
            match hand_back(from, buf, round) {
                Ok(()) => {
                    let back = loop {
                        match to.try_recv_back().expect("no lie") {
                            Some(message) => break message,
                            None => thread::yield_now(),
                        }
                    };
                    assert_eq!(back.word, round, "{address}");
                    assert!(back.to_vec() == bytes, "{address}");
                }
                Err(copy) => {
                    // It is this end's own.
                    home.send((copy, round)).expect("move");
                    let (back, word) = moved(answers);
                    assert_eq!(word, round, "{address}");
                    assert!(self::bytes(&back) == bytes, "{address}");
                }
            }
        }
    });
}

/// A hundred moves at a time; the sum of all first words says that each came once.
#[test]
fn throughput_with_a_checksum() {
    everywhere("checksum", |address, mut both| {
        let (runs, mut sum) = (rounds(100), 0);
        for _ in 0..runs {
            for word in 1..=100u64 {
                let mut bytes = [0; PAGE];
                bytes[..8].copy_from_slice(&word.to_le_bytes());
                let buf = filled(&both.pools[0], &bytes);
                both.there.0.send(buf).expect("move");
            }
            for _ in 0..100 {
                let (buf, _) = moved(&mut both.there.1);
                let word: [u8; 8] = bytes(&buf)[..8].try_into().expect("8 bytes");
                sum += u64::from_le_bytes(word);
            }
        }
        assert_eq!(sum, (1..=100).sum::<u64>() * runs, "{address}");
    });
}
