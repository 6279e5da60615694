//! Connections over a wire that loses, repeats and reorders frames; the other host is smoltcp alone.

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
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 20).unwrap_or(0) % below
    }

    fn connect(&mut self, port: u16) -> SocketHandle {
        let mut socket = tcp_socket(64 << 10, 64 << 10);
        let to = (IpAddress::v4(10, 0, 0, 1), 80);
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

    /// Lets both hosts work once, and returns the server's news.
    fn turn(&mut self) -> Vec<Event> {
        let _ = self
            .interface
            .poll(self.now, &mut self.device, &mut self.sockets);
        self.carry();
        self.tcp.receive(self.now);
        let news = self.tcp.news(64);
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
        self.now += wait.max(Duration::from_millis(1));
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
        lengths in prop::collection::vec((0..200_000_usize, 0..400_000_usize), 1..4),
    ) {
        let mut world = World::new(seed, weather, 16);
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
    loop {
        if let Some(Event::Opened(id, _)) = world.turn().pop() {
            return (handle, id);
        }
    }
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
    let (handle, _) = open(&mut world);
    world.tcp.reset(world.now);
    while world.client(handle).is_open() {
        assert!(world.turn().is_empty());
    }
    assert_eq!(world.tcp.connections(), 0);
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
