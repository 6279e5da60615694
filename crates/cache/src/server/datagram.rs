//! UDP: a request in one datagram, the reply in as many as it takes, each with memcached's eight bytes before it. Those of one
//! reply are handed to the kernel together (UDP_SEGMENT).

use super::{Shared, classic, meta};
use crate::parse::{self, Command};
use crate::reply::Replies;
use crate::stats::Counts;
use std::net::{SocketAddr, UdpSocket};
use tranship_sys::segment;

const HEADER: usize = 8;
/// Bytes of a datagram, header included: fits what Ethernet carries.
const DATAGRAM: u16 = 1400;
/// Datagrams handed over at once: what the kernel takes in one call.
const AT_ONCE: usize = 45;
/// The longest reply; a longer one is refused, as datagrams have only 16 bits for their number and no back-pressure.
const LONGEST: usize = 4 << 20;

/// Answers what waits, a bounded number of requests.
pub(super) fn serve(socket: &UdpSocket, shared: &Shared, worker: usize) {
    let mut room = [0; 2048];
    for _ in 0..64 {
        let Ok((len, from)) = socket.recv_from(&mut room) else {
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
        let reply = replies.take_all();
        Counts::bump(&counts.bytes_written, reply.len() as u64);
        send(socket, from, [header[0], header[1]], &reply);
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
            Err(wrong) => return replies.line(wrong.answer),
        }
        if replies.waiting().0 > LONGEST {
            replies.take_all();
            return replies.line("SERVER_ERROR reply too long for UDP, use TCP");
        }
    }
}

/// The value behind a command.
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
    let Some(mut stored) = shared.store.reserve(len) else {
        replies.line("SERVER_ERROR out of memory storing object");
        return None;
    };
    stored.copy_from_slice(value);
    Some(stored.freeze())
}

fn send(socket: &UdpSocket, to: SocketAddr, id: [u8; 2], reply: &[u8]) {
    let parts = reply.chunks(usize::from(DATAGRAM) - HEADER);
    let Ok(total) = u16::try_from(parts.len()) else {
        return;
    };
    let mut together = Vec::with_capacity(AT_ONCE * usize::from(DATAGRAM));
    for (number, part) in (0u16..).zip(parts) {
        together.extend_from_slice(&id);
        together.extend_from_slice(&number.to_be_bytes());
        together.extend_from_slice(&total.to_be_bytes());
        together.extend_from_slice(&[0, 0]);
        together.extend_from_slice(part);
        let full = usize::from(number) % AT_ONCE == AT_ONCE - 1;
        if full || number + 1 == total {
            // As with any datagram: what has no room is lost, and the client asks again.
            let _ = segment::send(socket, to, &together, DATAGRAM);
            together.clear();
        }
    }
}
