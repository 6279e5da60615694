//! A connection in which sent data waits in the kernel, for each way: by reference to its pages, if the way is one.
//!
//! Data that is looped to this machine is copied by the kernel on delivery, if it was sent by MSG_ZEROCOPY or out of
//! registered pages. So there most must not be delivered: a stream's receiver has little room, and it is full before;
//! datagrams wait for the address of their receiver.

use super::hosts::Hosts;
use super::pair::{self, Pair};
use super::{has_error, ring_possible};
use rustix::net::sockopt;
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use tranship_zcopy::{Counts, Piece, Sender, Socket, Way};

pub struct Line {
    way: Way,
    sender: Sender,
    socket: Socket,
    ends: Ends,
    /// Bytes that were sent and are still to arrive.
    expected: Vec<Vec<u8>>,
}

enum Ends {
    Stream(Pair),
    Datagrams(Hosts, UdpSocket, UdpSocket),
}

impl Line {
    /// Returns a line to this machine, by TCP or by a Unix socket.
    pub fn stream(way: Way, unix: bool) -> Line {
        let pair = match way {
            Way::Notified => pair::narrow(),
            _ if unix => pair::unix(),
            _ => pair::tcp(),
        };
        let socket = match way {
            Way::Notified => Socket::elsewhere(pair.near()),
            _ => Socket::new(pair.near()),
        };
        let mut line = Line::over(way, socket.expect("a socket"), Ends::Stream(pair));
        if way == Way::Notified {
            line.fill();
        }
        line
    }

    /// Makes a line to another host, which is not found yet. The error names the feature that is missing here.
    pub fn datagrams(way: Way) -> Result<Line, String> {
        Line::datagrams_with_room(way, 4 << 20)
    }

    /// Returns [`Line::datagrams`] with a send buffer of so many bytes.
    pub fn datagrams_with_room(way: Way, room: usize) -> Result<Line, String> {
        if way == Way::Registered {
            ring_possible()?;
        }
        let hosts = Hosts::new()?;
        let (near, far) = (hosts.bound(0, "0.0.0.0:0"), hosts.bound(1, "10.79.0.2:0"));
        sockopt::set_socket_send_buffer_size(&near, room).expect("a buffer");
        let socket = Socket::new(&near).expect("a socket");
        Ok(Line::over(way, socket, Ends::Datagrams(hosts, near, far)))
    }

    fn over(way: Way, socket: Socket, ends: Ends) -> Line {
        let mut sender = Sender::new().expect("sender");
        sender.force(Some(way));
        Line {
            way,
            sender,
            socket,
            ends,
            expected: Vec::new(),
        }
    }

    /// Nothing more is delivered before somebody reads.
    fn fill(&mut self) {
        let Ends::Stream(pair) = &self.ends else {
            return;
        };
        let Pair::Tcp(near, _) = pair else {
            return;
        };
        let bytes = vec![0x11; 256 << 10];
        let sent = { near }.write(&bytes).expect("room");
        assert!(sent > 64 << 10, "{sent} bytes had room");
        self.expected.push(bytes[..sent].to_vec());
    }

    /// Sends as many of the pieces as there is room for, each a datagram where there are such. `bytes` are theirs; says
    /// of how many all went.
    pub fn send(&mut self, pieces: &[Piece<'_>], bytes: &[Vec<u8>]) -> usize {
        let mut went = 0;
        let sent = match &self.ends {
            Ends::Stream(pair) => self.sender.send(pair.near(), &mut self.socket, pieces),
            Ends::Datagrams(_, near, far) => {
                let all: Vec<[Piece<'_>; 1]> = pieces.iter().map(|one| [one.clone()]).collect();
                let to = far.local_addr().expect("an address");
                let count = self
                    .sender
                    .send_datagrams(near, &mut self.socket, Some(to), &all);
                count.map(|count| pieces[..count].iter().map(Piece::len).sum())
            }
        };
        let mut left = match sent {
            Ok(sent) => sent,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{}: {error}", self.way),
        };
        for one in bytes {
            let now = left.min(one.len());
            if now > 0 {
                self.expected.push(one[..now].to_vec());
            }
            left -= now;
            went += usize::from(now == one.len());
        }
        went
    }

    pub fn counts(&self) -> Counts {
        self.sender.counts()
    }

    /// Checks that the kernel has let go of nothing that was sent by reference.
    pub fn waits(&self) {
        match &self.ends {
            Ends::Stream(pair) => {
                assert!(!has_error(pair.near()), "the kernel is done with a send");
            }
            Ends::Datagrams(_, near, far) => {
                assert!(!has_error(near.as_fd()), "the kernel is done with a send");
                far.set_nonblocking(true).expect("nonblocking");
                assert!(far.recv(&mut [0]).is_err(), "a datagram has come");
            }
        }
    }

    /// Notes that all of `bytes` were sent by a program that had this line before.
    pub fn expects(&mut self, bytes: &[Vec<u8>]) {
        self.expected.extend_from_slice(bytes);
    }

    /// All of it arrives as it was sent, and no more.
    pub fn arrives(mut self) {
        let expected = std::mem::take(&mut self.expected);
        let lens = expected.iter().map(Vec::len).collect::<Vec<_>>();
        let got = self.arrived(&lens);
        for (number, (got, sent)) in got.iter().zip(&expected).enumerate() {
            let wrong = got.iter().zip(sent).position(|(a, b)| a != b);
            let all = expected.len();
            assert_eq!(
                wrong, None,
                "piece {number} of {all}: the first byte that changed"
            );
        }
    }

    /// Returns the bytes that arrive, in parts of these lengths, and checks that no more arrive.
    pub fn arrived(&mut self, lens: &[usize]) -> Vec<Vec<u8>> {
        match &self.ends {
            Ends::Stream(pair) => {
                let all = pair.takes(lens.iter().sum());
                let mut rest = &all[..];
                let cut = |len: &usize| {
                    let (now, after) = rest.split_at(*len);
                    rest = after;
                    now.to_vec()
                };
                lens.iter().map(cut).collect()
            }
            Ends::Datagrams(hosts, _, far) => {
                hosts.found();
                far.set_nonblocking(false).expect("blocking");
                let mut room = vec![0; 70_000];
                let take = |expected: &usize| {
                    let len = far.recv(&mut room).expect("a datagram");
                    assert_eq!(len, *expected, "a datagram of another length");
                    room[..len].to_vec()
                };
                lens.iter().map(take).collect()
            }
        }
    }

    /// Bytes of each piece that was sent so far.
    pub fn lens(&self) -> Vec<usize> {
        self.expected.iter().map(Vec::len).collect()
    }
}
