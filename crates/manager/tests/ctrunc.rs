//! Descriptors that did not arrive: MSG_CTRUNC closes a connection. Its own program, because it uses the process's
//! descriptors up.

mod common;
use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsFd, OwnedFd};
use tranship_manager::{Config, Embedded};
use tranship_proto::{RefusalCode, Request, encode};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Takes every descriptor that this process may still have.
fn exhaust() -> (Rlimit, Vec<OwnedFd>) {
    let before = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: Some(256),
        ..before
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let all = std::iter::from_fn(|| rustix::io::dup(&null).ok()).collect();
    drop(null);
    (before, all)
}

#[test]
fn lost_descriptors_close_the_connection() {
    watchdog();
    let m = Embedded::start(Config::default(), None).unwrap();
    let mut good = Client::join(m.path(), "good");
    let mut lost = Client::join(m.path(), "lost");
    let spare = std::fs::File::open("/dev/null").unwrap();
    good.sync();

    // A request that brings none, with one that finds no place: what arrives looks right but for the flag.
    let (before, mut all) = exhaust();
    all.push(rustix::io::dup(&spare).unwrap()); // the place of `null`
    let req = lost.req();
    lost.send(&Request::Stat { req }, &[spare.as_fd()]);
    // Would end it in peace; there may be nobody to say it to any more.
    let _ = tranship_sys::socket::sendmsg(&lost.fd, &encode(&Request::Goodbye), &[], false);
    assert_eq!(lost.expelled(), Some(RefusalCode::BadDescriptor));
    drop(all);
    setrlimit(Resource::Nofile, before).unwrap();
    good.sync();

    // More than the manager has room for: what did arrive is closed.
    let open = open_descriptors();
    let mut many = Client::join(m.path(), "many");
    let fds = vec![spare.as_fd(); 200];
    send_many(&many.fd, &encode(&Request::Goodbye), &fds);
    assert_eq!(many.expelled(), Some(RefusalCode::BadDescriptor));
    drop(many);
    good.sync();
    // The domain stays as long as its process, with a pidfd and a board.
    assert!(open_descriptors() <= open + 2);
}

/// As the library's own sending, without its bound.
fn send_many(fd: &OwnedFd, bytes: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let bytes = [std::io::IoSlice::new(bytes)];
    sendmsg(fd, &bytes, &mut control, SendFlags::empty()).unwrap();
}
