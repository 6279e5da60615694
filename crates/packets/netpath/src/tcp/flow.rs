//! The state of each connection beside smoltcp's.

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::{Duration, Instant};
use std::collections::{HashMap, VecDeque};
use tranship_mbuf::{Chain, Mbufs};

/// Bytes of a connection that were received and not taken, twice: in smoltcp, and with the program. The program may have
/// up to twice as many: the last piece is passed on whole.
pub const RECEIVE: usize = 128 << 10;
/// Time for a connection to open and be taken by the program, and for one that the program has closed to end. An
/// open connection has the program's own limits.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Time for a connection to open while there are many. The host has repeated its SYN by then.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(3);

/// A connection. Another one in its slot has another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Id {
    /// The slot, from 0.
    pub slot: u16,
    /// The generation of the slot.
    pub generation: u16,
}

/// News of a connection.
#[derive(Debug)]
pub enum Event {
    /// The connection is there. So many bytes may be sent before some are acknowledged.
    Opened(Id, usize),
    /// Bytes that were received. They count until [`taken`](super::Tcp::taken).
    Data(Id, Chain),
    /// The host has acknowledged so many bytes more: that many more may be sent.
    Acknowledged(Id, usize),
    /// The host sends no more.
    Ended(Id),
    /// The connection is gone.
    Closed(Id),
}

/// The bytes of payload that went each way, and their copies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Copies {
    /// Received bytes that were passed on by reference. smoltcp has copied each once, into its receive buffer.
    pub received: u64,
    /// Received bytes that came in disorder. They were copied out of that buffer, too.
    pub disordered: u64,
    /// Sent bytes, repetitions included, that the link got by reference. smoltcp has copied as many, out of its send
    /// buffer into frames that were not sent.
    pub sent: u64,
    /// Bytes of headers in front of those.
    pub headers: u64,
}

/// A received frame of the port.
#[derive(Debug)]
pub(super) struct Seen {
    pub remote: Remote,
    /// Sequence number of the payload's first byte.
    pub sequence: u32,
    pub payload: Option<Chain>,
}

/// Address and port of the other host.
pub(super) type Remote = ([u8; 4], u16);

/// A connection.
#[derive(Debug)]
pub(super) struct Flow {
    pub handle: SocketHandle,
    pub remote: Remote,
    /// The program knows it.
    pub opened: bool,
    ended: bool,
    /// The program has closed it: when it is cut.
    pub closed: Option<Instant>,
    /// When it came. It is cut if the program does not take it.
    pub begun: Instant,
    /// Sequence number of the next byte that smoltcp accepts in order.
    next: u32,
    /// The bytes that smoltcp has accepted, as many as lie in its receive buffer.
    received: VecDeque<Piece>,
    queued: usize,
    /// Bytes that the program has not taken.
    pub untaken: usize,
    /// Sequence number of the first byte of `sent`; `None`: smoltcp has sent no SYN.
    base: Option<u32>,
    /// The bytes that are not acknowledged, as many as lie in smoltcp's send buffer.
    sent: Option<Chain>,
}

/// Received bytes.
#[derive(Debug)]
enum Piece {
    /// Of a frame.
    Here(Chain),
    /// So many in smoltcp's receive buffer only: they came in disorder.
    Inside(usize),
}

impl Flow {
    /// Makes the connection of a host's SYN.
    pub(super) fn new(handle: SocketHandle, seen: &Seen, now: Instant) -> Flow {
        Flow {
            handle,
            remote: seen.remote,
            opened: false,
            ended: false,
            closed: None,
            begun: now,
            next: seen.sequence,
            received: VecDeque::new(),
            queued: 0,
            untaken: 0,
            base: None,
            sent: None,
        }
    }

    /// Returns when it is cut.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.closed
            .or((!self.opened).then_some(self.begun + PATIENCE))
    }

    /// Takes note of a frame, after which smoltcp has `queued` bytes for the program.
    pub(super) fn accept(&mut self, seen: Seen, queued: usize, copies: &mut Copies) {
        let accepted = queued.saturating_sub(self.queued);
        if accepted == 0 {
            return;
        }
        self.queued = queued;
        // Bytes of the frame that smoltcp had before.
        let skip = self.next.wrapping_sub(seen.sequence) as usize;
        self.next = self.next.wrapping_add(u32::try_from(accepted).unwrap_or(0));
        let mut left = accepted;
        if let Some(mut payload) = seen.payload
            && skip < payload.len()
        {
            payload.trim_front(skip);
            payload.truncate(left);
            left -= payload.len();
            copies.received += payload.len() as u64;
            self.received.push_back(Piece::Here(payload));
        }
        if left > 0 {
            copies.disordered += left as u64;
            self.received.push_back(Piece::Inside(left));
        }
    }

    /// Adds the news of the connection.
    pub(super) fn news(
        &mut self,
        id: Id,
        socket: &mut Socket<'_>,
        mbufs: &Mbufs,
        news: &mut Vec<Event>,
        most: usize,
    ) {
        if self.closed.is_some() {
            return;
        }
        if !self.opened {
            if matches!(
                socket.state(),
                State::SynReceived | State::Closed | State::Listen
            ) {
                return;
            }
            self.opened = true;
            news.push(Event::Opened(id, socket.send_capacity()));
        }
        while self.untaken < RECEIVE && news.len() < most {
            let Some(piece) = self.received.pop_front() else {
                break;
            };
            let bytes = match piece {
                Piece::Here(bytes) => {
                    dequeue(socket, bytes.len(), |_| {});
                    bytes
                }
                Piece::Inside(len) => {
                    let mut copy = Vec::with_capacity(len);
                    match mbufs.mini() {
                        Ok(mut bytes) => {
                            dequeue(socket, len, |some| copy.extend_from_slice(some));
                            // A vector's place is inside of the mbuf.
                            let _ = bytes.attach_mut(copy);
                            bytes
                        }
                        // The next time.
                        Err(_) => {
                            self.received.push_front(Piece::Inside(len));
                            break;
                        }
                    }
                }
            };
            self.queued -= bytes.len();
            self.untaken += bytes.len();
            news.push(Event::Data(id, bytes));
        }
        if news.len() < most {
            let acknowledged = self.acknowledge(socket);
            if acknowledged > 0 {
                news.push(Event::Acknowledged(id, acknowledged));
            }
        }
        let is_closed = socket.state() == State::Closed;
        let is_end = !is_closed && self.received.is_empty() && !socket.may_recv();
        if !self.ended && is_end && news.len() < most {
            self.ended = true;
            news.push(Event::Ended(id));
        }
    }

    /// Sends bytes.
    pub(super) fn send(&mut self, socket: &mut Socket<'_>, bytes: Chain) {
        let len = bytes.len();
        if len > socket.send_capacity() - socket.send_queue() {
            return socket.abort();
        }
        let mut left = len;
        while left > 0 {
            // The bytes are counted, and not written.
            let put = socket.send(|room| (room.len().min(left), room.len().min(left)));
            match put {
                Ok(put @ 1..) => left -= put,
                // The connection is ending: the host would not get them.
                _ => return,
            }
        }
        match &mut self.sent {
            Some(sent) => sent.cat(bytes),
            none => *none = Some(bytes),
        }
    }

    /// Forgets received bytes: the stream does not go on.
    pub(super) fn forget(&mut self) {
        self.received.clear();
    }

    /// Lets go of acknowledged bytes, and returns how many.
    pub(super) fn acknowledge(&mut self, socket: &Socket<'_>) -> usize {
        let Some(sent) = &mut self.sent else {
            return 0;
        };
        let done = sent.len().saturating_sub(socket.send_queue());
        if done == 0 {
            return 0;
        }
        match sent.len() == done {
            true => self.sent = None,
            false => match sent.split_off(done) {
                Ok(rest) => *sent = rest,
                // Without an mbuf, the next time.
                Err(_) => return 0,
            },
        }
        if let Some(base) = &mut self.base {
            *base = base.wrapping_add(u32::try_from(done).unwrap_or(0));
        }
        done
    }

    /// Takes note of a SYN that smoltcp sends, again perhaps.
    pub(super) fn begin(&mut self, sequence: u32) {
        self.base.get_or_insert(sequence.wrapping_add(1));
    }

    /// Returns the bytes that a frame from `sequence` on has, by reference.
    pub(super) fn part(&self, sequence: u32, len: usize) -> Option<Chain> {
        let at = sequence.wrapping_sub(self.base?) as usize;
        self.sent.as_ref()?.copym(at..at.checked_add(len)?).ok()
    }
}

/// Takes bytes out of smoltcp's receive buffer.
fn dequeue(socket: &mut Socket<'_>, len: usize, mut each: impl FnMut(&[u8])) {
    let mut left = len;
    while left > 0 {
        let took = socket.recv(|some| {
            let some = &some[..some.len().min(left)];
            each(some);
            (some.len(), some.len())
        });
        match took {
            Ok(took @ 1..) => left -= took,
            _ => return,
        }
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Flows {
    slots: Vec<(u16, Option<Flow>)>,
    by_remote: HashMap<Remote, u16>,
    /// The last frame of the port.
    pub seen: Option<Seen>,
    pub copies: Copies,
}

impl Flows {
    pub(super) fn len(&self) -> usize {
        self.by_remote.len()
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Adds a connection. `seed`: a random number, from which a new slot's generations begin.
    pub(super) fn put(&mut self, flow: Flow, seed: u64) {
        let free = self.slots.iter().position(|(_, flow)| flow.is_none());
        let at = free.unwrap_or_else(|| {
            #[allow(clippy::cast_possible_truncation)] // any number will do
            self.slots.push((seed as u16, None));
            self.slots.len() - 1
        });
        let (generation, place) = &mut self.slots[at];
        *generation = generation.wrapping_add(1);
        self.by_remote
            .insert(flow.remote, u16::try_from(at).unwrap_or(u16::MAX));
        *place = Some(flow);
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Flow> {
        let (generation, place) = self.slots.get_mut(usize::from(id.slot))?;
        let flow = place.take_if(|_| *generation == id.generation)?;
        self.by_remote.remove(&flow.remote);
        Some(flow)
    }

    pub(super) fn get(&mut self, id: Id) -> Option<&mut Flow> {
        let (generation, flow) = self.slots.get_mut(usize::from(id.slot))?;
        flow.as_mut().filter(|_| *generation == id.generation)
    }

    pub(super) fn at(&mut self, slot: usize) -> Option<(Id, &mut Flow)> {
        let (generation, flow) = self.slots.get_mut(slot)?;
        Some((id(slot, *generation), flow.as_mut()?))
    }

    /// Returns the connection with a port of another host.
    pub(super) fn id_of(&self, remote: Remote) -> Option<Id> {
        let slot = usize::from(*self.by_remote.get(&remote)?);
        Some(id(slot, self.slots[slot].0))
    }

    pub(super) fn of_remote(&mut self, remote: Remote) -> (Option<&mut Flow>, &mut Copies) {
        let slot = self.by_remote.get(&remote);
        let flow = slot.and_then(|slot| self.slots[usize::from(*slot)].1.as_mut());
        (flow, &mut self.copies)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Flow> {
        self.slots.iter().filter_map(|(_, flow)| flow.as_ref())
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = (Id, &mut Flow)> {
        let all = self.slots.iter_mut().enumerate();
        all.filter_map(|(slot, (generation, flow))| Some((id(slot, *generation), flow.as_mut()?)))
    }
}

fn id(slot: usize, generation: u16) -> Id {
    Id {
        slot: u16::try_from(slot).unwrap_or(u16::MAX),
        generation,
    }
}
