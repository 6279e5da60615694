//! Memory that was not sent to a process is nowhere in that process. A pool that is not assigned to it has no mapping
//! and no descriptor there. Of a carried buffer only the bytes of messages are there, whatever else is in the buffer.
//!
//! A process that is assigned a pool can read all of it where memory is shared, also at level `none`: see
//! docs/threat-model.md.

use crate::kit::*;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use tranship_core::{ChannelOptions, Domain, Message, PoolOptions, Receiver, Sender, Trust};
use tranship_testkit::{Control, Peer, child};

/// Returns the words to look for, which no program has by chance.
fn words(number: u64) -> Vec<u8> {
    let mut all = b"unseen-".to_vec();
    all.extend(
        (0..8u64).flat_map(|i| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i).to_le_bytes()),
    );
    all
}

/// Returns the places of these words in this process, in memory that others could have given it: memory that is backed
/// by a file, and descriptors.
fn found(number: u64) -> Vec<String> {
    let what = words(number);
    let has = |bytes: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    let mut places = Vec::new();
    let memory = std::fs::File::open("/proc/self/mem").expect("own memory");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
    for line in maps.lines() {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [range, modes, _, _, inode, ..] = parts[..] else {
            continue;
        };
        if !modes.starts_with('r') || inode == "0" || !line.contains("memfd") {
            continue;
        }
        let (begin, end) = range.split_once('-').expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        let (begin, end) = (number(begin), number(end));
        let mut bytes = vec![0; usize::try_from(end - begin).expect("it is mapped")];
        if memory.read_exact_at(&mut bytes, begin).is_ok() && has(&bytes) {
            places.push(line.to_owned());
        }
    }
    for entry in std::fs::read_dir("/proc/self/fd").expect("own descriptors") {
        let path = entry.expect("a descriptor").path();
        let name = std::fs::read_link(&path).unwrap_or_default();
        if name.to_string_lossy().starts_with("/memfd:")
            && let Ok(bytes) = std::fs::read(&path)
            && has(&bytes)
        {
            places.push(name.display().to_string());
        }
    }
    places
}

// Takes as many messages as it is told to and keeps them; looks for the words that it is told.
child!(
    fn sink(ctl: Control) {
        let (socket, address): (Option<PathBuf>, String) =
            ctl.recv().expect("control").expect("start");
        let domain = match socket {
            Some(socket) => {
                let builder = Domain::builder().name("sink").socket(socket);
                builder.helper_thread(true).connect().expect("connect")
            }
            None => Domain::embedded().expect("embedded"),
        };
        tranship_channel::add_to(&domain).expect("carriers");
        let copies = pool(&domain, 1 << 20);
        let options = ChannelOptions::new().snapshots(copies.id());
        let mut from = domain
            .open_with::<Receiver>(&address, options)
            .expect("open");
        let mut kept: Vec<Message> = Vec::new();
        while let Some((takes, looks_for)) = ctl.recv::<(usize, u64)>().expect("control") {
            for _ in 0..takes {
                kept.push(from.recv().expect("recv"));
            }
            ctl.send(&found(looks_for)).expect("control");
        }
    }
);

fn finds(peer: &Peer, takes: usize, number: u64) -> Vec<String> {
    peer.ask(&(takes, number))
}

const SENT: u64 = 1;
const ELSEWHERE: u64 = 2;
const NEVER: u64 = 3;
const BESIDE: u64 = 4;

#[test]
fn a_pool_that_is_not_assigned_is_nowhere_in_another_process() {
    let _dog = dog();
    let builder = Domain::builder().helper_thread(true);
    let domain = builder.embedded().expect("embedded");
    for trust in Trust::ALL {
        let sinks = ["here", "there"].map(|name| {
            let address = format!("shm:unseen-{trust}-{name}");
            let listener = domain.listen::<Sender>(&address).expect("listen");
            let peer = sink().start().expect("start");
            let socket = domain.socket_path().expect("socket");
            peer.send(&(Some(socket), &address)).expect("send");
            (listener.accept().expect("accept"), peer)
        });
        let [(mut here, a), (mut there, b)] = sinks;
        let of = |number| {
            let pool = pool_of(&domain, 1 << 20, trust);
            let buf = pool.copy(&words(number)).expect("alloc");
            (pool, buf.freeze())
        };
        let ((_one, sent), (_two, other), (_three, never)) = (of(SENT), of(ELSEWHERE), of(NEVER));
        here.send(sent).expect("send");
        there.send(other).expect("send");
        assert!(
            !finds(&a, 1, SENT).is_empty(),
            "looking finds what is there"
        );
        assert!(!finds(&b, 1, ELSEWHERE).is_empty());
        for (peer, number) in [(&a, ELSEWHERE), (&b, SENT), (&a, NEVER), (&b, NEVER)] {
            let places = finds(peer, 0, number);
            assert!(places.is_empty(), "{number} at {trust}: {places:?}");
        }
        drop(never);
    }
}

/// A message carries its bytes, and nothing of the bytes before them, behind them, or in the rest of its buffer.
#[test]
fn nothing_but_the_bytes_of_messages_is_carried() {
    let _dog = dog();
    let domain = Domain::embedded().expect("embedded");
    tranship_channel::add_to(&domain).expect("carriers");
    let address = format!("copy:unseen-{}", std::process::id());
    let listener = domain.listen::<Sender>(&address).expect("listen");
    let peer = sink().start().expect("start");
    peer.send(&(None::<PathBuf>, &address)).expect("send");
    let mut to = listener.accept().expect("accept");
    // The pool has one buffer at a time, with other contents before.
    let options = PoolOptions::new(64 << 10).chunk_bytes(64 << 10);
    let pool = domain.create_pool(options).expect("pool");
    let (sent, beside) = (words(SENT), words(BESIDE));
    let mut buf = pool.alloc(64 << 10).expect("alloc");
    for at in (0..64 << 10).step_by(1024) {
        buf.write(at, &beside).expect("inside");
    }
    buf.write(1024, &sent).expect("inside");
    let shared = buf.freeze();
    to.send(shared.slice(1024..1024 + sent.len()))
        .expect("send");
    drop(shared);
    // Available once the carrier has released it.
    let mut moved = pool.alloc(64 << 10).expect("alloc");
    moved.write(0, &sent).expect("inside");
    moved.truncate(sent.len());
    to.send(moved).expect("move");
    assert!(
        !finds(&peer, 2, SENT).is_empty(),
        "looking finds what is there"
    );
    let places = finds(&peer, 0, BESIDE);
    assert!(places.is_empty(), "{places:?}");
}
