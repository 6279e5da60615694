//! Connections over a wire that loses, repeats and reorders frames; the other host is smoltcp alone.

mod sockets;

use super::*;
use crate::tap::VNET_HEADER;
use crate::wire::{self, ETHERNET};
use proptest::prelude::*;
use smoltcp::socket::tcp::Socket;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a wire.
struct End {
    come: Queue,
    gone: Queue,
    offload: Offload,
}

impl Link for End {
    fn receive(&self, mbufs: &Mbufs, _: ClusterSize, _: usize) -> io::Result<Option<Chain>> {
        let Some(mut frame) = self.come.borrow_mut().pop_front() else {
            return Ok(None);
        };
        if self.offload == Offload::Segments {
            frame.splice(..0, [0; VNET_HEADER]);
        }
        Ok(mbufs.devget(&frame, 0).ok())
    }

    fn send(&self, frame: &Chain, vnet: &[u8; VNET_HEADER]) -> io::Result<bool> {
        let mut frame = frame.to_vec().expect("no piece of a file");
        let place = |at: usize| usize::from(u16::from_ne_bytes([vnet[at], vnet[at + 1]]));
        if vnet[0] == crate::link::NEEDS_CHECKSUM {
            let (start, at) = (place(6), place(6) + place(8));
            let end = ETHERNET + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let whole = wire::finish(wire::sum(&frame[start..end]));
            frame[at..at + 2].copy_from_slice(&whole.to_be_bytes());
        }
        self.gone.borrow_mut().push_back(frame);
        Ok(true)
    }

    fn offload(&self) -> Offload {
        self.offload
    }
}

const SERVER: Address = Address {
    ethernet: [2, 0, 0, 0, 0, 1],
    ip: [10, 0, 0, 1],
};
const CLIENT: Address = Address {
    ethernet: [2, 0, 0, 0, 0, 2],
    ip: [10, 0, 0, 2],
};

/// Both hosts and their wire, with a clock of its own.
struct World {
    tcp: Tcp<End>,
    mbufs: Mbufs,
    device: MbufDevice<End>,
    interface: Interface,
    sockets: SocketSet<'static>,
    to_server: [Queue; 2],
    to_client: [Queue; 2],
    now: Instant,
    random: u64,
    /// Of 16 frames so many are lost, repeated, or come late.
    weather: usize,
    /// The server's program often takes few news, or none.
    is_busy: bool,
}

impl World {
    fn new(random: u64, weather: usize, connections: usize) -> World {
        let mbufs = Mbufs::new().expect("mbufs");
        let queues = || [Queue::default(), Queue::default()];
        let (to_server, to_client) = (queues(), queues());
        let server = End {
            come: to_server[1].clone(),
            gone: to_client[0].clone(),
            offload: Offload::Segments,
        };
        let client = End {
            come: to_client[1].clone(),
            gone: to_server[0].clone(),
            offload: Offload::None,
        };
        let options = Options {
            address: SERVER,
            prefix: 24,
            gateway: None,
            port: 80,
            mtu: 1500,
            connections,
        };
        let mut device = MbufDevice::new(client, mbufs.clone(), 1500, ClusterSize::Std);
        let address = "10.0.0.2/24".parse().expect("an address");
        let interface = interface(&mut device, CLIENT.ethernet, address, random);
        World {
            tcp: Tcp::new(server, mbufs.clone(), options),
            mbufs,
            device,
            interface,
            sockets: SocketSet::new(Vec::new()),
            to_server,
            to_client,
            now: Instant::from_millis(1),
            random: random | 1,
            weather,
            is_busy: false,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 20).unwrap_or(0) % below
    }

    fn connect(&mut self, port: u16) -> SocketHandle {
        self.connect_to(1, port)
    }

    fn connect_to(&mut self, host: u8, port: u16) -> SocketHandle {
        let mut socket = tcp_socket(64 << 10, 64 << 10);
        let to = (IpAddress::v4(10, 0, 0, host), 80);
        socket
            .connect(self.interface.context(), to, port)
            .expect("a new socket");
        self.sockets.add(socket)
    }

    /// Takes the wire's frames to the other end.
    fn carry(&mut self) {
        for way in 0..2 {
            let way = if way == 0 {
                &self.to_server
            } else {
                &self.to_client
            };
            let (from, to) = (way[0].clone(), way[1].clone());
            while let Some(frame) = from.borrow_mut().pop_front() {
                let mut to = to.borrow_mut();
                if self.random(16) >= self.weather {
                    to.push_back(frame);
                    continue;
                }
                match self.random(3) {
                    0 => {}
                    1 => to.extend([frame.clone(), frame]),
                    _ => to.push_front(frame),
                }
            }
        }
    }

    fn poll_client(&mut self) {
        let _ = self
            .interface
            .poll(self.now, &mut self.device, &mut self.sockets);
    }

    /// Lets both hosts work once, and returns the server's news.
    fn turn(&mut self) -> Vec<Event> {
        self.poll_client();
        self.carry();
        self.tcp.receive(self.now);
        let most = match self.is_busy {
            true => self.random(5),
            false => 64,
        };
        let news = self.tcp.news(most);
        assert!(news.len() <= most, "{} news, not {most}", news.len());
        self.tcp.send_frames(self.now);
        self.carry();
        let mut queues = self.to_server.iter().chain(&self.to_client);
        let delays = [
            self.interface.poll_delay(self.now, &self.sockets),
            self.tcp.delay(self.now),
        ];
        // Where nothing is under way the next timer is waited for.
        let wait = match queues.all(|queue| queue.borrow().is_empty()) {
            true => delays.into_iter().flatten().min().unwrap_or_default(),
            false => Duration::ZERO,
        };
        // A program that is only busy takes the next news before a connection is cut.
        let most = Duration::from_millis(if self.is_busy { 100 } else { u64::MAX / 1000 });
        self.now += wait.clamp(Duration::from_millis(1), most);
        news
    }

    fn client(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }
}

/// The byte at a place of a connection's stream.
fn byte(port: u16, way: u64, at: usize) -> u8 {
    let mixed = (at as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(port) * 3 + way);
    mixed.to_le_bytes()[5]
}

fn stream(port: u16, way: u64, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| byte(port, way, at)).collect()
}

/// A connection as its client and its server see it.
#[derive(Default, Debug)]
struct Streams {
    handle: SocketHandle,
    port: u16,
    id: Option<Id>,
    room: usize,
    asked: usize,
    read: usize,
    answered: usize,
    heard: usize,
    ended: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 16, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn streams_come_whole_over_any_wire(
        seed in any::<u64>(),
        weather in 0..5_usize,
        is_busy in any::<bool>(),
        lengths in prop::collection::vec((0..200_000_usize, 0..400_000_usize), 1..4),
    ) {
        let mut world = World::new(seed, weather, 16);
        world.is_busy = is_busy;
        let mut all: Vec<Streams> = (0_u16..)
            .zip(&lengths)
            .map(|(number, _)| Streams {
                handle: world.connect(5000 + number),
                port: 5000 + number,
                ..Streams::default()
            })
            .collect();
        let mut turns = 0;
        // smoltcp 0.14 does not repeat an end that is lost if all bytes before it came: then it is not waited for.
        while all.iter().zip(&lengths).any(|(one, (ask, answer))| {
            one.read < *ask || one.heard < *answer || !(one.ended || weather > 0)
        }) {
            turns += 1;
            prop_assert!(turns < 100_000, "it stands still: {:?}", all);
            for event in world.turn() {
                match event {
                    Event::Opened(id, room) => {
                        // The client's port is that of the connection that has no id yet, by its first bytes.
                        let known = world.tcp.remote(id).expect("it is there");
                        let one = all.iter_mut().find(|one| one.port == known.1);
                        let one = one.expect("one of the client's");
                        (one.id, one.room) = (Some(id), room);
                    }
                    Event::Data(id, bytes) => {
                        let one = all.iter_mut().find(|one| one.id == Some(id)).expect("open");
                        let len = bytes.len();
                        prop_assert_eq!(
                            bytes.to_vec().expect("bytes"),
                            stream(one.port, 0, one.read, len)
                        );
                        one.read += len;
                        world.tcp.taken(id, len);
                    }
                    Event::Acknowledged(id, more) => {
                        let one = all.iter_mut().find(|one| one.id == Some(id)).expect("open");
                        one.room += more;
                    }
                    Event::Ended(id) => {
                        let one = all.iter_mut().find(|one| one.id == Some(id)).expect("open");
                        prop_assert!(!one.ended, "ended twice");
                        one.ended = true;
                    }
                    Event::Closed(id) => prop_assert!(false, "{:?} was cut", id),
                }
            }
            for (one, (ask, answer)) in all.iter_mut().zip(&lengths) {
                let Some(id) = one.id else { continue };
                let some = world.random(9000).min(one.room).min(answer - one.answered);
                if some > 0 {
                    let mut bytes = world.mbufs.mini().expect("an mbuf");
                    bytes
                        .attach(stream(one.port, 1, one.answered, some))
                        .expect("a vector");
                    world.tcp.send(id, bytes);
                    one.answered += some;
                    one.room -= some;
                }
                let (port, asked, heard) = (one.port, one.asked, one.heard);
                let some = world.random(5000).min(ask - asked);
                let socket = world.client(one.handle);
                if some > 0 && let Ok(sent) = socket.send_slice(&stream(port, 0, asked, some)) {
                    one.asked += sent;
                } else if one.asked == *ask && socket.may_send() {
                    socket.close();
                }
                let mut got = vec![0; 30_000];
                if let Ok(len @ 1..) = socket.recv_slice(&mut got) {
                    prop_assert!(got[..len] == stream(port, 1, heard, len), "at {}", heard);
                    one.heard += len;
                }
            }
        }
        let copies = world.tcp.copies();
        let asked: usize = lengths.iter().map(|(ask, _)| ask).sum();
        prop_assert_eq!(copies.received + copies.disordered, asked as u64);
        if weather == 0 {
            let answered: usize = lengths.iter().map(|(_, answer)| answer).sum();
            prop_assert_eq!((copies.disordered, copies.sent), (0, answered as u64));
        }
        // Both sides have ended: the connections go, and their memory with them.
        for one in &all {
            world.tcp.close(one.id.expect("open"), world.now);
        }
        while world.tcp.connections() > 0 {
            turns += 1;
            prop_assert!(turns < 100_000, "a connection stays");
            world.now += Duration::from_millis(100);
            world.turn();
        }
    }
}

/// Makes an open connection.
fn open(world: &mut World) -> (SocketHandle, Id) {
    let handle = world.connect(5000);
    (handle, opened(world))
}

/// Returns the next connection that is open.
fn opened(world: &mut World) -> Id {
    for _ in 0..1000 {
        for event in world.turn() {
            if let Event::Opened(id, _) = event {
                return id;
            }
        }
    }
    panic!("no connection opens");
}

/// Lets a host begin a connection, and vanish.
fn half_open(world: &mut World, port: u16) {
    let before = world.tcp.connections();
    let handle = world.connect(port);
    while world.tcp.connections() == before {
        world.turn();
    }
    world.sockets.remove(handle);
    world.to_client[1].borrow_mut().clear();
}

#[test]
fn a_program_that_takes_nothing_closes_the_window() {
    let mut world = World::new(1, 0, 4);
    let (handle, id) = open(&mut world);
    let (mut sent, mut got) = (0, 0);
    // More than both buffers hold: the rest stays with the client.
    for _ in 0..2000 {
        sent += world.client(handle).send_slice(&[7; 4000]).unwrap_or(0);
        for event in world.turn() {
            let Event::Data(_, bytes) = event else {
                continue;
            };
            got += bytes.len();
        }
    }
    assert!((RECEIVE..RECEIVE + 2000).contains(&got), "{got} bytes");
    assert!(sent <= got + RECEIVE + (64 << 10), "{sent} bytes");
    world.tcp.taken(id, got);
    let more = (0..2000)
        .flat_map(|_| world.turn())
        .filter(|event| matches!(event, Event::Data(..)));
    assert!(more.count() > 0, "it goes on");
}

#[test]
fn a_reset_ends_a_connection_and_what_was_sent_is_free() {
    let mut world = World::new(1, 0, 4);
    let (handle, id) = open(&mut world);
    let owner = std::sync::Arc::new([1_u8; 1000]);
    struct Shared(std::sync::Arc<[u8; 1000]>);
    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            &self.0[..]
        }
    }
    let mut bytes = world.mbufs.mini().expect("an mbuf");
    assert!(bytes.attach(Shared(owner.clone())).is_ok());
    world.tcp.send(id, bytes);
    world.client(handle).abort();
    let mut closed = 0;
    while world.tcp.connections() > 0 {
        let news = world.turn();
        closed += news
            .iter()
            .filter(|event| matches!(event, Event::Closed(_)))
            .count();
    }
    closed += world.turn().len();
    assert_eq!((closed, std::sync::Arc::strong_count(&owner)), (1, 1));
    // Calls for it have no effect.
    world.tcp.taken(id, 1);
    world.tcp.finish(id);
}

#[test]
fn a_program_that_sends_more_than_it_may_loses_the_connection() {
    let mut world = World::new(1, 0, 4);
    let (handle, id) = open(&mut world);
    for len in [SEND, 1] {
        let mut bytes = world.mbufs.mini().expect("an mbuf");
        assert!(bytes.attach(vec![1; len]).is_ok());
        world.tcp.send(id, bytes);
    }
    let mut closed = 0;
    while world.client(handle).is_open() || world.tcp.connections() > 0 {
        closed += world.turn().len();
    }
    closed += world.turn().len();
    assert_eq!(closed, 1);
}

#[test]
fn connections_are_cut_with_the_program_that_knew_them() {
    let mut world = World::new(1, 0, 4);
    let (handle, id) = open(&mut world);
    world.tcp.reset(world.now);
    world.tcp.reset(world.now);
    assert!(world.tcp.news(0).is_empty());
    let news = world.turn();
    assert!(matches!(news[..], [Event::Closed(closed)] if closed == id));
    while world.client(handle).is_open() {
        assert!(world.turn().is_empty());
    }
    assert_eq!(world.tcp.connections(), 0);
}

#[test]
fn a_connection_that_is_cut_has_no_more_data() {
    let mut world = World::new(1, 0, 4);
    let (handle, id) = open(&mut world);
    assert_eq!(world.client(handle).send_slice(&[7; 1000]), Ok(1000));
    world.poll_client();
    world.carry();
    world.tcp.receive(world.now);
    world.tcp.cut(id);
    let mut news = Vec::new();
    while world.tcp.connections() > 0 {
        news.extend(world.turn());
    }
    news.extend(world.turn());
    assert!(matches!(news[..], [Event::Closed(_)]), "{news:?}");
}

#[test]
fn a_connection_to_all_hosts_does_not_end_the_service() {
    let mut world = World::new(1, 0, 4);
    open(&mut world);
    // The frames of both come together.
    world.connect_to(255, 4000);
    world.connect(5001);
    opened(&mut world);
    world.connect(5002);
    opened(&mut world);
}

#[test]
fn a_listener_whose_connection_was_not_seen_is_replaced() {
    let mut world = World::new(1, 0, 4);
    world.connect(4000);
    for _ in 0..4 {
        world.poll_client();
        world.carry();
        let tcp = &mut world.tcp;
        while !matches!(
            tcp.interface
                .poll_ingress_single(world.now, &mut tcp.device, &mut tcp.sockets),
            PollIngressSingleResult::None
        ) {
            tcp.device.link().flows.borrow_mut().seen = None;
        }
        tcp.send_frames(world.now);
        world.carry();
    }
    assert_eq!(world.tcp.connections(), 0);
    open(&mut world);
}

#[test]
fn a_host_that_has_vanished_costs_no_time() {
    let mut world = World::new(1, 0, 4);
    half_open(&mut world, 5000);
    let (mut turns, begun) = (0, world.now);
    while let Some(delay) = world.tcp.delay(world.now) {
        turns += 1;
        assert!(turns < 1000, "it spins at {}", world.now);
        world.now += delay;
        world.tcp.receive(world.now);
        world.tcp.send_frames(world.now);
        world.to_client[0].borrow_mut().clear();
    }
    // The reset could not be sent.
    assert!(world.now > begun + PATIENCE);
    assert_eq!(world.tcp.connections(), 0);
}

#[test]
fn hosts_that_have_vanished_keep_no_place_for_long() {
    let mut world = World::new(1, 0, 2);
    half_open(&mut world, 5001);
    half_open(&mut world, 5002);
    world.now += HANDSHAKE;
    world.tcp.receive(world.now);
    open(&mut world);
}

#[test]
fn a_slow_host_gets_all_that_was_sent_before_the_end() {
    let mut world = World::new(1, 0, 4);
    let (handle, id) = open(&mut world);
    let all: usize = 100_000;
    let owner = std::sync::Arc::new([1_u8; 100_000]);
    struct Shared(std::sync::Arc<[u8; 100_000]>);
    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            &self.0[..]
        }
    }
    let mut bytes = world.mbufs.mini().expect("an mbuf");
    assert!(bytes.attach(Shared(owner.clone())).is_ok());
    world.tcp.send(id, bytes);
    world.tcp.close(id, world.now);
    let (mut heard, mut is_free) = (0, false);
    for _ in 0..1000 {
        for _ in 0..8 {
            world.poll_client();
            world.carry();
            world.tcp.receive(world.now);
            world.tcp.send_frames(world.now);
            world.carry();
            world.now += ACK;
        }
        heard += world.client(handle).recv_slice(&mut [0; 400]).unwrap_or(0);
        world.now += Duration::from_secs(1);
        // Bytes that are acknowledged are free before the connection is over.
        is_free |= world.tcp.connections() == 1 && std::sync::Arc::strong_count(&owner) == 1;
    }
    assert_eq!((heard, is_free), (all, true));
}

#[test]
fn the_socket_of_a_connection_that_was_reset_takes_no_other() {
    let mut world = World::new(1, 0, 4);
    let first = world.connect(5000);
    while world.tcp.connections() == 0 {
        world.turn();
    }
    // The client's answer, a reset, comes together with the beginning of the next connection.
    world.sockets.remove(first);
    world.connect(5001);
    let id = opened(&mut world);
    assert_eq!(world.tcp.remote(id), Some((CLIENT.ip, 5001)));
    assert_eq!(world.tcp.connections(), 1);
}

#[test]
fn the_end_of_a_connection_is_told_though_its_port_comes_again() {
    let mut world = World::new(1, 0, 4);
    let (handle, id) = open(&mut world);
    world.client(handle).abort();
    world.poll_client();
    world.sockets.remove(handle);
    world.connect(5000);
    let mut news = Vec::new();
    while !news.iter().any(|event| matches!(event, Event::Opened(..))) {
        news.extend(world.turn());
    }
    assert!(
        matches!(news[..], [Event::Closed(old), Event::Opened(new, _)] if old == id && new != id)
    );
}

#[test]
fn more_connections_than_allowed_are_refused() {
    let mut world = World::new(1, 0, 2);
    let handles: Vec<_> = (0..3).map(|number| world.connect(5000 + number)).collect();
    let mut opened = HashMap::new();
    while world.client(handles[2]).is_open() {
        for event in world.turn() {
            let Event::Opened(id, _) = event else {
                continue;
            };
            opened.insert(id, ());
        }
    }
    assert_eq!(opened.len(), 2);
}
