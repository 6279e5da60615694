//! Sockets handed from domain to domain under a name.

use crate::kit::*;
use std::os::fd::AsFd;
use tranship_core::{Domain, Error, Kind, PeerSocket, RefusalCode, Role, SocketListener};
use tranship_sys::socket;

fn code(result: Result<PeerSocket, Error>) -> RefusalCode {
    let error = result.expect_err("a refusal");
    refusal(&error).unwrap_or_else(|| panic!("{error}"))
}

fn next(listener: &SocketListener) -> PeerSocket {
    loop {
        if let Some(met) = listener.accept().expect("accept") {
            return met;
        }
        std::thread::yield_now();
    }
}

fn heard(met: &PeerSocket) -> Vec<u8> {
    let mut bytes = [0; 16];
    let got = socket::recvmsg(&met.socket, &mut bytes, false).expect("recvmsg");
    bytes[..got.bytes].to_vec()
}

#[test]
fn both_ends_learn_who_the_other_is() {
    let _dog = dog();
    let (a, b) = pair();
    assert_eq!(code(b.connect_socket("door")), RefusalCode::NoSuchName);
    let listener = a.listen_socket("door").expect("listen");
    assert!(listener.accept().expect("accept").is_none());
    let near = b.connect_socket("door").expect("connect");
    let far = next(&listener);
    assert_eq!((near.domain, far.domain), (a.id(), b.id()));
    assert_eq!(
        (near.pid, far.pid),
        (std::process::id(), std::process::id())
    );
    assert_eq!(near.uid, far.uid);
    socket::sendmsg(&near.socket, b"hello", &[], true).expect("send");
    socket::sendmsg(&far.socket, b"well met", &[near.process.as_fd()], true).expect("send");
    assert_eq!(
        (heard(&far), heard(&near)),
        (b"hello".to_vec(), b"well met".to_vec())
    );
    let own = a.connect_socket("door").expect("one's own");
    let far = next(&listener);
    assert_eq!((own.domain, far.domain), (a.id(), a.id()));
    drop(listener);
    assert_eq!(code(b.connect_socket("door")), RefusalCode::NoSuchName);
}

#[test]
fn names_of_links_and_of_sockets_are_not_mistaken() {
    let _dog = dog();
    let (a, b) = pair();
    let _links = a.listen("links", Role::Source).expect("listen");
    let _door = a.listen_socket("door").expect("listen");
    assert_eq!(code(b.connect_socket("links")), RefusalCode::Role);
    let error = b.open_receiver("door").expect_err("it is a socket's");
    assert_eq!(error, Kind::SameRole);
    let error = b.listen_socket("links").expect_err("it is taken");
    assert_eq!(error, Kind::NameTaken);
}

/// Who does not take what is handed in is not expelled for it: who hands in is refused.
#[test]
fn too_many_are_refused() {
    let _dog = dog();
    let (a, b) = bare_pair();
    let door = a.listen_socket("door").expect("listen");
    let mut handed = Vec::new();
    let refused = loop {
        match b.connect_socket("door") {
            Ok(near) => handed.push(near),
            Err(error) => break refusal(&error).unwrap_or_else(|| panic!("{error}")),
        }
    };
    assert_eq!(refused, RefusalCode::Limit);
    let mut taken: Vec<_> = std::iter::from_fn(|| door.accept().expect("accept")).collect();
    assert!(!taken.is_empty() && taken.len() <= 128, "{}", taken.len());
    // Who was turned away sees it.
    handed.retain(|near| !socket::is_over(&near.socket));
    assert_eq!(handed.len(), taken.len());
    taken.clear();
    assert!(handed.iter().all(|near| socket::is_over(&near.socket)));
    b.connect_socket("door").expect("there is room again");
    next(&door);
}

#[test]
fn a_name_outlives_its_manager() {
    let _dog = dog();
    let dir = tranship_testkit::folder().expect("dir");
    let path = dir.path().join("m.sock");
    let start = || {
        let config = tranship_manager::Config::default();
        tranship_manager::Embedded::start(config, Some(&path)).expect("manager")
    };
    let first = start();
    let join = |name| {
        let builder = Domain::builder().name(name).socket(&path);
        builder.connect().expect("connect")
    };
    let (a, b) = (join("a"), join("b"));
    let door = a.listen_socket("door").expect("listen");
    let near = b.connect_socket("door").expect("connect");
    let far = next(&door);
    drop(first);
    socket::sendmsg(&near.socket, b"still", &[], true).expect("send");
    assert_eq!(heard(&far), b"still");
    let _second = start();
    let near = loop {
        assert!(door.accept().expect("accept").is_none());
        match b.connect_socket("door") {
            Ok(near) => break near,
            Err(error) if error == Kind::ManagerAway => std::thread::yield_now(),
            Err(error) if error == Kind::NoSuchName => {}
            Err(error) => panic!("{error}"),
        }
    };
    let far = next(&door);
    socket::sendmsg(&near.socket, b"again", &[], true).expect("send");
    assert_eq!(heard(&far), b"again");
}

/// Who has said nothing keeps nobody out, and who is gone is not shown.
#[test]
fn who_speaks_is_taken_first() {
    let _dog = dog();
    let (a, b) = pair();
    let door = a.listen_socket("door").expect("listen");
    let connect = || b.connect_socket("door").expect("connect");
    let (silent, gone, speaks) = (connect(), connect(), connect());
    drop(gone);
    assert!(door.accept_speaking().expect("accept").is_none());
    socket::sendmsg(&speaks.socket, b"first", &[], true).expect("send");
    tranship_sys::epoll::wait_readable(door.as_fd(), None).expect("poll");
    let far = loop {
        match door.accept_speaking().expect("accept") {
            Some(far) => break far,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(heard(&far), b"first");
    assert!(door.accept_speaking().expect("accept").is_none());
    socket::sendmsg(&silent.socket, b"second", &[], true).expect("send");
    let far = door.accept_speaking().expect("accept").expect("at once");
    assert_eq!(heard(&far), b"second");
    // Another test's child may have been forked with a copy of the one that is gone, which goes when the child does.
    if let Some(last) = door.accept().expect("accept") {
        until(|| socket::is_over(&last.socket));
    }
    assert!(door.accept().expect("accept").is_none());
}
