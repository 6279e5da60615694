//! Data that the kernel refuses by reference, or copies all the same, goes by copying. Where there is no room, the
//! result does not exceed what went. All arrives as it was sent.

mod kit;

use kit::line::Line;
use kit::{dog, exactly, has_error, pair, pattern};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tranship_testkit::{is_root, skipped};
use tranship_zcopy::{Arena, Piece, Sender, Socket, Value, Way};

/// A child that one test forks has its own copy of values that another test still fills, which are then sent by
/// copying.
static ONE_BY_ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn protected(arena: &Arena, len: usize) -> (Vec<Value>, Vec<Vec<u8>>) {
    let bytes: Vec<_> = (0..200_000 / len + 70)
        .map(|seed| pattern(seed, len))
        .collect();
    let values: Vec<_> = bytes
        .iter()
        .map(|bytes| arena.copy(bytes).expect("room"))
        .collect();
    arena.protect();
    assert!(values[0].is_protected());
    (values, bytes)
}

/// ENOBUFS, until there is room again.
#[test]
fn a_stream_that_has_no_room_for_notifications_is_copied() {
    let (_alone, _dog) = (alone(), dog());
    if !is_root() {
        return skipped("needs root, to make a network namespace");
    }
    // SAFETY: a new network namespace for this thread takes nothing from anybody.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "unshare");
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    if !up.is_ok_and(|status| status.success()) {
        return skipped("no ip (package iproute2)");
    }
    let room = |bytes: &str| std::fs::write("/proc/sys/net/core/optmem_max", bytes);
    if let Err(error) = room("1") {
        return skipped(format!(
            "net.core.optmem_max of a namespace (Linux 6.8): {error}"
        ));
    }
    let arena = Arena::new().expect("arena");
    let (values, bytes) = protected(&arena, 20_000);
    let mut line = Line::stream(Way::Notified, false);
    let referred = |line: &Line| line.counts().referred_bytes;
    for number in 0..3 {
        line.send(&[Piece::Value(&values[number])], &bytes[number..=number]);
    }
    assert_eq!((referred(&line), line.counts().copied_bytes), (0, 60_000));
    room("131072").expect("as before");
    line.send(&[Piece::Value(&values[3])], &bytes[3..4]);
    assert_eq!(referred(&line), 20_000, "{:?}", line.counts());
    line.waits();
    line.arrives();
}

/// Little memory may be locked from here on, and nobody's privileges count. False, and said, if that cannot be had.
fn without_privileges() -> bool {
    let little = libc::rlimit {
        rlim_cur: 64 << 10,
        rlim_max: 64 << 10,
    };
    // A user that has no other process.
    let user = 1_000_000 + std::process::id();
    // SAFETY: of this child, which has one thread.
    let done = unsafe {
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const little) == 0
            && (!is_root() || (libc::setgid(user) == 0 && libc::setuid(user) == 0))
    };
    if !done {
        let error = std::io::Error::last_os_error();
        skipped(format!(
            "a process without privileges, and 64 KiB to lock: {error}"
        ));
    }
    done
}

#[test]
fn where_little_memory_may_be_locked_the_rest_is_copied() {
    let (_alone, _dog) = (alone(), dog());
    let child = kit::fork(|| {
        if !without_privileges() {
            return true;
        }
        let arena = Arena::new().expect("arena");
        let (values, bytes) = protected(&arena, 16_000);
        let mut line = Line::stream(Way::Notified, false);
        for number in 0..12 {
            let went = line.send(&[Piece::Value(&values[number])], &bytes[number..=number]);
            assert_eq!(went, 1, "room for {number}");
        }
        let counts = line.counts();
        assert!(
            counts.referred_bytes > 0 && counts.copied_bytes > 0,
            "{counts:?}"
        );
        line.arrives();
        true
    });
    assert!(child.succeeds());
}

#[test]
fn where_too_little_memory_may_be_locked_nothing_is_registered() {
    let (_alone, _dog) = (alone(), dog());
    let mut line = match Line::datagrams(Way::Registered) {
        Ok(line) => line,
        Err(why) => return skipped(why),
    };
    let bytes: Vec<_> = (0..10).map(|seed| pattern(seed, 1000)).collect();
    let child = kit::fork(|| {
        let given_up = without_privileges();
        let arena = Arena::new().expect("arena");
        let (values, _) = protected(&arena, 1000);
        let pieces: Vec<_> = values[..10].iter().map(Piece::Value).collect();
        let went = line.send(&pieces, &bytes);
        let counts = line.counts();
        assert_eq!(went, 10);
        assert!(!given_up || counts.referred_bytes == 0, "{counts:?}");
        true
    });
    assert!(child.succeeds());
    line.expects(&bytes);
    line.arrives();
}

/// Makes the kernel refuse this call of the child with this number from here on.
fn refuse(call: libc::c_long, errno: i32) {
    let rules = BTreeMap::from([(call, Vec::new())]);
    let no = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().expect("a processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, no, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter(&program).expect("seccomp");
}

/// Numbers that errors have.
const NUMBERS: std::ops::Range<i32> = 1..134;

#[test]
fn a_way_that_is_refused_with_any_number_is_copied() {
    let (_alone, _dog) = (alone(), dog());
    for (way, call) in [
        (Way::Splice, libc::SYS_vmsplice),
        (Way::Splice, libc::SYS_splice),
        (Way::Splice, libc::SYS_tee),
        (Way::Splice, libc::SYS_pipe2),
        (Way::Copy, libc::SYS_sendfile),
    ] {
        for errno in NUMBERS {
            let child = kit::fork(|| {
                let arena = Arena::new().expect("arena");
                let bytes = [pattern(1, 40_000), pattern(2, 3000), b"header".to_vec()];
                let value = arena.copy(&bytes[0]).expect("room");
                arena.protect();
                let mut file = tempfile::tempfile().expect("a file");
                file.write_all(&bytes[1]).expect("written");
                let mut line = Line::stream(way, errno % 2 == 0);
                refuse(call, errno);
                for _ in 0..2 {
                    let one = [Piece::Value(&value)];
                    assert_eq!(line.send(&one, &bytes[..1]), 1);
                    let list = [Piece::File(&file, 0..3000), Piece::Bytes(&bytes[2])];
                    assert_eq!(line.send(&list, &bytes[1..]), 2);
                }
                // Files go by sendfile(2); nothing goes by tee(2).
                let expected = match call {
                    libc::SYS_tee => 86_000,
                    libc::SYS_sendfile => 0,
                    _ => 6000,
                };
                assert_eq!(line.counts().referred_bytes, expected);
                line.arrives();
                true
            });
            assert!(child.succeeds(), "{way}: call {call} with {errno}");
        }
    }
}

#[test]
fn a_ring_that_is_refused_with_any_number_is_copied() {
    let (_alone, _dog) = (alone(), dog());
    let mut line = match Line::datagrams(Way::Registered) {
        Ok(line) => line,
        Err(why) => return skipped(why),
    };
    let bytes: Vec<_> = (0..4).map(|seed| pattern(seed, 1000)).collect();
    for call in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_enter,
    ] {
        for errno in [
            libc::ENOSYS,
            libc::EPERM,
            libc::EACCES,
            libc::EFAULT,
            libc::EAGAIN,
            libc::EINTR,
            libc::EBUSY,
            libc::ECONNREFUSED,
        ] {
            let child = kit::fork(|| {
                let arena = Arena::new().expect("arena");
                let (values, _) = protected(&arena, 1000);
                refuse(call, errno);
                let pieces: Vec<_> = values[..4].iter().map(Piece::Value).collect();
                assert_eq!(line.send(&pieces, &bytes), 4);
                assert_eq!(line.counts().referred_bytes, 0);
                true
            });
            assert!(child.succeeds(), "call {call} with {errno}");
            line.expects(&bytes);
        }
    }
    line.arrives();
}

/// On loopback the kernel copies data that was to go by reference, and reports that with the notification.
#[test]
fn a_socket_for_which_the_kernel_copies_is_copied_to_and_no_other() {
    let (_alone, _dog) = (alone(), dog());
    let arena = Arena::new().expect("arena");
    let (values, bytes) = protected(&arena, 20_000);
    let mut sender = Sender::new().expect("sender");
    sender.force(Some(Way::Notified));
    let mut lines = [pair::tcp(), pair::tcp()].map(|pair| {
        let socket = Socket::elsewhere(pair.near()).expect("a socket");
        (pair, socket)
    });
    for (number, (pair, socket)) in lines.iter_mut().enumerate() {
        let before = sender.counts();
        let value = &values[number];
        let send = |sender: &mut Sender, socket: &mut Socket| {
            let sent = sender.send(pair.near(), socket, &[Piece::Value(value)]);
            assert_eq!(sent.expect("room"), value.len());
            assert!(pair.takes(value.len()) == bytes[number]);
        };
        send(&mut sender, socket);
        let after = sender.counts();
        let referred = after.referred_bytes - before.referred_bytes;
        assert_eq!(referred, 20_000, "socket {number}: {after:?}");
        while sender.counts().gave_up_notified == before.gave_up_notified {
            // The acknowledgement is under way.
            std::thread::yield_now();
            sender.settle(pair.near(), socket).expect("settled");
        }
        let given_up = sender.counts();
        send(&mut sender, socket);
        let after = sender.counts();
        assert_eq!(
            (after.referred_bytes, after.copied_bytes),
            (given_up.referred_bytes, given_up.copied_bytes + 20_000),
            "socket {number}"
        );
        assert!(!has_error(pair.near()), "a notification was left");
    }
    assert_eq!(sender.counts().gave_up_notified, 2);
}

#[test]
fn of_datagrams_that_have_no_room_it_is_said_how_many_went() {
    let (_alone, _dog) = (alone(), dog());
    for way in [Way::Copy, Way::Registered] {
        let mut line = match Line::datagrams_with_room(way, 40_000) {
            Ok(line) => line,
            Err(why) => return skipped(format!("{way}: {why}")),
        };
        let arena = Arena::new().expect("arena");
        let (values, bytes) = protected(&arena, 1000);
        // Two lengths in turn, so that each goes by itself; then many of one length, which go together.
        let cut = |number: usize| if number.is_multiple_of(2) { 1000 } else { 999 };
        let pieces: Vec<_> = (0..100)
            .map(|number| Piece::Part(&values[number], 0..cut(number)))
            .collect();
        let bytes: Vec<_> = (0..100)
            .map(|number| bytes[number][..cut(number)].to_vec())
            .collect();
        let went = line.send(&pieces, &bytes);
        assert!((1..100).contains(&went), "{way}: {went} of 100 had room");
        assert_eq!(line.counts().partial, 1, "{way}");
        let more = line.send(&pieces[went..], &bytes[went..]);
        assert_eq!(more, 0, "{way}: no room, and then room");
        let referred = line.counts().referred_bytes;
        assert_eq!(referred > 0, way != Way::Copy, "{way}");
        line.arrives();
    }
}

/// Bytes that a socket did not take stay in no pipe: they would go to the next socket.
#[test]
fn without_descriptors_nothing_is_left_for_the_next_socket() {
    let (_alone, _dog) = (alone(), dog());
    let child = kit::fork(|| {
        let arena = Arena::new().expect("arena");
        let (values, bytes) = protected(&arena, 20_000);
        let mut sender = Sender::new().expect("sender");
        sender.force(Some(Way::Splice));
        let (first, second) = (pair::unix(), pair::unix());
        let mut sockets = [&first, &second].map(|pair| Socket::new(pair.near()).expect("a socket"));
        let mut send = |pair: &pair::Pair, socket: usize, pieces: &[Piece<'_>]| {
            let sent = sender.send(pair.near(), &mut sockets[socket], pieces);
            sent.expect("room for some")
        };
        let one = [Piece::Value(&values[0])];
        assert_eq!(send(&first, 0, &one), 20_000);
        exactly(&first, &bytes[0]);
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: of this child, which has one thread.
        let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
        assert_eq!(done, 0);
        // More values than there is room for, so that the last splice goes short.
        let many: Vec<_> = values[..60].iter().map(Piece::Value).collect();
        let sent = send(&first, 0, &many);
        assert!(sent < 60 * 20_000, "all of it had room");
        assert_eq!(send(&second, 1, &one), 20_000);
        exactly(&second, &bytes[0]);
        exactly(&first, &bytes[..60].concat()[..sent]);
        true
    });
    assert!(child.succeeds());
}
