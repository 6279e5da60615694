//! Choice of the way, by kind of socket and size.
//!
//! | to | from | way |
//! |---|---|---|
//! | a stream to another machine | [`NOTIFIED`] | MSG_ZEROCOPY, if its owner knows of notifications |
//! | any other stream | [`SPLICED`] | vmsplice, if this kernel refers to pages by it |
//! | datagrams to another machine | 1 KiB each | registered pages |
//!
//! All others are copied, and so are the next sends to a kind of socket after the kernel has refused one.

use super::header::HeaderLog;
use super::probe;
use super::route::Route;
use super::segment::{Piece, Segment};
use super::socket::Socket;
use super::way::{Way, Why};
use crate::arena::classes::PAGE;

/// Bytes from which references in a pipe pay, to a stream within this machine (measured: `zc-cache`).
const SPLICED: usize = 256 << 10;
/// Bytes from which waiting for a notification pays, as the kernel's own documentation has it.
pub(super) const NOTIFIED: usize = 10 << 10;
/// Sends that are copied after a refusal.
const PAUSE: u64 = 1024;

/// Way that was chosen for a send, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chosen {
    pub(super) way: Way,
    pub(super) why: Why,
}

impl Chosen {
    pub(super) const fn copy(why: Why) -> Chosen {
        Chosen {
            way: Way::Copy,
            why,
        }
    }
}

/// Bytes of a send whose references could pay: of pieces that are not too short for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    bytes: usize,
    datagrams: usize,
}

impl Weight {
    /// Returns the weight of segments: of a stream if `datagrams` is 0, otherwise of `datagrams` datagrams.
    pub(super) fn of(segments: &[Segment], datagrams: usize) -> Weight {
        let lens = segments.iter().filter(|segment| segment.pages.is_some());
        Weight::sum(lens.map(|segment| segment.len), datagrams)
    }

    /// Returns the weight that pieces have if all of them that can be are protected.
    pub(super) fn at_most<'p>(
        pieces: impl Iterator<Item = &'p Piece<'p>>,
        datagrams: usize,
    ) -> Weight {
        let lens = pieces.filter(|piece| piece.may_refer()).map(Piece::len);
        Weight::sum(lens, datagrams)
    }

    fn sum(lens: impl Iterator<Item = usize>, datagrams: usize) -> Weight {
        // A reference is to a page. Registered pages are looked up no more; shorter pieces go to a log.
        let least = if datagrams == 0 {
            PAGE
        } else {
            HeaderLog::LONGEST
        };
        Weight {
            bytes: lens.filter(|len| *len >= least).sum(),
            datagrams,
        }
    }

    /// Returns whether datagrams are long enough to go out of registered pages.
    fn pays_registered(self) -> bool {
        self.bytes > 0 && self.bytes >= HeaderLog::LONGEST * self.datagrams
    }
}

/// Chooses, and remembers what the kernel refused.
#[derive(Debug)]
pub(super) struct Chooser {
    /// Bytes from which references in a pipe are used.
    pub(super) spliced: usize,
    /// Number of the send before which all is copied, for each kind of socket.
    paused: [u64; Route::ALL.len()],
}

impl Default for Chooser {
    fn default() -> Chooser {
        Chooser {
            spliced: SPLICED,
            paused: Default::default(),
        }
    }
}

impl Chooser {
    /// Chooses the way of a sender's send of that number.
    pub(super) fn choose(&self, now: u64, socket: &Socket, route: Route, weight: Weight) -> Chosen {
        match self.by_size(socket, route, weight) {
            Chosen { way, .. } if way != Way::Copy && self.is_paused(now, route) => {
                Chosen::copy(Why::Refused)
            }
            chosen => chosen,
        }
    }

    /// Returns whether protecting pageblocks for such a send can pay.
    pub(super) fn pays(&self, now: u64, socket: &Socket, route: Route, weight: Weight) -> bool {
        let chosen = self.by_size(socket, route, weight);
        // Only protected pages are registered.
        let pays = chosen.way != Way::Copy || chosen.why == Why::Unregistered;
        pays && !self.is_paused(now, route)
    }

    /// Notes that the kernel refused a way: it has no resources now, or can never do it.
    pub(super) fn refused(&mut self, now: u64, route: Route) {
        self.paused[route.index()] = now.saturating_add(PAUSE);
    }

    fn is_paused(&self, now: u64, route: Route) -> bool {
        now < self.paused[route.index()]
    }

    /// Returns whether a send by reference may pay, to a stream whose owner does not know of notifications.
    pub(super) fn may_pay(&self, weight: Weight) -> bool {
        weight.bytes >= self.spliced && probe::vmsplice_refers()
    }

    fn by_size(&self, socket: &Socket, route: Route, weight: Weight) -> Chosen {
        let large = |way| Chosen {
            way,
            why: Why::Large,
        };
        match route {
            _ if route.is_stream() => {
                if weight.bytes >= NOTIFIED && socket.allows(route, Way::Notified) {
                    large(Way::Notified)
                } else if weight.bytes < self.spliced {
                    Chosen::copy(Why::Small)
                } else if probe::vmsplice_refers() {
                    large(Way::Splice)
                } else {
                    Chosen::copy(Why::Refused)
                }
            }
            Route::Datagrams if !weight.pays_registered() => Chosen::copy(Why::Small),
            Route::Datagrams if socket.copies_registered => Chosen::copy(Why::Refused),
            Route::Datagrams if socket.allows(route, Way::Registered) => large(Way::Registered),
            Route::Datagrams => Chosen::copy(Why::Unregistered),
            _ => Chosen::copy(Why::Socket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;

    fn loopback() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        (near, listener.accept().expect("accept").0)
    }

    fn weight(bytes: usize, datagrams: usize) -> Weight {
        Weight { bytes, datagrams }
    }

    fn spliced() -> Chosen {
        match probe::vmsplice_refers() {
            true => Chosen {
                way: Way::Splice,
                why: Why::Large,
            },
            false => Chosen::copy(Why::Refused),
        }
    }

    #[test]
    fn a_stream_goes_by_reference_from_a_size_on() {
        let (near, _far) = loopback();
        let (unix, _far) = UnixStream::pair().expect("sockets");
        let notified = Chosen {
            way: Way::Notified,
            why: Why::Large,
        };
        for (socket, route, small) in [
            (Socket::new(&near), Route::Loopback, None),
            (Socket::new(&unix), Route::Unix, None),
            (Socket::elsewhere(&near), Route::Remote, Some(notified)),
        ] {
            let socket = socket.expect("a socket");
            assert_eq!(socket.route, route);
            let chosen = |bytes| Chooser::default().by_size(&socket, route, weight(bytes, 0));
            assert_eq!(chosen(NOTIFIED - 1), Chosen::copy(Why::Small));
            let between = small.unwrap_or(Chosen::copy(Why::Small));
            assert_eq!(chosen(NOTIFIED), between);
            assert_eq!(chosen(SPLICED - 1), between);
            assert_eq!(chosen(SPLICED), small.unwrap_or(spliced()));
        }
    }

    #[test]
    fn datagrams_go_out_of_registered_pages_if_they_are_long_and_go_to_another_machine() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let mut socket = Socket::new(&socket).expect("a socket");
        let chooser = Chooser::default();
        let chosen =
            |socket: &Socket, route, bytes| chooser.by_size(socket, route, weight(bytes, 4));
        let copy = Chosen::copy;
        assert_eq!(
            chosen(&socket, Route::LocalDatagrams, 8192),
            copy(Why::Socket)
        );
        assert_eq!(chosen(&socket, Route::Datagrams, 4095), copy(Why::Small));
        assert_eq!(
            chosen(&socket, Route::Datagrams, 4096),
            copy(Why::Unregistered)
        );
        socket.registered = true;
        assert_eq!(chosen(&socket, Route::Datagrams, 4096).way, Way::Registered);
        socket.copies_registered = true;
        assert_eq!(chosen(&socket, Route::Datagrams, 4096), copy(Why::Refused));
    }

    #[test]
    fn what_the_kernel_refused_is_copied_for_a_while_and_only_there() {
        let (near, _far) = loopback();
        let socket = Socket::elsewhere(&near).expect("a socket");
        let mut chooser = Chooser::default();
        let way = |chooser: &Chooser, now, route| {
            let chosen = chooser.choose(now, &socket, route, weight(SPLICED, 0));
            assert_eq!(
                chooser.pays(now, &socket, route, weight(SPLICED, 0)),
                chosen.way != Way::Copy
            );
            chosen
        };
        chooser.refused(7, Route::Remote);
        for now in [8, 6 + PAUSE] {
            assert_eq!(
                way(&chooser, now, Route::Remote),
                Chosen::copy(Why::Refused)
            );
        }
        assert_eq!(way(&chooser, 7 + PAUSE, Route::Remote).way, Way::Notified);
        assert_eq!(way(&chooser, 8, Route::Unix), spliced());
    }
}
