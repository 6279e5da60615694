//! Many items within one call, either way.

use crate::kit::{self, beside, domains, serves, streams, watched};
use std::thread;
use std::time::Duration;
use tranship_core::{ChannelOptions, Domain, ErrorKind, Listener, Receiver, Sender};
use tranship_service::{CallError, Client, Request, ServiceOptions, Services};
use tranship_testkit::{Watchdog, block_on};

/// A service with a worker, and a client of it.
fn with_worker(
    work: impl Fn(Request) + Send + 'static,
) -> (Domain, Domain, Client, thread::JoinHandle<()>) {
    let (a, b) = domains();
    let service = a.serve("x").expect("serve");
    let worker = thread::spawn(move || serves(&service, work));
    let client = b.client("x").expect("client");
    (a, b, client, worker)
}

/// Doubles each item as it comes; then says how many there were.
fn double(request: Request) {
    let mut items = 0u8;
    while let Some(item) = request.recv().expect("item") {
        let mut twice = request.alloc(item.len()).expect("alloc");
        for (to, from) in twice.iter_mut().zip(item.to_vec()) {
            *to = from.wrapping_mul(2);
        }
        request.send(twice).expect("send");
        items = items.wrapping_add(1);
    }
    request.reply(&[items]).expect("reply");
}

/// One thread does all: the client's items and the service's stop at the window, and go on.
#[test]
fn a_sender_waits_for_the_other_side_and_an_answer_frees_it() {
    let (_dog, (a, b)) = watched();
    let service = a.serve("x").expect("serve");
    let client = beside(&service, || b.client("x").expect("client"));
    let call = client.begin_with(b"", streams().timeout(Duration::from_secs(3600)));
    let call = call.expect("begin");
    let request = service.recv().expect("request");
    for i in 0..8u8 {
        call.send(&[i]).expect("send");
        request.send(&[i]).expect("send");
    }
    // No ninth before some were taken: a sender waits.
    thread::scope(|s| {
        let ninth = s.spawn(|| call.send(&[8]));
        for i in 0..4u8 {
            assert_eq!(
                request.recv().expect("recv").expect("an item").to_vec(),
                [i]
            );
        }
        ninth.join().expect("sender").expect("sent");
        let late = client.begin_with(b"", streams().timeout(Duration::from_millis(20)));
        let late = late.expect("begin");
        for i in 0..8u8 {
            late.send(&[i]).expect("send");
        }
        let error = late.send(&[8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        drop(late);
        let waits = s.spawn(|| {
            loop {
                // The window is never opened again: the answer ends it.
                if let Err(error) = call.send(b"more") {
                    break error.kind();
                }
            }
        });
        let taker = s.spawn(|| {
            for i in 0..4u8 {
                assert_eq!(call.recv().expect("recv").expect("an item").to_vec(), [i]);
            }
        });
        request.send(&[8]).expect("sent");
        taker.join().expect("taker");
        request.fail(b"enough").expect("fail");
        assert_eq!(waits.join().expect("sender"), ErrorKind::ChannelState);
    });
    assert!(matches!(call.wait().unwrap_err(), CallError::Failed(m) if m.to_vec() == b"enough"));
}

#[test]
fn waiting_for_the_answer_lets_go_of_items() {
    let _dog = Watchdog::new();
    let (_a, _b, client, worker) = with_worker(|request| {
        for i in 0..100 {
            request.send(&[i]).expect("send");
        }
        request.reply(b"sent").expect("reply");
    });
    for _ in 0..3 {
        let call = client.begin_with(b"", streams()).expect("begin");
        assert_eq!(call.wait().expect("answer").to_vec(), b"sent");
    }
    client.call(b"stop").expect("stop");
    worker.join().expect("worker");
}

/// Many calls with streams share few lines, and workers that wait for items give way to workers that wait for requests.
#[test]
fn many_streams_of_several_clients_and_workers() {
    let (_dog, (a, b)) = watched();
    let options = ServiceOptions::new().lines(32);
    let service = a.serve_with("x", options.clone()).expect("serve");
    let work = |request: Request| match request.to_vec().as_slice() {
        b"plain" => request.reply(b"plain").expect("reply"),
        _ => double(request),
    };
    let workers = [(); 3].map(|()| {
        let service = service.clone();
        thread::spawn(move || serves(&service, work))
    });
    let clients = [(); 2].map(|()| b.client_with("x", options.clone()).expect("client"));
    thread::scope(|s| {
        for caller in 0..6u8 {
            let client = clients[usize::from(caller) % 2].clone();
            s.spawn(move || {
                for round in 0..20u8 {
                    assert_eq!(client.call(b"plain").expect("call").to_vec(), b"plain");
                    let call = client
                        .begin_with(&[caller, round], streams())
                        .expect("begin");
                    for i in 0..20 {
                        call.send(&[i, caller]).expect("send");
                        let item = call.recv().expect("recv").expect("an item");
                        assert_eq!(item.to_vec(), [i * 2, caller * 2]);
                    }
                    call.finish();
                    assert_eq!(call.wait().expect("answer").to_vec(), [20]);
                }
            });
        }
    });
    for _ in &workers {
        clients[0].call(b"stop").expect("stop");
    }
    workers.into_iter().for_each(|w| w.join().expect("worker"));
}

#[test]
fn tasks_send_and_take_items() {
    let (_dog, (a, b)) = watched();
    let service = a.serve("x").expect("serve");
    let worker = thread::spawn(move || {
        block_on(async {
            let request = service.recv_async().await.expect("recv");
            while let Some(_item) = request.recv_async().await.expect("item") {
                request.send_async(b"one").await.expect("send");
                request.send_async(b"two").await.expect("send");
            }
            request.reply(b"").expect("reply");
        });
    });
    let client = block_on(b.client_async("x", ServiceOptions::new())).expect("client");
    block_on(async {
        let call = client.begin_async(b"", streams()).await.expect("begin");
        for _ in 0..50 {
            call.send_async(client.alloc(100).expect("alloc").freeze())
                .await
                .expect("send");
            for text in [b"one", b"two"] {
                let item = call.recv_async().await.expect("recv").expect("an item");
                assert_eq!(item.to_vec(), text);
            }
        }
        call.finish();
        assert!(call.recv_async().await.expect("recv").is_none());
        call.wait_async().await.expect("answer");
    });
    worker.join().expect("worker");
}

/// A client that sends more than it may, or what no client may say, loses its channels; the worker is told.
#[test]
fn a_client_that_breaks_the_rules_is_given_up() {
    let _dog = Watchdog::new();
    let (told, tell) = std::sync::mpsc::channel();
    let (_a, b, client, worker) = with_worker(move |request| {
        told.send(()).expect("told");
        while request.send(b"item").is_ok() {}
        // What came before is still there.
        let error = loop {
            if let Err(error) = request.recv() {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::PeerGone);
    });
    let (not_request, stream) = (1u64 << 63, 1u64 << 23);
    let item = not_request | 1 << 16;
    for lie in [item, not_request | 77 << 16] {
        let (mut requests, _replies) = kit::by_hand(&b, &ChannelOptions::new());
        requests.send((b"", stream)).expect("request");
        tell.recv().expect("told");
        let error = loop {
            if let Err(failed) = requests.send((b"", lie)) {
                break failed.error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
    }
    client.call(b"stop").expect("stop");
    worker.join().expect("worker");
}

/// An item that was not sent costs no credit: what may be sent after it is as before.
#[test]
fn an_item_that_is_refused_keeps_its_credit() {
    let _dog = Watchdog::new();
    let (_a, b, client, worker) = with_worker(|request| {
        // A buffer of the client's own channel goes over no other.
        let item = request.recv().expect("recv").expect("an item");
        let item = item.into_buffer().expect("a buffer");
        for _ in 0..20 {
            let failed = request.send_timeout(item.clone(), Duration::from_millis(1));
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::Refused);
        }
        for _ in 0..8 {
            request.send(b"item").expect("send");
        }
        request.reply(b"sent").expect("reply");
    });
    let other = b.client("x").expect("client");
    let call = client
        .begin_with(b"", streams().timeout(Duration::from_secs(3600)))
        .expect("begin");
    let wrong = other.alloc(100).expect("alloc").freeze();
    for _ in 0..20 {
        let failed = call.send(wrong.clone()).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Refused, "{}", failed.error);
    }
    call.send(client.alloc(100).expect("alloc").freeze())
        .expect("send");
    for _ in 0..7 {
        call.send(b"item").expect("send");
    }
    for _ in 0..8 {
        assert!(call.recv().expect("recv").is_some());
    }
    assert_eq!(call.wait().expect("answer").to_vec(), b"sent");
    client.call(b"stop").expect("stop");
    worker.join().expect("worker");
}

/// A service by hand, for one client.
fn by_hand(a: &Domain, b: &Domain) -> (Receiver, Sender, Client) {
    let requests: Listener<Receiver> = a.listen("x").expect("listen");
    let replies: Listener<Sender> = a.listen("x/replies").expect("listen");
    thread::scope(|s| {
        let client = s.spawn(|| b.client("x").expect("client"));
        let mut requests = requests.accept().expect("accept");
        let mut replies = replies.accept().expect("accept");
        requests.recv().expect("number");
        replies.recv_back().expect("number");
        replies.send((b"", 0)).expect("welcome");
        (requests, replies, client.join().expect("client"))
    })
}

/// A service that sends more items than the client has room for breaks the rules: all calls of the client end so.
#[test]
fn a_service_that_sends_too_many_items_is_given_up() {
    let (_dog, (a, b)) = watched();
    let (mut requests, mut replies, client) = by_hand(&a, &b);
    let call = client.begin_with(b"", streams()).expect("begin");
    let plain = client.begin(b"").expect("begin");
    let number = requests.recv().expect("request").word & 0xffff;
    let item = number | 4 << 16;
    for _ in 0..9 {
        replies.send((b"", item)).expect("item");
    }
    // Items for a call without streams, or for none, are let go.
    let error = plain.wait().unwrap_err();
    let CallError::Broken(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.kind(), ErrorKind::PeerViolation, "{error}");
    for _ in 0..8 {
        assert!(call.recv().expect("recv").is_some());
    }
    let error = call.recv().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerViolation, "{error}");
}

/// A call that is over leaves nothing to a later one of its number: neither items, nor their end, nor a cancellation.
#[test]
fn a_number_that_comes_again_begins_anew() {
    let _dog = Watchdog::new();
    let (told, tell) = std::sync::mpsc::channel();
    let (_a, b, client, worker) = with_worker(move |request| {
        let mut items = 0;
        while let Some(item) = request.recv().expect("recv") {
            items += item.len();
        }
        told.send(items).expect("told");
        match items {
            1 => drop(request),
            _ => request.reply(b"").expect("reply"),
        }
    });
    let (mut requests, mut replies) = kit::by_hand(&b, &ChannelOptions::new());
    let (not_request, stream, call) = (1u64 << 63, 1u64 << 23, 5);
    for items in [2, 1, 3, 1, 2] {
        requests.send((b"", stream | call)).expect("request");
        for _ in 0..items {
            let item = not_request | 1 << 16 | call;
            requests.send((b"x", item)).expect("item");
        }
        let end = not_request | 2 << 16 | call;
        requests.send((b"", end)).expect("end");
        assert_eq!(tell.recv().expect("told"), items);
        let answer = replies.recv().expect("answer").word;
        let how = if items == 1 { 2 } else { 0 };
        assert_eq!(answer, call | how << 16);
    }
    client.call(b"stop").expect("stop");
    worker.join().expect("worker");
}
