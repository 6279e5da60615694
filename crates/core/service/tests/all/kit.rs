//! Domains, workers and clients that several tests use.
#![allow(dead_code)] // each program uses a part of it

use tranship_core::{ChannelOptions, Domain, Receiver, Sender};
use tranship_service::{CallOptions, Request, Service};
use tranship_testkit::Watchdog;

/// A domain with a manager, and the watchdog of the test.
#[track_caller]
pub(crate) fn first() -> (Watchdog, Domain) {
    let dog = Watchdog::new();
    let a = Domain::builder().name("a").helper_thread(true).embedded();
    (dog, a.expect("embedded"))
}

pub(crate) fn join(first: &Domain, name: &str) -> Domain {
    let path = first.socket_path().expect("socket");
    let builder = Domain::builder().name(name).socket(path);
    builder.helper_thread(true).connect().expect("connect")
}

/// Two domains, and the watchdog of the test.
#[track_caller]
pub(crate) fn watched() -> (Watchdog, (Domain, Domain)) {
    let (dog, a) = first();
    let b = join(&a, "b");
    (dog, (a, b))
}

pub(crate) fn domains() -> (Domain, Domain) {
    watched().1
}

pub(crate) fn streams() -> CallOptions {
    CallOptions::new().streams()
}

/// Serves each request by `work`, until one says `stop`.
pub(crate) fn serves(service: &Service, work: impl Fn(Request)) {
    loop {
        let request = service.recv().expect("recv");
        if request.to_vec() == b"stop" {
            return request.reply(b"").expect("reply");
        }
        work(request);
    }
}

/// Returns what `open` returns, while this thread is the service's worker and gets no request.
pub(crate) fn beside<T: Send>(service: &Service, open: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        let opened = s.spawn(open);
        while !opened.is_finished() {
            assert!(service.try_recv().expect("try_recv").is_none());
            std::thread::yield_now();
        }
        opened.join().expect("opened")
    })
}

/// A client by hand: it may say anything.
pub(crate) fn by_hand(b: &Domain, options: &ChannelOptions) -> (Sender, Receiver) {
    let mut requests: Sender = b.open_with("x", options.clone()).expect("open");
    let mut replies: Receiver = b.open_with("x/replies", options.clone()).expect("open");
    requests.send((b"", 1)).expect("number");
    replies.send_back((b"", 1)).expect("number");
    assert_eq!(replies.recv().expect("welcome").word, 0);
    (requests, replies)
}
