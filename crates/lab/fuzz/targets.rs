//! What a peer can feed us, as functions of bytes: any bytes may come in, none may panic, and what is accepted must
//! mean one thing. Shared by the fuzz targets and by `crates/lab/testkit/tests/fuzz_smoke.rs`.

use std::cell::Cell;
use tranship_manager::Config;
use tranship_proto::{Event, Request, decode, encode};
use tranship_region::View;
use tranship_region::layout::aggregate;
use tranship_ring::{Consumer, Line, Lines, Producer, Publish, Push};

/// A datagram on the manager's socket, read as either side reads it.
pub fn wire(data: &[u8]) {
    if let Ok(request) = decode::<Request>(data) {
        assert!(request.fds() <= tranship_proto::MAX_FDS);
        assert_eq!(decode(&encode(&request)), Ok(request));
    }
    if let Ok(event) = decode::<Event>(data) {
        assert_eq!(decode(&encode(&event)), Ok(event));
    }
    if decode::<Request>(data).is_ok() {
        let longer = [data, &[0]].concat();
        assert!(decode::<Request>(&longer).is_err(), "bytes after the end");
    }
}

/// The list of an aggregate, as it lies in a buffer.
pub fn list(data: &[u8]) {
    let Ok(pieces) = aggregate::decode(View::from(data)) else {
        return;
    };
    let mut again = vec![0; aggregate::len(pieces.len())];
    assert_eq!(aggregate::encode(&pieces, &mut again), Ok(again.len()));
    assert_eq!(again, data[..again.len()]);
}

/// A ring both of whose shared sides a liar writes: lines, and the consumer's head. Each nine bytes are one step: what
/// to do, and a word.
pub fn ring(data: &[u8]) {
    use std::sync::atomic::Ordering::Relaxed;
    const LINES: usize = 4;
    let memory: [Line; LINES] = Default::default();
    let lines = Lines::new(&memory).expect("a power of two");
    let (mut producer, mut consumer) = (Producer::new(), Consumer::new());
    for step in data.chunks_exact(9) {
        let word = u64::from_le_bytes(step[1..].try_into().expect("eight"));
        let at = usize::from(step[0] >> 2);
        match step[0] & 3 {
            // The liar writes: any word, or one that names the next position.
            0 => memory[at % 4].words[at / 4 % 8].store(word, Relaxed),
            1 => {
                let next = consumer.head().wrapping_add(1) & 0xffff_ffff;
                memory[at % 4].words[0].store(word << 32 | next, Relaxed);
            }
            2 => {
                let before = consumer.head();
                let ready = consumer.ready(lines);
                let taken = consumer.try_pop(lines);
                assert_eq!(taken.is_some(), ready);
                assert_eq!(consumer.head() - before, u64::from(ready));
                assert!(taken.is_none_or(|words| words[0] & 0xffff_ffff == 0));
            }
            _ => {
                let (before, asked) = (producer.tail(), Cell::new(false));
                let head = before.wrapping_sub(word % 8);
                let head = || {
                    asked.set(true);
                    if at == 63 { word } else { head }
                };
                match producer.try_push(lines, Publish::Release, [word; 8], head) {
                    Ok(Push::Done) => assert_eq!(producer.tail(), before + 1),
                    Ok(Push::Full) => assert_eq!(producer.tail(), before),
                    Err(lie) => {
                        assert!(asked.get() && (lie.head < lie.before || lie.head > lie.tail))
                    }
                }
                assert!(producer.tail() - producer.known_head() <= LINES as u64);
            }
        }
    }
}

/// A configuration file; not a peer's, but a file that somebody else may have written.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(error) = Config::parse(text) {
        assert!(!error.to_string().is_empty());
    }
}
