//! A relay of TCP connections that can be cut, held and released, as a network does, on one machine.
//!
//! NOT here: effects of a network on single packets (`lab`).

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    /// No bytes pass, and no end is told.
    held: Mutex<bool>,
    released: Condvar,
    /// Connections are refused: closed as soon as they are made.
    shut: AtomicBool,
    /// Bytes until the next cut; 0: none is planned.
    fuse: Mutex<u64>,
    living: Mutex<Vec<TcpStream>>,
    connections: AtomicU64,
    /// Pieces that came to be passed on, of both directions.
    pieces: AtomicU64,
}

impl State {
    fn cut(&self) {
        for socket in self.living.lock().expect("living").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Passes connections on to one place. Its threads stay until the test ends.
#[derive(Debug)]
pub struct Relay {
    /// Address where it listens.
    pub at: SocketAddr,
    state: Arc<State>,
}

impl Relay {
    /// Relays to `to`.
    #[must_use]
    pub fn new(to: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("relay");
        let at = listener.local_addr().expect("address");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for one in listener.incoming() {
                let one = one.expect("connection");
                // Ordering: relaxed here and below; single words that tests change at any time.
                if shared.shut.load(Ordering::Relaxed) {
                    continue;
                }
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let Ok(other) = TcpStream::connect(to) else {
                    continue;
                };
                let mut living = shared.living.lock().expect("living");
                for socket in [&one, &other] {
                    socket.set_nodelay(true).expect("option");
                    living.push(socket.try_clone().expect("clone"));
                }
                drop(living);
                for (from, to) in [(&one, &other), (&other, &one)] {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || {
                        pass(from.expect("clone"), to.expect("clone"), &shared);
                    });
                }
            }
        });
        Relay { at, state }
    }

    /// Ends all connections when `bytes` more bytes have passed.
    pub fn cut_after(&self, bytes: u64) {
        *self.state.fuse.lock().expect("fuse") = bytes;
    }

    /// Lets nothing pass from now on, or everything again.
    pub fn hold(&self, held: bool) {
        *self.state.held.lock().expect("held") = held;
        self.state.released.notify_all();
    }

    /// Lets nobody connect from now on, or everybody again.
    pub fn shut(&self, shut: bool) {
        self.state.shut.store(shut, Ordering::Relaxed);
    }

    /// Returns how many connections it has taken.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Returns how many pieces of bytes were passed on, of both directions.
    #[must_use]
    pub fn pieces(&self) -> u64 {
        self.state.pieces.load(Ordering::Relaxed)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut piece = [0; 1 << 14];
    while let Ok(got @ 1..) = from.read(&mut piece) {
        let held = state.held.lock().expect("held");
        drop(state.released.wait_while(held, |held| *held).expect("held"));
        state.pieces.fetch_add(1, Ordering::Relaxed);
        // Both directions burn one fuse; the first bytes that do not pass any more are the last.
        let mut fuse = state.fuse.lock().expect("fuse");
        let some = match *fuse {
            0 => got,
            left => got.min(usize::try_from(left).unwrap_or(got)),
        };
        let burns = *fuse > 0;
        *fuse = fuse.saturating_sub(some as u64);
        let burnt = burns && *fuse == 0;
        drop(fuse);
        if to.write_all(&piece[..some]).is_err() {
            break;
        }
        if burnt {
            state.cut();
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
