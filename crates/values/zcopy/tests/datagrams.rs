//! Datagrams arrive one by one as they were sent, in their order, however many went together, copied or by reference.

mod kit;

use kit::{bound, dog, has_error, pattern, ring_possible};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use tranship_testkit::lab::{self, Lab};
use tranship_testkit::{Random, is_root, skipped};
use tranship_zcopy::{Arena, Piece, Sender, Socket, Value, Way};

/// Bytes and datagrams of a batch: as many as a receiver's buffer holds, which counts some hundred bytes for each
/// besides.
const BATCH: (usize, usize) = (20_000, 60);

/// A header's number, and parts of values: number, from, to.
type Parts = (usize, Vec<(usize, usize, usize)>);

struct Batch {
    headers: Vec<Vec<u8>>,
    values: Vec<Value>,
    parts: Vec<Parts>,
}

impl Batch {
    /// Datagrams of which several in a row are of one length, of up to `longest` bytes.
    fn random(random: &mut Random, arena: &Arena, longest: u64) -> Batch {
        let mut batch = Batch {
            headers: Vec::new(),
            values: Vec::new(),
            parts: Vec::new(),
        };
        let small = |n: u64| usize::try_from(n).expect("small");
        let mut all = 0;
        let full = |all, count| all >= BATCH.0 || count >= BATCH.1;
        while !full(all, batch.parts.len()) {
            let (len, head) = (small(1 + random.below(longest)), small(random.below(60)));
            for _ in 0..1 + random.below(20) {
                // The last of those of one length may be shorter.
                let len = if random.one_in(12) { 1 + len / 2 } else { len };
                let head = head.min(len);
                let seed = small(random.below(1 << 30));
                batch.headers.push(pattern(seed, head));
                let value = len - head + small(random.below(3)) * 7;
                batch
                    .values
                    .push(arena.copy(&pattern(seed + 1, value)).expect("room"));
                let (number, cut) = (batch.values.len() - 1, (len - head) / 3);
                let from = value - (len - head);
                // The value is in two pieces of the same page.
                let parts = vec![(number, from, from + cut), (number, from + cut, value)];
                batch.parts.push((batch.headers.len() - 1, parts));
                all += len;
                if full(all, batch.parts.len()) {
                    break;
                }
            }
        }
        batch
    }

    /// Datagrams of a header and most of a value, whose pageblocks are full.
    fn protected(random: &mut Random, arena: &Arena) -> Batch {
        let seed = usize::try_from(random.below(1 << 30)).expect("small");
        let values: Vec<_> = (0..64)
            .map(|number| arena.copy(&pattern(seed + number, 1024)).expect("room"))
            .collect();
        arena.protect();
        assert!(values.iter().all(Value::is_protected));
        Batch {
            headers: (0..64)
                .map(|number| pattern(seed + number + 1000, 8))
                .collect(),
            parts: (0..64)
                .map(|number| (number, vec![(number, number % 7, 1000)]))
                .collect(),
            values,
        }
    }

    fn datagrams(&self) -> Vec<Vec<Piece<'_>>> {
        let pieces = |(head, parts): &Parts| {
            let parts = parts.iter();
            std::iter::once(Piece::Bytes(&self.headers[*head]))
                .chain(parts.map(|&(value, from, to)| Piece::Part(&self.values[value], from..to)))
                .collect()
        };
        self.parts.iter().map(pieces).collect()
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        let bytes = |(head, parts): &Parts| {
            let mut all = self.headers[*head].clone();
            for &(value, from, to) in parts {
                all.extend_from_slice(&self.values[value][from..to]);
            }
            all
        };
        self.parts.iter().map(bytes).collect()
    }
}

fn arrive(at: &UdpSocket, expected: &[Vec<u8>]) {
    let mut room = vec![0; 70_000];
    for (number, bytes) in expected.iter().enumerate() {
        let len = at.recv(&mut room).expect("a datagram");
        assert!(
            room[..len] == bytes[..],
            "datagram {number} of {}: {len} bytes came, {} were sent",
            expected.len(),
            bytes.len()
        );
    }
}

#[test]
fn datagrams_of_all_lengths_arrive_as_they_were_sent() {
    let _dog = dog();
    let mut random = Random::printed("datagrams");
    let (near, far) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
    let to = far.local_addr().expect("an address");
    let arena = Arena::new().expect("arena");
    let mut sender = Sender::new().expect("sender");
    for round in 0..60 {
        // Connected, or told where.
        let to = if round % 2 == 0 {
            near.connect(to).expect("connect");
            None
        } else {
            Some(to)
        };
        let mut socket = Socket::new(&near).expect("a socket");
        sender.force((round % 3 == 0).then_some(Way::Copy));
        let longest = [300, 1400, 9000][round % 3];
        let batch = Batch::random(&mut random, &arena, longest);
        arena.protect();
        let expected = batch.bytes();
        let sent = sender.send_datagrams(&near, &mut socket, to, &batch.datagrams());
        assert_eq!(sent.expect("room"), expected.len());
        drop(batch);
        arrive(&far, &expected);
    }
    let counts = sender.counts();
    assert!(counts.together > 60, "{counts:?}");
    assert_eq!(
        counts.referred_bytes, 0,
        "the kernel copies on this way, so none is asked for"
    );
}

#[test]
fn a_datagram_that_is_too_long_is_an_error_and_those_before_it_are_gone() {
    let _dog = dog();
    let (near, far) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
    let to = far.local_addr().expect("an address");
    let arena = Arena::new().expect("arena");
    let long = arena.copy(&[1; 70_000]).expect("room");
    let short = arena.copy(&[2; 100]).expect("room");
    let (long, short) = ([Piece::Value(&long)], [Piece::Value(&short)]);
    let mut sender = Sender::new().expect("sender");
    let mut socket = Socket::new(&near).expect("a socket");
    let mut send = |datagrams: &[[Piece<'_>; 1]]| {
        sender.send_datagrams(&near, &mut socket, Some(to), datagrams)
    };
    let error = send(std::slice::from_ref(&long)).expect_err("too long");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    let all = [short.clone(), short.clone(), long, short];
    assert_eq!(send(&all).expect("two"), 2);
    arrive(&far, &[vec![2; 100], vec![2; 100]]);
    // The datagrams that follow still go together.
    assert_eq!(send(&all[..2]).expect("two"), 2);
    assert_eq!(sender.counts().together, 2);
}

#[test]
fn out_of_registered_pages_is_as_it_was_also_where_they_were_replaced_since() {
    if let Err(why) = ring_possible() {
        return skipped(why);
    }
    through_a_device(false);
}

#[test]
fn registered_pages_that_the_kernel_copies_all_the_same_are_given_up_for_the_socket() {
    if let Err(why) = ring_possible() {
        return skipped(why);
    }
    through_a_device(true);
}

/// Batch after batch, each in the place of the last one, to another network namespace. On one socket for all of it the
/// way is given up.
fn through_a_device(one_socket: bool) {
    let _dog = dog();
    if let Err(why) = lab::possible() {
        return skipped(why);
    }
    let lab = Lab::new(Random::printed("lab")).expect("two hosts");
    let enter = |host| lab::enter(&lab.namespace(host)).expect("a host");
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let (expect, expected) = std::sync::mpsc::channel::<Vec<Vec<u8>>>();
        let (seen, done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            enter(1);
            let far = bound("10.77.0.2:0");
            tell.send(far.local_addr().expect("an address"))
                .expect("told");
            for expected in expected {
                arrive(&far, &expected);
                seen.send(()).expect("seen");
            }
        });
        let mut random = Random::printed("datagrams");
        enter(0);
        let to = told.recv().expect("an address");
        let near = bound("0.0.0.0:0");
        // A datagram that waits until the other host's address is known may be overtaken when it is.
        near.send_to(b"first", to).expect("room");
        expect.send(vec![b"first".to_vec()]).expect("told");
        done.recv().expect("arrived");
        let mut sender = Sender::new().expect("sender");
        sender.force(Some(Way::Registered));
        let mut socket = Socket::new(&near).expect("a socket");
        let arena = Arena::new().expect("arena");
        let (mut referred, mut gave_up) = (0, 0);
        for round in 1..=20 {
            let batch = Batch::protected(&mut random, &arena);
            let expected_now = batch.bytes();
            let datagrams = batch.datagrams();
            let mut at = 0;
            while at < datagrams.len() {
                // A device's queue is shorter than a batch.
                let end = datagrams.len().min(at + 16);
                let part = &datagrams[at..end];
                let sent = sender.send_datagrams(&near, &mut socket, Some(to), part);
                assert_eq!(sent.expect("room"), part.len());
                expect.send(expected_now[at..end].to_vec()).expect("told");
                done.recv().expect("arrived");
                at = end;
                if !one_socket {
                    socket = Socket::new(&near).expect("a socket");
                }
            }
            drop(datagrams);
            drop(batch);
            if !one_socket && round % 4 == 0 {
                // Another one registers the present pageblocks.
                let counts = sender.counts();
                assert!(counts.referred_bytes > 0, "{counts:?}");
                sender = Sender::new().expect("sender");
                sender.force(Some(Way::Registered));
            }
            sender.settle(&near, &mut socket).expect("settled");
            let counts = sender.counts();
            referred += counts.referred_bytes;
            gave_up = counts.gave_up_notified;
        }
        assert!(!has_error(near.as_fd()), "a notification was left");
        assert!(referred > 0);
        assert_eq!(gave_up, u64::from(one_socket));
        drop(expect);
    });
}

#[test]
fn what_is_registered_goes_by_reference_many_in_a_call() {
    if let Err(why) = ring_possible() {
        return skipped(why);
    }
    into_a_device(Some(Way::Registered));
}

#[test]
fn pages_of_which_many_datagrams_go_are_registered() {
    if let Err(why) = ring_possible() {
        return skipped(why);
    }
    into_a_device(None);
}

/// An ifb device in a network namespace of this thread's own.
fn device() -> Result<(), String> {
    if !is_root() {
        return Err("needs root, to make a network namespace and a device".into());
    }
    // The namespace is this thread's, and goes with it.
    // SAFETY: a new network namespace for this thread takes nothing from anybody.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    let ip = |words: &str| {
        let done = Command::new("ip").args(words.split(' ')).output();
        done.is_ok_and(|done| done.status.success())
    };
    // An ifb that nothing is mirrored to drops its datagrams, as a card drops what it has put on the wire.
    let made = [
        "link add ifb0 type ifb",
        "link set ifb0 up",
        "address add 10.78.0.1/24 dev ifb0",
    ]
    .into_iter()
    .all(ip);
    if !made {
        return Err("no ifb device (ip link add type ifb)".into());
    }
    Ok(())
}

fn into_a_device(way: Option<Way>) {
    let _dog = dog();
    if let Err(why) = device() {
        return skipped(why);
    }
    let arena = Arena::new().expect("arena");
    let values: Vec<_> = (0..256)
        .map(|seed| arena.copy(&pattern(seed, 1024)).expect("room"))
        .collect();
    arena.protect();
    let datagrams: Vec<_> = values.iter().map(|value| [Piece::Value(value)]).collect();
    let near = bound("10.78.0.1:0");
    let to = Some(SocketAddr::from(([10, 78, 0, 2], 7)));
    let mut sender = Sender::new().expect("sender");
    sender.force(way);
    let mut socket = Socket::new(&near).expect("a socket");
    if way.is_none() {
        // Copied, until a thread has registered the pages.
        while sender.counts().referred_bytes == 0 {
            let sent = sender.send_datagrams(&near, &mut socket, to, &datagrams);
            assert_eq!(sent.expect("room"), datagrams.len());
        }
        return;
    }
    for _ in 0..20 {
        let sent = sender.send_datagrams(&near, &mut socket, to, &datagrams);
        assert_eq!(sent.expect("room"), datagrams.len());
    }
    sender.settle(&near, &mut socket).expect("settled");
    assert!(!has_error(near.as_fd()), "a notification was left");
    let counts = sender.counts();
    let of_values = counts.referred_bytes + counts.copied_bytes;
    assert_eq!(of_values, 20 * 256 * 1024);
    assert_eq!(
        (counts.gave_up_notified, counts.copied_bytes),
        (0, 0),
        "{counts:?}"
    );
    // 16 pages at once, or 17.
    assert!(counts.together <= 20 * 256 / 16, "{counts:?}");
}
