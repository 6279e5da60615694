//! The manager is killed, and then a sender goes, in order, before its messages have been received. Its reader does not
//! even have all of the memory that they are in: the sender stays until a manager has it, and its messages arrive.

use std::path::{Path, PathBuf};

use tranship_core::{ChannelOptions, Domain, Error, ErrorKind, PoolOptions, Receiver, Sender};
use tranship_testkit::{Control, Peer, Watchdog, child, payload, start_manager};

const CHUNK: usize = 64 << 10;
/// Readers are awaited however slow this machine is.
const PATIENT: &str = "grace = \"10000h\"";
/// Each in a chunk of its own: more than a manager can have on their way to a reader that does not look.
const MESSAGES: u64 = 400;

fn options() -> ChannelOptions {
    ChannelOptions::new().lines(1024)
}

child!(
    /// Sends, and goes when it is told to.
    fn source(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder().name("source").socket(path).connect();
        let domain = domain.unwrap();
        let pool = PoolOptions::new(MESSAGES * CHUNK as u64).chunk_bytes(CHUNK as u64);
        let pool = domain.create_pool(pool).unwrap();
        let listener = domain.listen_with::<Sender>("x", options()).unwrap();
        ctl.send(&()).unwrap();
        let mut sender = listener.accept().unwrap();
        for id in 0..MESSAGES {
            let mut buf = pool.alloc(CHUNK).unwrap();
            payload::fill(&mut buf, id, payload::mix(id));
            sender.send((buf.freeze(), id)).unwrap();
        }
        ctl.send(&()).unwrap();
        match ctl.recv::<String>().unwrap().unwrap().as_str() {
            "exit" => std::process::exit(0),
            "close, then exit" => {
                drop(sender);
                std::process::exit(0);
            }
            "close, then go" => {
                drop(sender);
                ctl.send(&()).unwrap();
                let _: Option<()> = ctl.recv().unwrap();
            }
            other => panic!("{other}"),
        }
    }
);

/// A sink that has consented to the source's pool, and looks no more; and the source, which has sent everything.
fn sent(path: &Path) -> (Peer, Domain, Receiver) {
    let source = source().start().unwrap();
    source.ask::<()>(path);
    let sink = Domain::builder().name("sink").socket(path).connect();
    let sink = sink.unwrap();
    let receiver = sink.open_with::<Receiver>("x", options()).unwrap();
    std::thread::scope(|s| {
        let sent = s.spawn(|| source.expect::<()>());
        while !receiver.is_ready() {
            let _ = sink.turn();
        }
        sent.join().unwrap();
    });
    (source, sink, receiver)
}

/// Takes all messages; returns their number and the error at the end.
fn take_all(receiver: &mut Receiver) -> (u64, Error) {
    let mut id = 0;
    loop {
        match receiver.recv() {
            Ok(message) => {
                assert_eq!(message.word, id);
                payload::verify_seed(&message.to_vec(), id, payload::mix(id)).unwrap();
                id += 1;
            }
            // The next manager shows it.
            Err(error) if error == ErrorKind::ChunkPending => {}
            Err(error) => return (id, error),
        }
    }
}

#[test]
fn a_sender_stays_until_a_manager_has_what_its_reader_lacks() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("manager.sock");
    let daemon = start_manager(&path, PATIENT);
    let (source, _sink, mut receiver) = sent(&path);
    daemon.kill();
    source.send("close, then exit").unwrap();
    let _next = start_manager(&path, PATIENT);
    let (taken, end) = take_all(&mut receiver);
    assert!(end.kind() == ErrorKind::PeerGone, "{taken}: {end}");
    assert_eq!(taken, MESSAGES);
}

#[test]
fn a_domain_stays_until_a_manager_has_what_it_sent_before() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("manager.sock");
    let daemon = start_manager(&path, PATIENT);
    let (source, _sink, mut receiver) = sent(&path);
    source.ask::<()>("close, then go");
    daemon.kill();
    source.send(&()).unwrap();
    let _next = start_manager(&path, PATIENT);
    let _ = source.wait();
    let (taken, end) = take_all(&mut receiver);
    assert!(end.kind() == ErrorKind::PeerGone, "{taken}: {end}");
    assert_eq!(taken, MESSAGES);
}

#[test]
fn what_went_with_a_sender_that_did_not_stay_is_lost_and_no_end() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("manager.sock");
    let daemon = start_manager(&path, PATIENT);
    let (source, _sink, mut receiver) = sent(&path);
    daemon.kill();
    source.send("exit").unwrap();
    let _ = source.wait();
    let _next = start_manager(&path, PATIENT);
    let (taken, end) = take_all(&mut receiver);
    assert!(end.kind() == ErrorKind::Lost, "{taken}: {end}");
    assert!(taken < MESSAGES, "{taken}");
}
