//! Descriptors that did not arrive. Those that a request does not prescribe end a connection. Those for which the
//! manager has no room are a refusal. It is a program of its own, because it uses up the process's descriptors.

mod common;
use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsFd, OwnedFd};
use tranship_manager::{Config, Embedded};
use tranship_proto::{Event, PROTOCOL_VERSION, RefusalCode, Request, Trust, encode};
use tranship_region::layout::TableRw;

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

/// A single test, because the descriptors are the process's.
#[test]
fn descriptors_that_are_lost() {
    no_room_is_a_refusal();
    what_cannot_be_claimed_is_not_given_up();
    a_surplus_ends_the_connection();
}

fn no_room_is_a_refusal() {
    let _dog = watchdog();
    let m = Embedded::start(Config::default(), None).unwrap();
    let mut good = Client::join(m.path(), "good");
    let mut sink = Client::join(m.path(), "sink");
    let mut new = Client::raw(m.path());
    let pool = good.create_pool(1);
    let chan = open_channel(&mut good, &mut sink, "n");
    let counts = Counts::new();
    let assign = Request::Assign {
        req: good.req(),
        channel: chan.id,
        pool: pool.id,
    };
    good.send(&assign, &[counts.sent.0.as_fd()]);
    sink.wait(|e| matches!(e, Event::PoolOffer { .. }).then_some(()));
    let (table, _map) = TableRw::create(SLOTS, CHUNK, CHUNK).unwrap();

    let (before, mut all) = exhaust();
    all.push(rustix::io::dup(&table).unwrap()); // the place of `null`
    let req = good.ask_pool(Trust::Producer, 1, &table);
    assert_eq!(good.refused(req), RefusalCode::NoDescriptors);
    // A client that asked for something impossible is told why.
    let accept = Request::AcceptPool {
        channel: chan.id,
        pool: pool.id,
        with_refs: true,
    };
    let refs = table.as_fd(); // another object would do as well
    sink.send(&accept, &[counts.rcvd.0.as_fd(), refs]);
    let Request::Assign { req, .. } = assign else {
        unreachable!()
    };
    assert_eq!(good.refused(req), RefusalCode::NoDescriptors);
    new.send(&hello(PROTOCOL_VERSION, "new", None), &[]);
    assert_eq!(new.expelled(), Some(RefusalCode::NoDescriptors));
    drop(all);
    setrlimit(Resource::Nofile, before).unwrap();
    // A second request succeeds.
    good.ask_pool(Trust::Producer, 1, &table);
    good.wait(|e| matches!(e, Event::PoolCreated { .. }).then_some(()));
    good.send(&assign, &[counts.sent.0.as_fd()]);
    sink.wait(|e| matches!(e, Event::PoolOffer { .. }).then_some(()));
}

fn what_cannot_be_claimed_is_not_given_up() {
    let m = Embedded::start(Config::default(), None).unwrap();
    let mut writer = Client::join(m.path(), "writer");
    let pool = writer.create_pool(1);
    let back = |writer: &Client| Client::join_as(m.path(), "back", Some(writer.domain));
    let open = open_descriptors();
    writer = back(&writer);
    // The old connection's descriptor is closed by and by.
    while open_descriptors() > open {
        writer.sync();
    }
    let (before, mut all) = exhaust();
    all.push(rustix::io::dup(&pool.table_fd).unwrap()); // the place of `null`
    writer.claim_pool(&pool);
    let done = writer.req();
    writer.send(&Request::ClaimDone { req: done }, &[]);
    let answer = |e: &Event| match *e {
        Event::Refused { req, refusal } if req == done => Some(Err(refusal.code)),
        Event::Claimed { req } if req == done => Some(Ok(())),
        _ => None,
    };
    assert_eq!(writer.wait(answer).0, Err(RefusalCode::NoDescriptors));
    drop(all);
    setrlimit(Resource::Nofile, before).unwrap();
    // The same writer, a second time.
    writer = back(&writer);
    writer.claim_pool(&pool);
    writer.claim_done();
    writer.wait(|e| matches!(e, Event::PoolCreated { .. }).then_some(()));
}

fn a_surplus_ends_the_connection() {
    let m = Embedded::start(Config::default(), None).unwrap();
    let mut good = Client::join(m.path(), "good");
    let mut lost = Client::join(m.path(), "lost");
    let spare = std::fs::File::open("/dev/null").unwrap();
    good.sync();

    // A request without descriptors, together with one without room: the arrived bytes look right except for the flag.
    let (before, mut all) = exhaust();
    all.push(rustix::io::dup(&spare).unwrap()); // the place of `null`
    let req = lost.req();
    lost.send(&Request::Stat { req }, &[spare.as_fd()]);
    // A goodbye would end it in peace; there may be no manager to take it any more.
    let _ = tranship_sys::socket::sendmsg(&lost.fd, &encode(&Request::Goodbye), &[], false);
    assert_eq!(lost.expelled(), Some(RefusalCode::BadDescriptor));
    drop(all);
    setrlimit(Resource::Nofile, before).unwrap();
    good.sync();

    // More than the manager has room for: the arrived descriptors are closed.
    let open = open_descriptors();
    let mut many = Client::join(m.path(), "many");
    let fds = vec![spare.as_fd(); 200];
    send_many(&many.fd, &encode(&Request::Goodbye), &fds);
    assert_eq!(many.expelled(), Some(RefusalCode::BadDescriptor));
    drop(many);
    good.sync();
    // The domain stays as long as its process, with a pidfd and a control page. The connection is closed later.
    while open_descriptors() > open + 2 {
        good.sync();
    }
}

/// Sends like the library's own function, without its bound.
fn send_many(fd: &OwnedFd, bytes: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let bytes = [std::io::IoSlice::new(bytes)];
    sendmsg(fd, &bytes, &mut control, SendFlags::empty()).unwrap();
}
