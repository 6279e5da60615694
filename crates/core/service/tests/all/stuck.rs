//! No party waits for what never comes: room that is there, words that found a ring full, a task that is not polled.

use crate::kit::{self, beside, domains, streams, watched};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tranship_core::{ChannelOptions, Domain, ErrorKind, Listener, Receiver, Sender};
use tranship_service::{Call, Client, Service, ServiceOptions, Services};
use tranship_testkit::{Watchdog, block_on};

/// The word of a cancellation, without its call.
const CANCEL: u64 = 1 << 63;

fn connect((a, b): &(Domain, Domain), options: &ServiceOptions) -> (Service, Client) {
    let service = a.serve_with("x", options.clone()).expect("serve");
    let open = || b.client_with("x", options.clone()).expect("client");
    let client = beside(&service, open);
    (service, client)
}

/// A client by hand: it may say anything.
fn by_hand(service: &Service, b: &Domain, lines: u32) -> (Sender, Receiver) {
    let options = ChannelOptions::new().lines(lines);
    beside(service, || kit::by_hand(b, &options))
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Woken {
    fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        future.poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Sends that word until the ring is full, and says how often.
fn fill(sender: &mut Sender, word: u64) -> usize {
    let sent = (0..).take_while(|_| sender.try_send((b"", word)).is_ok());
    sent.count()
}

/// Seen failing: `begin` waited for a reply, as if the answer that was not taken were still on its way.
#[test]
fn an_answer_that_is_not_taken_keeps_no_room() {
    let (_dog, domains) = watched();
    let (service, client) = connect(&domains, &ServiceOptions::new().lines(4));
    let [first, second] = [(); 2].map(|()| client.begin(b"x").expect("begin"));
    for _ in 0..2 {
        service.recv().expect("recv").reply(b"").expect("reply");
    }
    // It takes both answers off the ring.
    second.wait().expect("answer");
    let more = [(); 2].map(|()| client.begin(b"x").expect("begin"));
    drop(more);
    first.wait().expect("answer");
}

/// Fills a ring with items of calls that are over, so that a cancellation and an end find no room. `wait` gets the call that
/// needs its end to be answered.
fn words_find_no_room(wait: impl FnOnce(Call)) {
    let domains = domains();
    let (service, client) = connect(&domains, &ServiceOptions::new().lines(32));
    let begin = || client.begin_with(b"", streams()).expect("begin");
    let send = |call: &Call, items| {
        (0..items).for_each(|_| call.send(b"").expect("send"));
    };
    let calls = [begin(), begin()];
    let requests = [(); 2].map(|()| service.recv().expect("recv"));
    for call in &calls {
        send(call, 8);
        call.finish();
    }
    for request in requests {
        request.reply(b"").expect("reply");
    }
    for call in calls {
        call.wait().expect("answer");
    }
    let [dropped, call] = [begin(), begin()];
    send(&dropped, 8);
    send(&call, 3);
    let plain = client.begin(b"").expect("begin"); // the 32nd line
    drop(dropped);
    call.finish();
    let worker = thread::spawn(move || {
        let [dropped, request] = [(); 2].map(|()| service.recv().expect("recv"));
        let items = std::iter::from_fn(|| request.recv().expect("recv"));
        assert_eq!(items.count(), 3);
        assert!(dropped.is_cancelled());
        request.reply(b"").expect("reply");
    });
    wait(call);
    worker.join().expect("worker");
    drop(plain);
}

/// Seen failing: the words were lost, and both sides waited for ever.
#[test]
fn words_that_find_the_ring_full_are_said_later() {
    let _dog = Watchdog::new();
    words_find_no_room(|call| drop(call.wait().expect("answer")));
    words_find_no_room(|call| drop(block_on(call.wait_async()).expect("answer")));
}

/// Seen failing: one poll took all that was there.
#[test]
fn a_task_that_waits_for_an_answer_pauses_though_messages_come() {
    let (_dog, (a, b)) = watched();
    let options = || ChannelOptions::new().lines(256);
    let requests: Listener<Receiver> = a.listen_with("x", options()).expect("listen");
    let replies: Listener<Sender> = a.listen_with("x/replies", options()).expect("listen");
    let client = thread::spawn(move || b.client("x").expect("client"));
    let (_requests, mut replies) = (requests.accept().expect("accept"), replies.accept());
    let replies = replies.as_mut().expect("accept");
    replies.send((b"", 0)).expect("welcome");
    let client = client.join().expect("client");

    let mut call = pin!(client.call_async(b"x"));
    let woken = Arc::new(Woken::default());
    assert!(woken.poll(call.as_mut()).is_pending());
    let (other, answer) = (77, 1);
    assert!(fill(replies, other) > 200);
    let woken = Arc::new(Woken::default());
    assert!(woken.poll(call.as_mut()).is_pending());
    assert!(woken.is_woken());
    let room = fill(replies, other);
    assert!((1..200).contains(&room), "{room} messages in one poll");
    thread::scope(|s| {
        s.spawn(|| replies.send((b"", answer)).expect("answer"));
        block_on(call).expect("answer");
    });
}

/// Seen failing: one poll took all that was there.
#[test]
fn a_task_that_waits_for_requests_pauses_though_messages_come() {
    let (_dog, (a, b)) = watched();
    let options = ServiceOptions::new().lines(4096);
    let service = a.serve_with("x", options).expect("serve");
    let (mut requests, _replies) = by_hand(&service, &b, 4096);
    assert!(fill(&mut requests, CANCEL) > 4000);
    let mut next = pin!(service.recv_async());
    let woken = Arc::new(Woken::default());
    assert!(woken.poll(next.as_mut()).is_pending());
    assert!(woken.is_woken());
    let room = fill(&mut requests, CANCEL);
    assert!((1..2048).contains(&room), "{room} messages in one poll");
    thread::scope(|s| {
        s.spawn(|| requests.send((b"", 5)).expect("request"));
        drop(block_on(next).expect("request"));
    });
}

/// Seen failing: both waited for the task, which this thread has to poll.
#[test]
fn a_worker_with_a_limit_does_not_wait_for_a_task() {
    let (_dog, domains) = watched();
    let (service, client) = connect(&domains, &ServiceOptions::new());
    let call = client.begin_with(b"", streams()).expect("begin");
    let request = service.recv().expect("recv");
    let mut item = pin!(request.recv_async());
    let woken = Arc::new(Woken::default());
    assert!(woken.poll(item.as_mut()).is_pending());
    for _ in 0..2 {
        assert!(service.try_recv().expect("try_recv").is_none());
        let late = service.recv_timeout(Duration::from_millis(1));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    }
    call.send(b"item").expect("send");
    assert!(block_on(item).expect("recv").is_some());
}

/// Seen failing: the worker waited for ever for a client that is silent.
#[test]
fn a_client_that_is_silent_is_given_up() {
    let (_dog, domains) = watched();
    let options = ServiceOptions::new().patience(Duration::from_millis(20));
    let (service, client) = connect(&domains, &options);
    let error = ErrorKind::TimedOut;
    let silent = client.begin_with(b"", streams()).expect("begin");
    let request = service.recv().expect("recv");
    assert_eq!(request.recv().unwrap_err().kind(), error);
    assert_eq!(request.recv().unwrap_err().kind(), ErrorKind::PeerGone);
    drop(request);
    // The channels of that client are closed, and other clients go on.
    let other = beside(&service, || domains.1.client("x").expect("client"));
    assert!(silent.wait().is_err());

    let silent = other.begin_with(b"", streams()).expect("begin");
    let request = service.recv().expect("recv");
    block_on(async {
        for _ in 0..8 {
            request.send_async(b"item").await.expect("send");
        }
        let failed = request.send_async(b"item").await.unwrap_err();
        assert_eq!(failed.kind(), error);
        let gone = request.recv_async().await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::PeerGone);
    });
    drop(silent);
}

#[test]
fn a_worker_waits_so_long_for_items_and_the_call_goes_on() {
    let (_dog, domains) = watched();
    let (service, client) = connect(&domains, &ServiceOptions::new());
    let call = client.begin_with(b"", streams()).expect("begin");
    let request = service.recv().expect("recv");
    let short = Duration::from_millis(1);
    let late = request.recv_timeout(short).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    call.send(b"item").expect("send");
    assert!(request.recv().expect("recv").is_some());
    for _ in 0..8 {
        request.send(b"item").expect("send");
    }
    let late = request.send_timeout(b"item", short).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    for _ in 0..4 {
        assert!(call.recv().expect("recv").is_some());
    }
    request.send_timeout(b"item", Duration::MAX).expect("send");
}

/// Seen failing: a task waited for ever for a client that sends neither an item nor a cancellation.
#[test]
fn a_task_keeps_the_deadline_of_a_call() {
    let (_dog, domains) = watched();
    let (service, client) = connect(&domains, &ServiceOptions::new());
    let mut time = Duration::from_millis(20);
    let (_call, request) = loop {
        let call = client.begin_with(b"", streams().timeout(time));
        match service.recv_timeout(time) {
            Ok(request) => break (call.expect("begin"), request),
            Err(_) => time *= 2,
        }
    };
    let late = block_on(request.recv_async()).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
}

/// Seen failing: the task in the hall went on waiting until the next message of any client.
#[test]
fn a_task_in_the_hall_hears_that_its_client_is_given_up() {
    let (_dog, (a, b)) = watched();
    // Without patience and deadline no alarm wakes the task.
    let options = ServiceOptions::new().lines(4).patience(Duration::MAX);
    let service = a.serve_with("x", options).expect("serve");
    let (mut requests, _replies) = by_hand(&service, &b, 4);
    let stream = 1 << 23;
    let [first, second] = [1, 2].map(|call| {
        requests.send((b"", stream | call)).expect("request");
        service.recv().expect("recv")
    });
    let mut item = pin!(first.recv_async());
    let woken = Arc::new(Woken::default());
    assert!(woken.poll(item.as_mut()).is_pending());
    // Nobody takes these: the ring of answers is full, and stays so.
    while second.send(b"item").is_ok() {}
    let gone = block_on(item).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::PeerGone);
}
