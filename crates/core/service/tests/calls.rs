//! Calls between two domains of one manager.

#[path = "all/kit.rs"]
mod kit;

use kit::{beside, domains, serves, watched};
use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use tranship_core::admin::StatRecord;
use tranship_core::error::TypeMismatch;
use tranship_core::{
    ChannelOptions, Domain, ErrorKind, Listener, PollItem, PoolOptions, Receiver, Sender, Trust,
    poll,
};
use tranship_service::{CallError, Client, Request, Service, ServiceOptions, Services};
use tranship_testkit::{Watchdog, block_on, unpark, until};

const MIB: usize = 1 << 20;

/// A service and one client of it. While the client connects a worker has to be there.
fn connect(domains: &(Domain, Domain), address: &str) -> (Service, Client) {
    connect_with(domains, address, ServiceOptions::new())
}

fn connect_with(
    (a, b): &(Domain, Domain),
    address: &str,
    options: ServiceOptions,
) -> (Service, Client) {
    let service = a.serve_with(address, options.clone()).expect("serve");
    let open = || b.client_with(address, options).expect("client");
    let client = beside(&service, open);
    (service, client)
}

/// Answers each request with its bytes, until it is `stop`.
fn echo(service: &Service) {
    serves(service, |request| {
        let bytes = request.to_vec();
        let mut reply = request.alloc(bytes.len()).expect("alloc");
        reply.write(0, &bytes).expect("write");
        request.reply(reply).expect("reply");
    });
}

fn broken(failed: CallError<impl Sized>) -> tranship_core::Error {
    match failed {
        CallError::Untaken(error) | CallError::Broken(error) => error,
        CallError::Failed(message) => panic!("answered: {message:?}"),
        CallError::Unsent(failed) => panic!("unsent: {}", failed.error),
    }
}

#[test]
fn errors_are_values_and_a_request_let_go_is_one() {
    let (_dog, domains) = watched();
    let (service, client) = connect(&domains, "resize");
    let worker = thread::spawn(move || {
        service
            .recv()
            .expect("recv")
            .fail(b"no such image")
            .expect("fail");
        drop(service.recv().expect("recv"));
        let panicked = thread::spawn({
            let service = service.clone();
            move || {
                let _request = service.recv().expect("recv");
                std::panic::resume_unwind(Box::new("a worker that panics"));
            }
        });
        assert!(panicked.join().is_err());
        service.recv().expect("recv").reply(b"fine").expect("reply");
    });
    let failed = client.call(b"x").unwrap_err();
    assert_eq!(failed.to_string(), "the service failed: no such image");
    assert!(matches!(&failed, CallError::Failed(m) if m.to_vec() == b"no such image"));
    for _ in 0..2 {
        let error = broken(client.call(b"x").unwrap_err());
        assert_eq!(error.kind(), ErrorKind::PeerDied);
        let text = error.to_string();
        let place = format!(
            "service `resize` (domain {}, process {})",
            domains.0.id(),
            std::process::id()
        );
        assert!(
            text.contains(&place) && text.contains("without an answer"),
            "{text}"
        );
    }
    assert_eq!(client.call(b"x").expect("call").to_vec(), b"fine");
    worker.join().expect("worker");
    // The service has ended, in order, and nobody has taken the request.
    let error = match client.call(b"x").unwrap_err() {
        CallError::Unsent(failed) => failed.error,
        failed => panic!("it was sent: {failed}"),
    };
    assert_eq!(error.kind(), ErrorKind::PeerGone);
    assert!(error.to_string().contains("service `resize`"), "{error}");
}

#[test]
fn a_service_that_ends_in_order_did_nothing_for_calls_that_no_worker_took() {
    let _dog = Watchdog::new();
    for address in ["work", "local:work"] {
        let domains = domains();
        let (service, client) = connect(&domains, address);
        let begin = |what| client.begin(what).expect("begin");
        let (taken, read) = (begin(b"a"), begin(b"b"));
        let request = service.recv().expect("recv");
        let unread = begin(b"c");
        drop(service);
        request.reply(b"done").expect("reply");
        assert_eq!(taken.wait().expect("answered").to_vec(), b"done");
        for call in [read, unread] {
            match call.wait().unwrap_err() {
                CallError::Untaken(error) => assert_eq!(error.kind(), ErrorKind::PeerGone),
                failed => panic!("a worker took it: {failed:?}"),
            }
        }
    }
}

#[test]
fn deadlines_travel_along_and_late_calls_are_not_begun() {
    let (_dog, domains) = watched();
    let (service, client) = connect(&domains, "x");
    // No worker takes it.
    let error = broken(
        client
            .call_timeout(b"late", Duration::from_millis(20))
            .unwrap_err(),
    );
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("service `x`"), "{error}");
    let hour = Duration::from_secs(3600);
    let caller = thread::spawn({
        let client = client.clone();
        move || client.call_timeout(b"in time", hour)
    });
    let request = service.recv().expect("recv");
    assert_eq!(request.to_vec(), b"in time"); // and not the late one
    let left = request.deadline().expect("a deadline") - Instant::now();
    assert!(left < hour && left > hour / 2, "{left:?}");
    assert!(!request.is_cancelled());
    request.reply(b"").expect("reply");
    caller.join().expect("caller").expect("call");
    // A deadline that passes while a worker has the request. A call whose time is over before is not begun.
    let (caller, request) = loop {
        let client = client.clone();
        let call = move || client.call_timeout(b"slow", Duration::from_millis(200));
        let caller = thread::spawn(call);
        let mut request = None;
        until(|| {
            request = service.try_recv().expect("recv");
            request.is_some() || caller.is_finished()
        });
        if let Some(request) = request {
            break (caller, request);
        }
    };
    until(|| request.is_cancelled());
    assert_eq!(
        broken(caller.join().expect("caller").unwrap_err()).kind(),
        ErrorKind::TimedOut
    );
    drop(request);
    let call = client.begin(b"next").expect("begin");
    service.recv().expect("recv").reply(b"it").expect("reply");
    assert_eq!(call.wait().expect("answer").to_vec(), b"it");
    assert_eq!(client.in_flight(), 0);
}

#[test]
fn answers_find_their_calls_in_any_order() {
    let (_dog, domains) = watched();
    let options = ServiceOptions::new().lines(16);
    let (service, client) = connect_with(&domains, "x", options);
    let calls: Vec<_> = (0..8u8)
        .map(|i| client.begin(&[i]).expect("begin"))
        .collect();
    // No more than half the lines are in flight.
    let full = client
        .call_timeout(b"ninth", Duration::from_millis(20))
        .unwrap_err();
    assert!(
        matches!(&full, CallError::Unsent(e) if e.kind() == ErrorKind::TimedOut),
        "{full}"
    );
    let mut requests: Vec<Request> = (0..8).map(|_| service.recv().expect("recv")).collect();
    requests.reverse();
    for request in requests {
        let bytes = request.to_vec();
        request.reply(&[bytes[0], bytes[0]]).expect("reply");
    }
    for (i, call) in (0..8u8).zip(calls) {
        assert_eq!(call.wait().expect("answer").to_vec(), [i, i]);
    }
    let call = client.begin(b"x").expect("begin");
    let soon = || Instant::now() + Duration::from_millis(5);
    let call = call.wait_until(soon()).expect_err("no answer yet");
    service.recv().expect("recv").reply(b"y").expect("reply");
    let later = Instant::now() + Duration::from_secs(600);
    let answer = call.wait_until(later).expect("there").expect("answer");
    assert_eq!(answer.to_vec(), b"y");
}

#[test]
fn tasks_await_calls_and_requests() {
    let (_dog, domains) = watched();
    let service = domains.0.serve("x").expect("serve");
    let begun = Arc::new(AtomicBool::new(false));
    let has_begun = Arc::clone(&begun);
    let worker = thread::spawn(move || {
        block_on(async {
            for _ in 0..300 {
                let request = service.recv_async().await.expect("recv");
                let mut reply = request.alloc(4096).expect("alloc");
                reply[..2].copy_from_slice(&request.to_vec());
                request.reply(reply).expect("reply");
            }
        });
        // The last one is not answered before its client hung up.
        let request = block_on(service.recv_async()).expect("recv");
        begun.store(true, Ordering::Relaxed);
        until(|| request.is_cancelled());
    });
    let client = block_on(domains.1.client_async("x", ServiceOptions::new())).expect("client");
    let callers: Vec<_> = (0..3u8)
        .map(|caller| {
            let client = client.clone();
            thread::spawn(move || {
                for i in 0..50u8 {
                    let (a, b) = ([caller, i], [caller + 10, i]);
                    let (mut one, mut two) =
                        (pin!(client.call_async(&a)), pin!(client.call_async(&b)));
                    let (mut first, mut second) = (None, None);
                    block_on(std::future::poll_fn(|context| {
                        if first.is_none()
                            && let Poll::Ready(answer) = one.as_mut().poll(context)
                        {
                            first = Some(answer.expect("call").to_vec());
                        }
                        if second.is_none()
                            && let Poll::Ready(answer) = two.as_mut().poll(context)
                        {
                            second = Some(answer.expect("call").to_vec());
                        }
                        match first.is_some() && second.is_some() {
                            true => Poll::Ready(()),
                            false => Poll::Pending,
                        }
                    }));
                    assert_eq!(
                        (&first.unwrap()[..2], &second.unwrap()[..2]),
                        (&a[..], &b[..])
                    );
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|c| c.join().expect("caller"));
    {
        let mut call = pin!(client.call_async(b"hung up"));
        let waker = unpark();
        let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        until(|| has_begun.load(Ordering::Relaxed));
    }
    worker.join().expect("worker");
}

#[test]
fn a_caller_that_waits_for_the_sender_does_not_wait_for_a_reply() {
    let (_dog, domains) = watched();
    let (service, client) = connect(&domains, "x");
    // Calls that nobody answers yet, and allocations, take the sender in turns.
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for i in 0..200 {
                    drop(client.alloc(64).expect("alloc"));
                    if i % 10 == 0 {
                        drop(client.begin(b"x").expect("begin"));
                    }
                }
            });
        }
    });
    drop(service);
}

#[test]
fn a_user_has_so_many_clients() {
    let (_dog, domains) = watched();
    let options = ServiceOptions::new().clients_per_user(2);
    let service = domains.0.serve_with("x", options).expect("serve");
    let worker = thread::spawn(move || echo(&service));
    let first = domains.1.client("x").expect("client");
    let second = domains.1.client("x").expect("client");
    let error = domains.1.client("x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("at most 2 clients"), "{error}");
    drop(first);
    let mut third = None;
    until(|| {
        second.call(b"anything").expect("call");
        third = domains.1.client("x").ok();
        third.is_some()
    });
    third.expect("a client").call(b"stop").expect("stop");
    worker.join().expect("worker");
    let taken = domains
        .0
        .serve("x")
        .map(|_| domains.1.serve("x").unwrap_err().kind());
    assert_eq!(taken.expect("free again"), ErrorKind::NameTaken);
}

#[test]
fn a_client_waits_for_its_service() {
    let (_dog, domains) = watched();
    let soon = ServiceOptions::new().timeout(Duration::from_millis(20));
    let error = domains.1.client_with("x", soon.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let waiting = thread::scope(|s| {
        let client = s.spawn(|| domains.1.client("x").expect("client"));
        let service = domains.0.serve("x").expect("serve");
        let worker = s.spawn(move || echo(&service));
        let client = client.join().expect("client");
        assert_eq!(client.call(b"here").expect("call").to_vec(), b"here");
        client.call(b"stop").expect("stop");
        worker.join().expect("worker");
        client
    });
    assert!(waiting.call(b"").is_err());
}

#[test]
fn types_are_compared_and_a_failed_call_gives_its_payload_back() {
    let (_dog, domains) = watched();
    let typed = |reply: &str| ServiceOptions::new().types("Image", reply);
    let (service, client) = connect_with(&domains, "x", typed("Thumbnail"));
    for options in [typed("Preview"), ServiceOptions::new()] {
        let error = beside(&service, || {
            domains.1.client_with("x", options).unwrap_err()
        });
        assert!(error.find::<TypeMismatch>().is_some(), "{error}");
    }
    // The service takes no pools of that level.
    let full = domains
        .1
        .create_pool(PoolOptions::new(MIB as u64).trust(Trust::None));
    let image = full.expect("pool").alloc(100).expect("alloc").freeze();
    let refused = beside(&service, || client.call(image).unwrap_err());
    match refused {
        CallError::Unsent(failed) => {
            assert_eq!(
                (failed.kind(), failed.unsent.len()),
                (ErrorKind::ChannelTrust, 100)
            );
        }
        other => panic!("{other}"),
    }
    assert_eq!((client.in_flight(), service.clients()), (0, Some(1)));
}

/// Seen failing: `Request::alloc` waited with the sender of the answers locked, and the hall waited for that lock.
#[test]
fn a_client_that_keeps_its_answers_does_not_stop_others() {
    let (_dog, domains) = watched();
    let options = ServiceOptions::new().pool(PoolOptions::new(MIB as u64));
    let (service, client) = connect_with(&domains, "x", options);
    let (short, over) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let workers = [(); 2].map(|()| {
        let (service, short, over) = (service.clone(), Arc::clone(&short), Arc::clone(&over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let Ok(request) = service.recv_timeout(Duration::from_millis(20)) else {
                    continue;
                };
                match request.to_vec().as_slice() {
                    b"large" => {
                        let answer = request.alloc(MIB * 3 / 4).expect("alloc");
                        request.reply(answer).expect("reply");
                    }
                    b"one more" => {
                        short.store(true, Ordering::Relaxed);
                        let error = request.alloc(MIB * 3 / 4).unwrap_err();
                        short.store(false, Ordering::Relaxed);
                        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
                        request.fail(b"no memory").expect("fail");
                    }
                    _ => request.reply(b"small").expect("reply"),
                }
            }
        })
    });
    let kept = client.call(b"large").expect("call");
    let second = client.begin(b"one more").expect("begin");
    until(|| short.load(Ordering::Relaxed));
    let late = client.call_timeout(b"late", Duration::ZERO).unwrap_err();
    assert_eq!(broken(late).kind(), ErrorKind::TimedOut);
    let patient = Duration::from_secs(300);
    let soon = ServiceOptions::new().timeout(patient);
    let other = domains.1.client_with("x", soon).expect("another client");
    let answer = other.call_timeout(b"x", patient);
    assert_eq!(answer.expect("call").to_vec(), b"small");
    // Many calls find the worker that waits for memory at many places.
    let mut meanwhile = 0;
    until(|| {
        other.call(b"x").expect("call");
        meanwhile += u32::from(short.load(Ordering::Relaxed));
        !short.load(Ordering::Relaxed)
    });
    assert!(
        meanwhile > 0,
        "all calls waited for the worker without memory"
    );
    assert!(matches!(second.wait().unwrap_err(), CallError::Failed(_)));
    // The answer to the late call was sent, and the client is served again.
    assert_eq!(client.call(b"x").expect("call").to_vec(), b"small");
    until(|| client.in_flight() == 0);
    drop(kept);
    let large = client.call(b"large").expect("call");
    assert_eq!(large.len(), MIB * 3 / 4);
    over.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("worker");
    }
}

/// Overwrites the first words of the only half of that many lines which this process may write.
fn spoil(domain: &Domain, name: &str, lines: usize) {
    let size = 4096 + lines * 64;
    let mut found = None;
    until(|| {
        let maps = read_to_string("/proc/self/maps").expect("maps");
        found = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).expect("hex"));
            (rest.starts_with("rw-s") && to - from == size as u64).then_some(from)
        });
        found.is_some()
    });
    // The manager checks the half first, and has a record of the channel then.
    until(|| {
        let books = domain.admin().stat().expect("stat");
        let is_it = |r: &StatRecord| matches!(r, StatRecord::Channel(c) if c.name == name && c.source.is_some() && c.sink.is_some());
        books.iter().any(is_it)
    });
    let memory = File::options().write(true).open("/proc/self/mem");
    let written = memory
        .expect("mem")
        .write_all_at(&[0xff; 8], found.expect("found"));
    written.expect("write");
}

/// Seen failing: the error of that client's half was one of `Listener::accept` and of `Service::recv`.
#[test]
fn a_client_that_spoils_its_half_is_no_error_of_the_service() {
    let (_dog, domains) = watched();
    let open = |name: &'static str, lines: u32| {
        let (b, options) = (domains.1.clone(), ChannelOptions::new().lines(lines));
        let options = options.timeout(Duration::from_secs(5));
        thread::spawn(move || b.open_with::<Sender>(name, options))
    };
    let listener: Listener<Receiver> = domains.0.listen("y").expect("listen");
    let opener = open("y", 2048);
    poll(&mut [PollItem::listener(&listener)], None).expect("poll");
    spoil(&domains.0, "y", 2048);
    let mut accepted = None;
    until(|| {
        accepted = listener.try_accept().expect("accept");
        accepted.is_some() || opener.is_finished()
    });
    drop(opener.join().expect("opener"));

    let service = domains.0.serve("x").expect("serve");
    let opener = open("x", 4096);
    spoil(&domains.0, "x", 4096);
    until(|| {
        assert!(service.try_recv().expect("recv").is_none());
        opener.is_finished()
    });
    drop(opener.join().expect("opener"));
    let worker = thread::spawn(move || echo(&service));
    let client = domains.1.client("x").expect("client");
    client.call(b"stop").expect("call");
    worker.join().expect("worker");
}

/// Seen failing: each answer waited 1 s for room, and the client was kept.
#[test]
fn a_client_that_takes_no_answers_is_given_up() {
    let (_dog, domains) = watched();
    let service = domains.0.serve("x").expect("serve");
    let work = |request: Request| drop(request.reply(b""));
    let worker = thread::spawn(move || serves(&service, work));
    let (mut requests, mut replies) = kit::by_hand(&domains.1, &ChannelOptions::new());
    let mut call = 0;
    let error = loop {
        match requests.send((b"x", call)) {
            Ok(_) => call = (call + 1) % 1000,
            Err(failed) => break failed.error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerGone);
    // The end of the answers is not in order: calls were begun that got none.
    let end = loop {
        if let Err(end) = replies.recv() {
            break end;
        }
    };
    assert_eq!(end.kind(), ErrorKind::PeerDied);
    let client = domains.1.client("x").expect("client");
    client.call(b"stop").expect("call");
    worker.join().expect("worker");
}
