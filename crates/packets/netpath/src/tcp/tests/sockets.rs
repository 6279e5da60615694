//! Sockets of a program in another domain than TCP/IP: chains through both, and their copies.

use super::*;
use crate::socket::{Counts, SEND, SocketError, Sockets};
use std::io::{IoSlice, IoSliceMut};
use tranship_core::{Body, Domain, Message, Pool, PoolOptions, Receiver, Sender};
use tranship_testkit::Watchdog;

/// TCP/IP and a program, each a domain, and the channels between them.
struct Both {
    world: World,
    stack: (Pool, Sender, Receiver),
    program: (Pool, Sender, Receiver),
    sockets: Sockets,
    /// Bytes that came from the program, and do not lie in buffers of TCP/IP's own pool.
    foreign: usize,
}

fn domain(socket: Option<std::path::PathBuf>) -> Domain {
    let builder = Domain::builder().helper_thread(true);
    match socket {
        None => builder.embedded(),
        Some(socket) => builder.socket(socket).connect(),
    }
    .expect("a domain")
}

fn channel(from: &Domain, to: &Domain, name: &str) -> (Sender, Receiver) {
    let listener = from.listen::<Sender>(name).expect("a name");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| to.open::<Receiver>(name).expect("an end"));
        let sender = listener.accept().expect("an end");
        (sender, receiver.join().expect("no panic"))
    })
}

impl Both {
    fn new() -> Both {
        let stack = domain(None);
        let program = domain(stack.socket_path());
        let pool = |domain: &Domain| {
            let options = PoolOptions::new(8 << 20).allow_forward(true);
            domain.create_pool(options).expect("a pool")
        };
        let (up, from_stack) = channel(&stack, &program, "up");
        let (down, from_program) = channel(&program, &stack, "down");
        let own = pool(&program);
        let mbufs = Mbufs::over_pool(&own).expect("mbufs");
        Both {
            world: World::new(7, 0, 16),
            stack: (pool(&stack), up, from_program),
            program: (own, down, from_stack),
            sockets: Sockets::new(mbufs),
            foreign: 0,
        }
    }

    /// Lets all work once.
    fn turn(&mut self) {
        let (pool, up, down) = &mut self.stack;
        while let Ok(Some(message)) = down.try_recv() {
            let note = Note::read(message.word).expect("a note");
            let tcp = &mut self.world.tcp;
            match note.kind {
                Kind::Data => {
                    let bytes = self.world.mbufs.receive(message).expect("an mbuf");
                    assert_eq!(bytes.len(), note.bytes);
                    let own = pool.id();
                    let is_own = |mbuf: &tranship_mbuf::Mbuf<'_>| {
                        mbuf.buffer().is_some_and(|buf| buf.id().pool() == own)
                    };
                    let foreign = bytes.iter().filter(|mbuf| !is_own(mbuf));
                    self.foreign += foreign.map(|mbuf| mbuf.len()).sum::<usize>();
                    tcp.send(note.id, bytes);
                }
                Kind::Taken => tcp.taken(note.id, note.bytes),
                Kind::Ended => tcp.finish(note.id),
                Kind::Closed => tcp.close(note.id, self.world.now),
                Kind::Hello | Kind::Opened => {}
            }
        }
        for event in self.world.turn() {
            let (id, kind, bytes, body) = match event {
                Event::Opened(id, room) => (id, Kind::Opened, room, None),
                Event::Data(id, bytes) => (id, Kind::Data, bytes.len(), Some(bytes)),
                Event::Acknowledged(id, bytes) => (id, Kind::Taken, bytes, None),
                Event::Ended(id) => (id, Kind::Ended, 0, None),
                Event::Closed(id) => (id, Kind::Closed, 0, None),
            };
            let word = Note::new(id, kind, bytes).word();
            match body {
                Some(bytes) => {
                    let all = bytes.to_aggregate(pool).expect("memory").0;
                    up.send((Body::Aggregate(all), word)).expect("room");
                }
                None => {
                    up.send((&b""[..], word)).expect("room");
                }
            }
        }
        let (pool, down, from) = &mut self.program;
        while let Ok(Some(message)) = from.try_recv() {
            self.sockets.take(message);
        }
        self.sockets.send_to(down, pool).expect("TCP/IP is there");
    }

    fn accept(&mut self) -> Id {
        loop {
            if let Some(id) = self.sockets.soaccept() {
                return id;
            }
            self.turn();
        }
    }

    /// Echoes a client's bytes by `echo`, until both have ended.
    fn echo(&mut self, bytes: usize, mut echo: impl FnMut(&mut Sockets, Id) -> bool) -> Counts {
        let handle = self.world.connect(5000);
        let id = self.accept();
        let (mut asked, mut heard, mut is_over) = (0, 0, false);
        while heard < bytes || !is_over {
            self.turn();
            is_over = is_over || echo(&mut self.sockets, id);
            let socket = self.world.client(handle);
            if asked == bytes && socket.may_send() {
                socket.close();
            } else if asked < bytes {
                let some = stream(5000, 0, asked, (bytes - asked).min(5000));
                asked += socket.send_slice(&some).unwrap_or(0);
            }
            let mut got = vec![0; 30_000];
            if let Ok(len @ 1..) = socket.recv_slice(&mut got) {
                assert_eq!(got[..len], stream(5000, 0, heard, len), "at {heard}");
                heard += len;
            }
        }
        while self.world.tcp.connections() > 0 {
            self.world.now += Duration::from_millis(100);
            self.turn();
        }
        let closed = self.sockets.soreceive(id, 1);
        assert!(matches!(closed, Err(SocketError::NotConnected)));
        self.sockets.counts()
    }
}

#[test]
fn chains_go_through_both_domains_without_a_copy() {
    let _dog = Watchdog::new();
    let mut both = Both::new();
    let mut kept: Option<Chain> = None;
    let counts = both.echo(500_000, |sockets, id| {
        loop {
            let bytes = match kept.take() {
                Some(bytes) => bytes,
                // Cut where no frame ends.
                None => match sockets.soreceive(id, 7777) {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => {
                        sockets.soclose(id);
                        return true;
                    }
                    Err(SocketError::WouldBlock) => return false,
                    Err(error) => panic!("{error}"),
                },
            };
            if let Err((error, bytes)) = sockets.sosend(id, bytes) {
                assert!(matches!(error, SocketError::WouldBlock), "{error}");
                kept = Some(bytes);
                return false;
            }
        }
    });
    let all = Counts {
        sent: 500_000,
        received: 500_000,
        ..Counts::default()
    };
    assert_eq!(counts, all);
    // The bytes that went back are those that had come.
    assert_eq!(both.foreign, 0);
}

#[test]
fn slices_are_copied_once_each_way_and_counted() {
    let _dog = Watchdog::new();
    let mut both = Both::new();
    let mut copy = [0; 4096];
    let counts = both.echo(100_000, |sockets, id| {
        while sockets.sbspace(id) >= copy.len() {
            let (one, two) = copy.split_at_mut(1000);
            let mut to = [IoSliceMut::new(one), IoSliceMut::new(two)];
            match sockets.soreceive_slices(id, &mut to) {
                Ok(0) => {
                    sockets.soshutdown(id);
                    sockets.soclose(id);
                    return true;
                }
                Ok(len) => {
                    let sent = sockets.sosend_slices(id, &[IoSlice::new(&copy[..len])]);
                    assert_eq!(sent.expect("there was room"), len);
                }
                Err(SocketError::WouldBlock) => return false,
                Err(error) => panic!("{error}"),
            }
        }
        false
    });
    assert_eq!((counts.copied_in, counts.copied_out), (100_000, 100_000));
    assert_eq!((counts.sent, counts.received), (100_000, 100_000));
}

fn told(word: Note) -> Message {
    let body = tranship_core::Inline::try_from(&[][..]).expect("none");
    Message {
        word: word.word(),
        body: Body::Inline(body),
    }
}

#[test]
fn a_socket_says_what_keeps_it_from_sending() {
    let mbufs = Mbufs::new().expect("mbufs");
    let mut sockets = Sockets::new(mbufs.clone());
    let id = Id {
        slot: 3,
        generation: 9,
    };
    let bytes = |len: usize| mbufs.devget(&vec![7; len], 0).expect("memory");
    let refused = sockets.sosend(id, bytes(1)).expect_err("unknown");
    assert!(matches!(refused.0, SocketError::NotConnected));
    sockets.take(told(Note::new(id, Kind::Opened, 1000)));
    assert_eq!(sockets.soaccept(), Some(id));
    assert!(!sockets.soreadable(id));
    // One chain is longer than the room of TCP/IP, and than the buffer: it goes if the buffer is empty.
    sockets.sosend(id, bytes(SEND + 5000)).expect("empty");
    assert_eq!(sockets.sbspace(id), 0);
    let (error, back) = sockets.sosend(id, bytes(1)).expect_err("full");
    assert!(matches!(error, SocketError::WouldBlock));
    assert_eq!(back.len(), 1);
    sockets.take(told(Note::new(id, Kind::Taken, SEND + 4000)));
    assert_eq!(sockets.sbspace(id), SEND);
    sockets.take(told(Note::new(id, Kind::Ended, 0)));
    assert!(matches!(sockets.soreceive(id, 9), Ok(None)));
    sockets.soshutdown(id);
    let (error, _) = sockets.sosend(id, bytes(1)).expect_err("shut");
    assert!(matches!(error, SocketError::Gone));
    // TCP/IP dies: what comes from the next one is of other connections.
    sockets.lose();
    assert!(matches!(sockets.soreceive(id, 9), Err(SocketError::Gone)));
    sockets.soclose(id);
    assert!(matches!(
        sockets.soreceive(id, 9),
        Err(SocketError::NotConnected)
    ));
}

#[test]
fn bytes_that_were_sent_go_before_a_close() {
    let _dog = Watchdog::new();
    let mut both = Both::new();
    let handle = both.world.connect(5000);
    let id = both.accept();
    let all = stream(5000, 0, 0, SEND + 100_000);
    let bytes = both.sockets.sosend_slices(id, &[IoSlice::new(&all)]);
    assert_eq!(bytes.expect("an empty buffer"), all.len());
    both.sockets.soclose(id);
    let mut heard = 0;
    let mut got = vec![0; 30_000];
    while heard < all.len() {
        both.turn();
        if let Ok(len @ 1..) = both.world.client(handle).recv_slice(&mut got) {
            assert_eq!(got[..len], all[heard..heard + len], "at {heard}");
            heard += len;
        }
    }
}
