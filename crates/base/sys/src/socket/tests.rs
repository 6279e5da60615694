use super::*;
use crate::eventfd;
use std::os::unix::fs::PermissionsExt;

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("fds").count()
}

#[test]
fn a_message_brings_bytes_descriptors_and_its_sender() {
    let (a, b) = pair().expect("pair");
    let pidfds = pass_pidfd(&b, true).expect("pidfd");
    let event = eventfd::create().expect("eventfd");
    sendmsg(&a, b"hello", &[event.as_fd(), event.as_fd()], false).expect("send");
    let mut buf = [0; 16];
    let got = recvmsg(&b, &mut buf, false).expect("receive");
    assert_eq!((&buf[..got.bytes], got.fds.len()), (&b"hello"[..], 2));
    assert!(!got.truncated && !got.ctrunc);
    assert_eq!(got.pidfd.is_some(), pidfds);
    eventfd::signal(&got.fds[1]).expect("signal");
    assert!(eventfd::drain(&event).expect("drain"));
}

#[test]
fn too_long_and_too_many_are_said_and_nothing_leaks() {
    // In a child, so that other tests' descriptors do not count.
    let status = crate::process::tests::in_child(|| {
        let before = open_fds();
        {
            let (a, b) = pair().expect("pair");
            sendmsg(&a, &[1; 100], &[], false).expect("send");
            let got = recvmsg(&b, &mut [0; 10], true).expect("receive");
            assert!(got.truncated && got.bytes == 10);
            send_many(&a, 60);
            let got = recvmsg(&b, &mut [0; 10], true).expect("receive");
            assert!(got.ctrunc && got.fds.len() >= MAX_FDS && got.fds.len() < 60);
            send_many(&a, 3);
            let got = recvmsg(&b, &mut [0; 10], true).expect("receive");
            assert!(!got.ctrunc && got.fds.len() == 3);
            let one = a.as_fd();
            assert!(sendmsg(&a, b"x", &[one; MAX_FDS + 1], true).is_err());
            sendmsg(&a, b"x", &[one; MAX_FDS], true).expect("send");
            let got = recvmsg(&b, &mut [0; 10], true).expect("receive");
            assert!(!got.ctrunc && got.fds.len() == MAX_FDS);
        }
        i32::from(open_fds() != before)
    });
    assert_eq!(status, 0);
}

#[test]
fn a_message_comes_whole_or_stays() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // In a child, because the limit is the process's.
    let status = crate::process::tests::in_child(|| {
        let (a, b) = pair().expect("pair");
        let limit = getrlimit(Resource::Nofile);
        sendmsg(&a, b"two", &[a.as_fd(), b.as_fd()], false).expect("send");
        sendmsg(&a, b"none", &[], false).expect("send");
        let (before, mut buf) = (open_fds(), [0; 10]);
        for room in [0, 1] {
            // Numbers are given from the lowest on, and all below this one are taken.
            let low = Rlimit {
                current: Some(u64::try_from(lowest_free()).expect("a number") + room),
                maximum: limit.maximum,
            };
            setrlimit(Resource::Nofile, low).expect("setrlimit");
            let error = recvmsg_whole(&b, &mut buf).expect_err("no room");
            assert_eq!(error.raw_os_error(), Some(crate::errno::NO_DESCRIPTORS));
            setrlimit(Resource::Nofile, limit).expect("setrlimit");
            assert_eq!(open_fds(), before);
        }
        let got = recvmsg_whole(&b, &mut buf).expect("room");
        assert_eq!((&buf[..got.bytes], got.fds.len()), (&b"two"[..], 2));
        drop(got);
        let got = recvmsg_whole(&b, &mut buf).expect("the next");
        assert_eq!((&buf[..got.bytes], got.fds.len()), (&b"none"[..], 0));
        let error = recvmsg_whole(&b, &mut buf).expect_err("nothing");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(recvmsg_whole(&b, &mut buf).expect("the end").bytes, 0);
        0
    });
    assert_eq!(status, 0);
}

fn lowest_free() -> RawFd {
    eventfd::create().expect("eventfd").as_raw_fd()
}

/// Sends more descriptors than this library does, as an untrusted peer may.
fn send_many(fd: &OwnedFd, n: usize) {
    let fds = vec![fd.as_raw_fd(); n];
    let mut control = Control([0u8; space(253 * 4)]);
    let mut byte = 1u8;
    let mut iov = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: all pointers are to locals that are large enough.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = space(n * 4);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = size_of::<libc::cmsghdr>() + n * 4;
        std::ptr::copy_nonoverlapping(fds.as_ptr().cast(), libc::CMSG_DATA(header), n * 4);
        assert!(libc::sendmsg(fd.as_raw_fd(), &raw const message, 0) == 1);
    }
}

#[test]
fn full_and_empty_and_gone() {
    let (a, b) = pair().expect("pair");
    let empty = recvmsg(&b, &mut [0; 8], true).expect_err("empty");
    assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    let full = loop {
        if let Err(error) = sendmsg(&a, &[0; 4096], &[], true) {
            break error;
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    drop(b);
    wait_for_its_end(&a);
    let gone = sendmsg(&a, b"x", &[], true).expect_err("gone");
    assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    let (a, b) = pair().expect("pair");
    sendmsg(&a, b"last", &[], true).expect("send");
    sendmsg(&b, b"unread", &[], true).expect("send");
    drop(a);
    assert_eq!(recvmsg(&b, &mut [0; 8], true).expect("last").bytes, 4);
    wait_for_its_end(&b);
    assert_eq!(recvmsg(&b, &mut [0; 8], true).expect("end").bytes, 0);
}

/// Waits for the end of another test's child, which may have been forked with a copy of the other end.
fn wait_for_its_end(near: &OwnedFd) {
    while !is_hung_up(near) {
        std::thread::yield_now();
    }
}

#[test]
fn one_way_is_one_way_and_what_is_queued_is_thrown_away() {
    let (to, from) = one_way().expect("pair");
    let back = sendmsg(&to, b"x", &[], true).expect_err("the wrong way");
    assert_eq!(back.kind(), io::ErrorKind::BrokenPipe);
    for _ in 0..3 {
        sendmsg(&from, b"four", &[], true).expect("send");
    }
    let none = recvmsg(&from, &mut [0; 8], true).map(|got| got.bytes);
    assert_eq!(none.expect("the end"), 0);
    discard(&to, 2);
    assert_eq!(recvmsg(&to, &mut [0; 8], true).expect("third").bytes, 4);
    discard(&to, 2);
    let empty = recvmsg(&to, &mut [0; 8], true).expect_err("nothing");
    assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    sendmsg(&from, b"last", &[], true).expect("send");
    drop(from);
    wait_for_its_end(&to);
    discard(&to, 1);
    discard(&to, 2);
    assert_eq!(recvmsg(&to, &mut [0; 8], true).expect("the end").bytes, 0);
}

#[test]
fn a_listener_has_its_mode_and_knows_its_peers() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("socket");
    let listener = listen(&path, 0o666).expect("listen");
    let mode = std::fs::metadata(&path).expect("stat").permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    assert!(listen(&path, 0o600).is_err());
    let client = connect(&path).expect("connect");
    let server = accept(&listener).expect("accept");
    for end in [&client, &server] {
        let creds = peer_credentials(end).expect("creds");
        assert_eq!(creds.pid, std::process::id());
        if let Some(pidfd) = peer_pidfd(end).expect("pidfd") {
            assert!(!crate::pidfd::is_dead(&pidfd).expect("poll"));
        }
    }
    set_nonblocking(&listener, true).expect("nonblocking");
    let none = accept(&listener).expect_err("none");
    assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    let long = dir.path().join("x".repeat(200));
    assert!(listen(&long, 0o600).is_err() && connect(&long).is_err());
    assert!(connect(&dir.path().join("nobody")).is_err());
}

#[test]
fn descriptors_can_be_forbidden_where_the_kernel_knows_how() {
    let (a, b) = pair().expect("pair");
    if pass_rights(&b, false).expect("option") {
        let refused = sendmsg(&a, b"x", &[a.as_fd()], true);
        let arrived = || recvmsg(&b, &mut [0; 8], true).map(|got| got.fds.len());
        assert!(refused.is_err() || arrived().expect("receive") == 0);
    }
}

#[test]
fn nobody_connects_before_a_listener_is_prepared() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("socket");
    let prepare = |_: &OwnedFd| Ok(connect(&path).is_err());
    let (_fd, alone) = listen_with(&path, 0o600, prepare).expect("listen");
    assert!(alone && connect(&path).is_ok());
}

#[test]
fn who_connects_to_a_full_queue_waits_no_longer_than_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("socket");
    let listener = listen(&path, 0o600).expect("listen");
    let mut queued = Vec::new();
    while let Ok(fd) = connect_now(&path) {
        queued.push(fd);
    }
    let limit = Duration::from_millis(10);
    let error = connect_within(&path, limit).expect_err("full");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    drop(accept(&listener).expect("accept"));
    let fd = connect_within(&path, limit).expect("room");
    // The limit was for that only.
    let left = sockopt::socket_timeout(&fd, sockopt::Timeout::Send);
    assert_eq!(left, Ok(None));
}

#[test]
fn who_has_hung_up_is_known_before_all_is_taken() {
    let (here, there) = pair().expect("a pair");
    sendmsg(&there, b"last", &[], true).expect("room");
    assert!(!is_hung_up(&here));
    drop(there);
    assert!(is_hung_up(&here));
}
