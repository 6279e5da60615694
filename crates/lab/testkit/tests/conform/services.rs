//! Services: calls and their answers, deadlines, streams, and the ends.

use crate::{World, cases};
use std::thread;
use std::time::Duration;
use tranship_core::ErrorKind;
use tranship_service::{
    CallError, CallOptions, Client, Request, Service, ServiceOptions, Services,
};
use tranship_testkit::until;

cases![
    calls_are_answered,
    large_arguments_and_results_go_by_reference,
    answers_find_their_calls_in_any_order,
    a_service_fails_a_call_with_a_message,
    a_request_that_is_dropped_breaks_its_call,
    a_deadline_ends_a_call,
    a_call_that_is_dropped_is_cancelled,
    items_go_both_ways,
    an_ended_call_ends_its_streams,
    several_workers_answer,
    a_service_that_ends_breaks_its_calls,
    a_client_that_ends_cancels_its_calls,
    other_types_are_refused,
    a_name_has_one_service,
];

const MIB: usize = 1 << 20;

fn serve(world: &World) -> Service {
    world.here.serve(&world.address("calls")).expect("serve")
}

fn client(world: &World, service: &Service) -> Client {
    client_with(world, service, ServiceOptions::new())
}

/// A client. While it connects a worker has to be there.
fn client_with(world: &World, service: &Service, options: ServiceOptions) -> Client {
    thread::scope(|s| {
        let client = s.spawn(|| world.there.client_with(&world.address("calls"), options));
        while !client.is_finished() {
            assert!(service.try_recv().expect("no error").is_none());
            thread::yield_now();
        }
        client.join().expect("no panic").expect("a client")
    })
}

fn both(world: &World) -> (Service, Client) {
    let service = serve(world);
    let client = client(world, &service);
    (service, client)
}

/// The error of a call that got no answer.
fn broken<T>(error: CallError<T>) -> ErrorKind {
    match error {
        CallError::Untaken(error) | CallError::Broken(error) => error.kind(),
        CallError::Failed(message) => panic!("it failed: {message:?}"),
        CallError::Unsent(error) => panic!("it was not sent: {}", error.error),
    }
}

fn calls_are_answered(world: &World) {
    let (service, client) = both(world);
    thread::scope(|s| {
        s.spawn(|| {
            for n in 0..100u8 {
                let request = service.recv().expect("a request");
                assert_eq!(request.to_vec(), [n]);
                request.reply(&[n, n]).expect("reply");
            }
        });
        for n in 0..100u8 {
            assert_eq!(client.call(&[n]).expect("an answer").to_vec(), [n, n]);
        }
    });
    assert_eq!((client.in_flight(), client.workers()), (0, 1));
}

fn large_arguments_and_results_go_by_reference(world: &World) {
    let (service, client) = both(world);
    for n in 0..20u8 {
        let mut argument = client.alloc(MIB).expect("a buffer");
        argument.fill(n);
        let call = client.begin(argument).expect("begin");
        let request = service.recv().expect("a request");
        assert!(request.to_vec().iter().all(|byte| *byte == n));
        let mut result = request.alloc(MIB).expect("a buffer");
        result.fill(n + 100);
        request.reply(result).expect("reply");
        let result = call.wait().expect("an answer").to_vec();
        assert!(result.len() == MIB && result.iter().all(|byte| *byte == n + 100));
    }
}

fn answers_find_their_calls_in_any_order(world: &World) {
    let (service, client) = both(world);
    let calls: Vec<_> = (0..8u8)
        .map(|n| client.begin(&[n]).expect("begin"))
        .collect();
    let requests: Vec<Request> = (0..8).map(|_| service.recv().expect("a request")).collect();
    for request in requests.into_iter().rev() {
        let bytes = request.to_vec();
        request.reply(&bytes[..]).expect("reply");
    }
    for (n, call) in (0..).zip(calls) {
        assert_eq!(call.wait().expect("an answer").to_vec(), [n]);
    }
}

fn a_service_fails_a_call_with_a_message(world: &World) {
    let (service, client) = both(world);
    let call = client.begin(b"divide by 0").expect("begin");
    let request = service.recv().expect("a request");
    request.fail(b"no").expect("fail");
    match call.wait().expect_err("it failed") {
        CallError::Failed(message) => {
            assert_eq!(message.to_vec(), b"no");
        }
        other => panic!("{other:?}"),
    }
}

fn a_request_that_is_dropped_breaks_its_call(world: &World) {
    let (service, client) = both(world);
    let call = client.begin(b"x").expect("begin");
    drop(service.recv().expect("a request"));
    assert_eq!(
        broken(call.wait().expect_err("no answer")),
        ErrorKind::PeerDied
    );
    let call = client.begin(b"y").expect("the client goes on");
    service
        .recv()
        .expect("a request")
        .reply(b"z")
        .expect("reply");
    assert_eq!(call.wait().expect("an answer").to_vec(), b"z");
}

fn a_deadline_ends_a_call(world: &World) {
    let (service, client) = both(world);
    thread::scope(|s| {
        let call = s.spawn(|| client.call_timeout(b"x", Duration::from_millis(20)));
        let request = loop {
            if let Some(request) = service.try_recv().expect("no error") {
                break Some(request);
            }
            // It came too late to be begun.
            if call.is_finished() {
                break None;
            }
        };
        if let Some(request) = &request {
            assert!(request.deadline().is_some());
            until(|| request.is_cancelled());
        }
        let error = call.join().expect("no panic").expect_err("it is late");
        assert_eq!(broken(error), ErrorKind::TimedOut);
    });
}

fn a_call_that_is_dropped_is_cancelled(world: &World) {
    let (service, client) = both(world);
    let calls = [b"1", b"2"].map(|n| client.begin(n).expect("begin"));
    let request = service.recv().expect("a request");
    assert!(!request.is_cancelled());
    drop(calls);
    until(|| request.is_cancelled());
    let call = client.begin(b"3").expect("begin");
    request.reply(b"too late").expect("nobody minds");
    let third = service.recv().expect("the second was never begun");
    assert_eq!(third.to_vec(), b"3");
    third.reply(b"three").expect("reply");
    assert_eq!(call.wait().expect("an answer").to_vec(), b"three");
}

fn items_go_both_ways(world: &World) {
    let (service, client) = both(world);
    thread::scope(|s| {
        s.spawn(|| {
            let request = service.recv().expect("a request");
            assert_eq!(request.method(), 5);
            let mut items = 0;
            while let Some(item) = request.recv().expect("no error") {
                let mut twice = request.alloc(2 * item.len()).expect("a buffer");
                twice.copy_from_slice(&item.to_vec().repeat(2));
                request.send(twice).expect("send");
                items += 1;
            }
            request.reply(&[items]).expect("reply");
        });
        let options = CallOptions::new().streams().method(5);
        let call = client.begin_with(b"", options).expect("begin");
        thread::scope(|s| {
            s.spawn(|| {
                for n in 0..50u8 {
                    let mut item = client.alloc(1 + usize::from(n)).expect("a buffer");
                    item.fill(n);
                    call.send(item).expect("send");
                }
                call.finish();
            });
            for n in 0..50u8 {
                let item = call.recv().expect("no error").expect("an item");
                assert_eq!(item.to_vec(), vec![n; 2 * (1 + usize::from(n))]);
            }
        });
        assert!(call.recv().expect("no error").is_none());
        let over = call.send(b"more").expect_err("it has finished");
        assert_eq!(over.kind(), ErrorKind::ChannelState, "{over}");
        assert_eq!(call.wait().expect("an answer").to_vec(), [50]);
    });
}

fn an_ended_call_ends_its_streams(world: &World) {
    let (service, client) = both(world);
    let options = || CallOptions::new().streams();
    // The caller goes.
    let call = client.begin_with(b"", options()).expect("begin");
    let request = service.recv().expect("a request");
    drop(call);
    let error = request.recv().expect_err("nobody sends");
    assert_eq!(error, ErrorKind::PeerGone);
    // What there was room for went.
    let error = std::iter::repeat_with(|| request.send(b"x")).find_map(Result::err);
    assert_eq!(error.expect("no room").kind(), ErrorKind::PeerGone);
    drop(request);
    // A call without streams has none.
    let call = client.begin(b"").expect("begin");
    let sent = call.send(b"x").expect_err("no stream");
    assert_eq!(sent.kind(), ErrorKind::BadArgument);
    assert_eq!(call.recv().expect_err("no stream"), ErrorKind::BadArgument);
    drop((service.recv().expect("a request"), call));
    // The worker goes.
    let call = client.begin_with(b"", options()).expect("begin");
    drop(service.recv().expect("a request"));
    assert!(call.recv().expect("no error").is_none());
    assert_eq!(
        broken(call.wait().expect_err("no answer")),
        ErrorKind::PeerDied
    );
}

fn several_workers_answer(world: &World) {
    let service = serve(world);
    thread::scope(|s| {
        for _ in 0..3 {
            let service = service.clone();
            s.spawn(move || {
                loop {
                    let request = service.recv().expect("a request");
                    let bytes = request.to_vec();
                    request.reply(&bytes[..]).expect("reply");
                    if bytes.is_empty() {
                        return;
                    }
                }
            });
        }
        let client = world
            .there
            .client(&world.address("calls"))
            .expect("a client");
        thread::scope(|s| {
            for caller in 0..3u8 {
                let client = client.clone();
                s.spawn(move || {
                    for n in 0..100u8 {
                        let answer = client.call(&[caller, n]).expect("an answer");
                        assert_eq!(answer.to_vec(), [caller, n]);
                    }
                });
            }
        });
        (0..3).for_each(|_| drop(client.call(b"").expect("an answer")));
    });
}

fn a_service_that_ends_breaks_its_calls(world: &World) {
    let (service, client) = both(world);
    let begun = client.begin(b"1").expect("begin");
    let waiting = client.begin(b"2").expect("begin");
    let request = service.recv().expect("a request");
    drop((request, service));
    let errors = [begun, waiting].map(|call| broken(call.wait().expect_err("no answer")));
    assert_eq!(errors, [ErrorKind::PeerDied, ErrorKind::PeerGone]);
    // By the manager, the end may be seen only after the request was sent.
    let error = client.call(b"3").expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::PeerGone);
    // The name is free again.
    let (service, client) = both(world);
    let call = client.begin(b"4").expect("begin");
    service
        .recv()
        .expect("a request")
        .reply(b"5")
        .expect("reply");
    assert_eq!(call.wait().expect("an answer").to_vec(), b"5");
}

fn a_client_that_ends_cancels_its_calls(world: &World) {
    let (service, client) = both(world);
    let call = client.begin(b"x").expect("begin");
    let request = service.recv().expect("a request");
    drop((call, client));
    until(|| request.is_cancelled());
    let client = self::client(world, &service);
    let call = client.begin(b"y").expect("begin");
    service
        .recv()
        .expect("a request")
        .reply(b"z")
        .expect("reply");
    assert_eq!(call.wait().expect("an answer").to_vec(), b"z");
}

fn other_types_are_refused(world: &World) {
    let address = world.address("calls");
    let typed = |width: &str| ServiceOptions::new().types(&format!("ask\n{width} n"), "answer");
    let service = world
        .here
        .serve_with(&address, typed("u32"))
        .expect("serve");
    let error = thread::scope(|s| {
        let client = s.spawn(|| world.there.client_with(&address, typed("u64")));
        while !client.is_finished() {
            assert!(service.try_recv().expect("no error").is_none());
        }
        client.join().expect("no panic").expect_err("another type")
    });
    assert_eq!(error, ErrorKind::ChannelBind);
    let text = error.to_string();
    assert!(text.contains("u32 n") && text.contains("u64 n"), "{text}");
    client_with(world, &service, typed("u32"));
}

fn a_name_has_one_service(world: &World) {
    let _service = serve(world);
    for again in [&world.here, &world.there] {
        let error = again
            .serve(&world.address("calls"))
            .expect_err("it is taken");
        assert_eq!(error, ErrorKind::NameTaken, "{error}");
    }
}
