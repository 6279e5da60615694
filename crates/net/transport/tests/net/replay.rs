//! An attacker between the ends records their bytes and sends them again: to the same connection, and to another one.

use crate::certificates::net;
use crate::kit::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tranship_testkit::Watchdog;
use tranship_transport::net::certificate;

type Tape = Arc<Mutex<Vec<u8>>>;

/// Passes connections on, and keeps the bytes of each way.
#[derive(Default)]
struct Recorder {
    /// Bytes of each connection: those of its client and of its server.
    said: Mutex<Vec<[Tape; 2]>>,
    /// The next piece that a client says is said twice.
    twice: AtomicBool,
}

impl Recorder {
    fn start(to: SocketAddr) -> (SocketAddr, Arc<Recorder>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        let recorder = Arc::new(Recorder::default());
        let shared = Arc::clone(&recorder);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("connection");
                let server = TcpStream::connect(to).expect("connect");
                let said: [Tape; 2] = Default::default();
                shared.said.lock().expect("said").push(said.clone());
                let ways = [(&client, &server), (&server, &client)];
                for (n, ((from, to), said)) in ways.into_iter().zip(said).enumerate() {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (mut from, mut to) = (from.expect("clone"), to.expect("clone"));
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || {
                        let mut buf = [0; 1 << 16];
                        while let Ok(len @ 1..) = from.read(&mut buf) {
                            said.lock().expect("said").extend(&buf[..len]);
                            let again = n == 0 && shared.twice.swap(false, Ordering::SeqCst);
                            for _ in 0..=usize::from(again) {
                                if to.write_all(&buf[..len]).is_err() {
                                    break;
                                }
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        (at, recorder)
    }

    fn connections(&self) -> usize {
        self.said.lock().expect("said").len()
    }

    fn first(&self, who: usize) -> Vec<u8> {
        self.said.lock().expect("said")[0][who]
            .lock()
            .expect("said")
            .clone()
    }
}

/// Keys are of one connection, and none is kept for another: no tickets, no early data.
#[test]
fn what_a_connection_said_says_nothing_to_another() {
    let _dog = Watchdog::new();
    let ca = certificate::authority("tests", DAY).expect("authority");
    let [server, client] = ["server", "client"].map(|name| net(issued(&ca, name, &["127.0.0.1"])));
    let at = open(&server);
    let (through, recorder) = Recorder::start(at);
    let listener = listen(&server, &format!("{at}/tape"));
    let there = End::connect(&client, &format!("{through}/tape"));
    let mut ends = [accept(&listener), there];
    for round in 0..3 {
        talk(&mut ends, round, 10_000);
    }
    let tape = recorder.first(0);
    assert!(tape.len() > 10_000, "{} bytes", tape.len());
    // All of it; the first flight alone; and the server's half as if it were a client's.
    for bytes in [
        tape.clone(),
        tape[..tape.len() / 2].to_vec(),
        recorder.first(1),
    ] {
        let (before, _) = server.refused();
        let answer = say(at, &bytes);
        while server.refused().0 == before {
            std::thread::yield_now();
        }
        // The bytes show only that it is TLS: another hello, and keys that the tape does not fit.
        let (_, why) = server.refused();
        assert!(why.is_some(), "{} bytes came back", answer.len());
        assert!(listener.try_accept().is_none(), "a session");
    }
    // The ends have not noticed.
    talk(&mut ends, 3, 10_000);
    assert_eq!(recorder.connections(), 1);
}

/// A record is of one place in its connection. The second time it ends that, and the session goes on over another one
/// with nothing twice.
#[test]
fn a_record_that_comes_twice_is_taken_once() {
    let _dog = Watchdog::new();
    let ca = certificate::authority("tests", DAY).expect("authority");
    let [server, client] = ["server", "client"].map(|name| net(issued(&ca, name, &["127.0.0.1"])));
    let at = open(&server);
    let (through, recorder) = Recorder::start(at);
    let mut ends = pair_of(&server, &client, at, through);
    talk(&mut ends, 0, 1000);
    for round in 1..4 {
        let before = recorder.connections();
        recorder.twice.store(true, Ordering::SeqCst);
        talk(&mut ends, round, 1000);
        // The client's next bytes, a keepalive at the latest, were then sent twice.
        while recorder.connections() == before {
            assert_eq!((ends[0].look(), ends[1].look()), (None, None), "twice");
            ends[1].wait();
        }
    }
    talk(&mut ends, 4, 1000);
}

fn pair_of(
    server: &tranship_transport::net::Net,
    client: &tranship_transport::net::Net,
    at: SocketAddr,
    through: SocketAddr,
) -> [End; 2] {
    let listener = listen(server, &format!("{at}/twice"));
    let there = End::connect(client, &format!("{through}/twice"));
    [accept(&listener), there]
}
