//! UDP: a request in one datagram, the reply in as many as it takes, each with memcached's eight bytes before it. Those
//! of one reply are handed to the kernel together (UDP_SEGMENT), its values from where they lie: nothing is put
//! together first. To another machine they go out of registered pages.

use super::shared::Shared;
use super::{classic, meta};
use crate::parse::{self, Command};
use crate::reply::Replies;
use crate::stats::Counts;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use tranship_zcopy::{Sender, Socket};

const HEADER: usize = 8;
/// Bytes of a datagram, header included: it fits into an Ethernet frame.
const DATAGRAM: usize = 1400;
/// The longest reply; a longer one is refused, as datagrams have only 16 bits for their number and no back-pressure.
const LONGEST: usize = 4 << 20;

/// A socket for datagrams, and its properties.
#[derive(Debug)]
pub(super) struct Datagrams {
    udp: UdpSocket,
    socket: Socket,
}

impl Datagrams {
    pub(super) fn new(udp: UdpSocket) -> io::Result<Datagrams> {
        udp.set_nonblocking(true)?;
        let socket = Socket::new(&udp)?;
        Ok(Datagrams { udp, socket })
    }

    pub(super) fn as_socket(&self) -> impl AsFd {
        self.udp.as_fd()
    }

    /// Answers the waiting requests, a bounded number.
    pub(super) fn serve(&mut self, shared: &Shared, worker: usize, sender: &mut Sender) {
        // Otherwise the socket is ready for ever.
        let _ = sender.settle(&self.udp, &mut self.socket);
        let mut room = [0; 2048];
        for _ in 0..64 {
            let Ok((len, from)) = self.udp.recv_from(&mut room) else {
                return;
            };
            let counts = &shared.counts[worker];
            Counts::bump(&counts.bytes_read, len as u64);
            let Some((header, request)) = room[..len].split_at_checked(HEADER) else {
                continue;
            };
            let mut replies = Replies::default();
            if header[4..6] == [0, 1] {
                answer(request, shared, worker, &mut replies);
            } else {
                replies.line("SERVER_ERROR multi-packet request not supported");
            }
            self.send(from, [header[0], header[1]], &replies, sender);
        }
    }

    fn send(&mut self, to: SocketAddr, id: [u8; 2], replies: &Replies, sender: &mut Sender) {
        let part = DATAGRAM - HEADER;
        let Ok(total) = u16::try_from(replies.waiting().0.div_ceil(part)) else {
            return;
        };
        let headers: Vec<[u8; HEADER]> = (0..total)
            .map(|number| {
                let ([a, b], [c, d]) = (number.to_be_bytes(), total.to_be_bytes());
                [id[0], id[1], a, b, c, d, 0, 0]
            })
            .collect();
        let datagrams = replies.cut(part, &headers);
        // As with any datagram: a datagram that has no room is lost, and the client asks again.
        let _ = sender.send_datagrams(&self.udp, &mut self.socket, Some(to), &datagrams);
    }
}

fn answer(request: &[u8], shared: &Shared, worker: usize, replies: &mut Replies) {
    let mut rest = request;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        rest = &rest[end + 1..];
        match parse::parse(line) {
            Ok(Command::Quit) => return,
            Ok(Command::Store(put)) => {
                let Some(value) = bytes(&mut rest, put.len, shared, replies) else {
                    return;
                };
                Counts::bump(&shared.counts[worker].cmd_set, 1);
                classic::Owned::new(&put).store(shared, worker, value, replies);
            }
            Ok(Command::Meta(meta)) => match meta.kind {
                parse::MetaKind::Set(len) => {
                    let Some(value) = bytes(&mut rest, len, shared, replies) else {
                        return;
                    };
                    match meta::OwnedSet::new(&meta) {
                        Ok(set) => set.store(shared, worker, value, replies),
                        Err(answer) => replies.line(answer),
                    }
                }
                _ => meta::answer(&meta, shared, worker, replies),
            },
            Ok(command) => classic::answer(command, shared, worker, replies),
            Err(wrong) if wrong.answer.is_empty() => return,
            Err(wrong) => return replies.line(wrong.answer),
        }
        if replies.waiting().0 > LONGEST {
            replies.clear();
            return replies.line("SERVER_ERROR reply too long for UDP, use TCP");
        }
    }
}

/// Returns the value behind a command.
fn bytes(
    rest: &mut &[u8],
    len: usize,
    shared: &Shared,
    replies: &mut Replies,
) -> Option<tranship_zcopy::Value> {
    let whole = len.checked_add(2).filter(|whole| *whole <= rest.len());
    let Some(whole) = whole.filter(|whole| rest[..*whole].ends_with(b"\r\n")) else {
        replies.line("CLIENT_ERROR bad data chunk");
        return None;
    };
    let (value, after) = rest.split_at(whole);
    *rest = after;
    let value = &value[..len];
    if len > shared.options.longest {
        replies.line("SERVER_ERROR object too large for cache");
        return None;
    }
    let Some(mut stored) = shared.store.reserve(len) else {
        replies.line("SERVER_ERROR out of memory storing object");
        return None;
    };
    stored.copy_from_slice(value);
    Some(stored.freeze())
}
