//! TCP connections of one port, on smoltcp, whose bytes are passed by reference.
//!
//! smoltcp has two buffers for each connection. No byte of a stream is taken from them:
//!
//! * Received: a frame's payload is kept as mbufs. The program gets those of the bytes that smoltcp has accepted in
//!   order. Bytes that came in disorder are copied out of smoltcp's buffer, and counted.
//! * Sent: smoltcp is told the number of bytes only. In the frames that it makes, references to the program's bytes
//!   take the place of the payload.
//!
//! So smoltcp copies each byte once for nothing: into its receive buffer, and out of its send buffer. The link computes
//! checksums, since those of smoltcp would be of other bytes.
//!
//! NOT here: TCP itself (smoltcp), IPv6, connections to other hosts.

mod flow;
mod note;
mod reference;
#[cfg(test)]
mod tests;

use crate::device::{Frames, MbufDevice};
use crate::forward::Address;
use crate::iperf::tcp_socket;
use crate::link::Link;
use crate::server::interface;
use crate::tap::Offload;
pub use flow::{Copies, Event, Id, RECEIVE};
use flow::{Flow, Flows, HANDSHAKE, PATIENCE};
pub use note::{Kind, Note};
use reference::ByReference;
use smoltcp::iface::{Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::Duration;
pub use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpCidr, IpEndpoint, Ipv4Address, Ipv4Cidr};
use std::hash::{BuildHasher, RandomState};
use tranship_mbuf::{Chain, ClusterSize, Mbufs};

/// Bytes of a connection that were sent and not acknowledged.
const SEND: usize = 256 << 10;
/// Time for which an acknowledgement waits for bytes to go with.
const ACK: Duration = Duration::from_millis(10);

/// The host and its port.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Hardware and IPv4 address.
    pub address: Address,
    /// Bits of the network's part of the address.
    pub prefix: u8,
    /// Router to other networks.
    pub gateway: Option<[u8; 4]>,
    /// Port of the connections.
    pub port: u16,
    /// Bytes of payload of a frame.
    pub mtu: usize,
    /// Most connections, those that are ending included. One more is refused.
    pub connections: usize,
}

/// The connections.
#[allow(missing_debug_implementations, reason = "smoltcp's interface has none")]
pub struct Tcp<L> {
    device: MbufDevice<ByReference<L>>,
    interface: Interface,
    sockets: SocketSet<'static>,
    listener: Option<SocketHandle>,
    options: Options,
    random: RandomState,
    /// Connections that are gone, and whose end the program is not told yet.
    gone: Vec<Id>,
    /// The slot whose news comes first next time.
    first: usize,
}

impl<L: Link> Tcp<L> {
    /// Makes the host.
    ///
    /// # Panics
    /// If the link does not compute checksums ([`Offload::Segments`]).
    pub fn new(link: L, mbufs: Mbufs, options: Options) -> Tcp<L> {
        assert_eq!(link.offload(), Offload::Segments, "checksums of the link");
        let random = RandomState::new();
        let link = ByReference::new(link, mbufs.clone(), options.address.ip, options.port);
        let mut device = MbufDevice::new(link, mbufs, options.mtu, ClusterSize::Std);
        let address = Ipv4Cidr::new(options.address.ip.into(), options.prefix.min(32));
        let mut interface = interface(
            &mut device,
            options.address.ethernet,
            IpCidr::Ipv4(address),
            random.hash_one(0),
        );
        if let Some(gateway) = options.gateway {
            // The table has room for one.
            let _ = interface
                .routes_mut()
                .add_default_ipv4_route(Ipv4Address::from(gateway));
        }
        let mut tcp = Tcp {
            device,
            interface,
            sockets: SocketSet::new(Vec::new()),
            listener: None,
            options,
            random,
            gone: Vec::new(),
            first: 0,
        };
        tcp.listen();
        tcp
    }

    /// Returns the link.
    pub fn link(&self) -> &L {
        self.device.link().link()
    }

    /// Returns the counters of frames.
    pub fn frames(&self) -> Frames {
        self.device.frames()
    }

    /// Returns the counters of copies.
    pub fn copies(&self) -> Copies {
        self.flows(|flows| flows.copies)
    }

    /// Returns how many connections there are, those that are ending included.
    pub fn connections(&self) -> usize {
        self.flows(|flows| flows.len())
    }

    /// Returns address and port of a connection's other host.
    pub fn remote(&self, id: Id) -> Option<([u8; 4], u16)> {
        let mut flows = self.device.link().flows.borrow_mut();
        flows.get(id).map(|flow| flow.remote)
    }

    /// Takes all frames of the link.
    pub fn receive(&mut self, now: Instant) {
        while let PollIngressSingleResult::PacketProcessed
        | PollIngressSingleResult::SocketStateChanged =
            self.interface
                .poll_ingress_single(now, &mut self.device, &mut self.sockets)
        {
            // After each frame, or its payload could not be told from the next one's.
            self.accept(now);
        }
        self.sweep(now);
    }

    /// Sends the frames that smoltcp has.
    pub fn send_frames(&mut self, now: Instant) {
        while self
            .interface
            .poll_egress(now, &mut self.device, &mut self.sockets)
            == PollResult::SocketStateChanged
        {}
        self.sweep(now);
    }

    /// Returns how long there is nothing to do, if no frame comes; `None`: for ever.
    pub fn delay(&mut self, now: Instant) -> Option<Duration> {
        let delay = self.interface.poll_delay(now, &self.sockets);
        // A connection that is cut is let go later, unless its reset is sent before.
        let next = |at: Instant| if at > now { at } else { at + PATIENCE };
        let deadline = self.flows(|flows| {
            let deadlines = flows.all().filter_map(|flow| flow.deadline());
            deadlines.map(next).min()
        });
        let left = deadline.map(|deadline| {
            if deadline > now {
                deadline - now
            } else {
                Duration::ZERO
            }
        });
        delay.into_iter().chain(left).min()
    }

    /// Returns news, at most `most`.
    pub fn news(&mut self, most: usize) -> Vec<Event> {
        let closed = self.gone.len().min(most);
        let mut news: Vec<_> = self.gone.drain(..closed).map(Event::Closed).collect();
        let mut flows = self.device.link().flows.borrow_mut();
        let count = flows.slots();
        for turn in 0..count {
            let slot = (self.first + turn) % count;
            if news.len() >= most {
                self.first = slot;
                break;
            }
            if let Some((id, flow)) = flows.at(slot) {
                let socket = self.sockets.get_mut::<Socket<'_>>(flow.handle);
                flow.news(id, socket, self.device.mbufs(), &mut news, most);
            }
        }
        news
    }

    /// Takes note that the program has taken received bytes: as many more may come.
    pub fn taken(&mut self, id: Id, bytes: usize) {
        self.with(id, |flow, _| {
            flow.untaken = flow.untaken.saturating_sub(bytes);
        });
    }

    /// Sends bytes, which must stay as they are until they are acknowledged. More than may be sent end the connection.
    pub fn send(&mut self, id: Id, bytes: Chain) {
        self.with(id, |flow, socket| flow.send(socket, bytes));
    }

    /// Ends the stream to the host, behind the sent bytes.
    pub fn finish(&mut self, id: Id) {
        self.with(id, |_, socket| socket.close());
    }

    /// Ends a connection, behind the bytes that were sent. There is no further news of it.
    pub fn close(&mut self, id: Id, now: Instant) {
        self.with(id, |flow, socket| {
            flow.closed = Some(now + PATIENCE);
            socket.close();
        });
    }

    /// Cuts a connection. There is no more data of it, and its end is news.
    pub fn cut(&mut self, id: Id) {
        self.with(id, |flow, socket| {
            flow.forget();
            socket.abort();
        });
    }

    /// Cuts all connections that the program was told of. Their ends are the last news of them.
    pub fn reset(&mut self, now: Instant) {
        let mut flows = self.device.link().flows.borrow_mut();
        for (id, flow) in flows.all_mut().filter(|(_, flow)| flow.opened) {
            // The time is over.
            if flow.closed.replace(now).is_none() {
                self.gone.push(id);
            }
        }
    }

    fn with(&mut self, id: Id, work: impl FnOnce(&mut Flow, &mut Socket<'static>)) {
        let mut flows = self.device.link().flows.borrow_mut();
        if let Some(flow) = flows.get(id) {
            work(flow, self.sockets.get_mut(flow.handle));
        }
    }

    fn flows<R>(&self, work: impl FnOnce(&Flows) -> R) -> R {
        work(&self.device.link().flows.borrow())
    }

    /// Makes a socket that listens, unless there are too many connections.
    fn listen(&mut self) {
        // A frame that was not seen may have made it a connection, which would be nobody's.
        let lost = self
            .listener
            .take_if(|handle| !self.sockets.get::<Socket<'_>>(*handle).is_listening());
        if let Some(handle) = lost {
            self.sockets.remove(handle);
        }
        if self.listener.is_some() || self.connections() >= self.options.connections {
            return;
        }
        let mut socket = tcp_socket(RECEIVE, SEND);
        // The acknowledgement goes out with the answer, if that comes soon.
        socket.set_ack_delay(Some(ACK));
        // A connection to the address of all hosts is none. Fails only for port 0, which then takes no connection.
        let me = Ipv4Address::from(self.options.address.ip);
        let _ = socket.listen((me, self.options.port));
        self.listener = Some(self.sockets.add(socket));
    }

    /// Takes note of the bytes of the last frame that smoltcp has accepted.
    fn accept(&mut self, now: Instant) {
        let mut flows = self.device.link().flows.borrow_mut();
        let Some(seen) = flows.seen.take() else {
            return;
        };
        let remote = IpEndpoint::new(IpAddress::Ipv4(seen.remote.0.into()), seen.remote.1);
        let taken = self.listener.take_if(|handle| {
            self.sockets.get::<Socket<'_>>(*handle).remote_endpoint() == Some(remote)
        });
        if let Some(handle) = taken {
            // The one before from the same port was reset.
            if let Some(old) = flows.id_of(seen.remote) {
                let_go(&mut flows, &mut self.sockets, &mut self.gone, old);
            }
            flows.put(Flow::new(handle, &seen, now), self.random.hash_one(handle));
        }
        let remote = seen.remote;
        if let (Some(flow), copies) = flows.of_remote(remote) {
            let socket = self.sockets.get::<Socket<'_>>(flow.handle);
            flow.accept(seen, socket.recv_queue(), copies);
            // Reset before it was there: its socket would take the next host's connection.
            if socket.state() == State::Listen
                && let Some(id) = flows.id_of(remote)
            {
                let_go(&mut flows, &mut self.sockets, &mut self.gone, id);
            }
        }
        drop(flows);
        self.listen();
    }

    /// Lets go of connections that have ended.
    fn sweep(&mut self, now: Instant) {
        let mut flows = self.device.link().flows.borrow_mut();
        let is_crowded = flows.len() * 2 > self.options.connections;
        let mut gone = Vec::new();
        for (id, flow) in flows.all_mut() {
            let socket = self.sockets.get_mut::<Socket<'_>>(flow.handle);
            if flow.closed.is_some_and(|at| at > now) && flow.acknowledge(socket) > 0 {
                // The host takes the bytes before the end: it gets more time.
                flow.closed = Some(now + PATIENCE);
            }
            // The program does not read from a connection that it has closed.
            let is_unread = flow.closed.is_some() && socket.recv_queue() > 0;
            let deadline = flow.deadline();
            if is_unread || deadline.is_some_and(|deadline| now >= deadline) {
                socket.abort();
            }
            let is_late = |deadline| now >= deadline + PATIENCE;
            let is_over = match socket.state() {
                // The reset is sent, or the host cannot be found.
                State::Closed => {
                    socket.remote_endpoint().is_none() || deadline.is_some_and(is_late)
                }
                State::Listen => true,
                State::TimeWait => is_crowded,
                State::SynReceived => is_crowded && flow.begun + HANDSHAKE <= now,
                _ => false,
            };
            if is_over {
                gone.push(id);
            }
        }
        for id in gone {
            let_go(&mut flows, &mut self.sockets, &mut self.gone, id);
        }
        drop(flows);
        self.listen();
    }
}

/// Lets a connection go. Its end is news for a program that was told of it, and has not closed it.
fn let_go(flows: &mut Flows, sockets: &mut SocketSet<'_>, gone: &mut Vec<Id>, id: Id) {
    if let Some(flow) = flows.remove(id) {
        sockets.remove(flow.handle);
        if flow.opened && flow.closed.is_none() {
            gone.push(id);
        }
    }
}
