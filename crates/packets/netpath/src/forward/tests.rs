//! The forwarder between two queues.

use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use tranship_mbuf::ClusterSize;

/// A link whose frames come from a list and go into another.
#[derive(Default, Debug)]
struct Queue {
    come: RefCell<VecDeque<Vec<u8>>>,
    gone: RefCell<Vec<Vec<u8>>>,
}

impl Link for Queue {
    fn receive(&self, mbufs: &Mbufs, _: ClusterSize, _: usize) -> io::Result<Option<Chain>> {
        let frame = self.come.borrow_mut().pop_front();
        Ok(frame.map(|frame| mbufs.devget(&frame, 0).expect("mbufs")))
    }

    fn send(&self, frame: &Chain, _: &[u8; VNET_HEADER]) -> io::Result<bool> {
        let frame = frame.to_vec().expect("no piece of a file");
        self.gone.borrow_mut().push(frame);
        Ok(true)
    }

    fn offload(&self) -> Offload {
        Offload::None
    }
}

const LEFT: Address = Address {
    ethernet: [2, 0, 0, 0, 0, 1],
    ip: [10, 1, 0, 1],
};
const RIGHT: Address = Address {
    ethernet: [2, 0, 0, 0, 0, 2],
    ip: [10, 2, 0, 1],
};
const CLIENT: Address = Address {
    ethernet: [2, 0, 0, 0, 1, 1],
    ip: [10, 1, 0, 2],
};
const SERVER: Address = Address {
    ethernet: [2, 0, 0, 0, 1, 2],
    ip: [10, 2, 0, 2],
};

fn forwarder(mtu: [usize; 2], mirror: bool) -> Forwarder<Queue> {
    let ports = [
        Port::new(Queue::default(), LEFT, CLIENT.ip, mtu[0]),
        Port::new(Queue::default(), RIGHT, SERVER.ip, mtu[1]),
    ];
    let mut forwarder = Forwarder::new(Mbufs::new().expect("mbufs"), ports, mirror);
    // The forwarder learns the server's place from an answer.
    let answer = Arp {
        question: false,
        sender: (SERVER.ethernet, SERVER.ip),
        target: (RIGHT.ethernet, RIGHT.ip),
    };
    give(
        &forwarder,
        1,
        frame(SERVER.ethernet, wire::TYPE_ARP, &answer.bytes()),
    );
    run(&mut forwarder);
    forwarder
}

fn give(forwarder: &Forwarder<Queue>, port: usize, frame: Vec<u8>) {
    forwarder.ports[port]
        .link()
        .come
        .borrow_mut()
        .push_back(frame);
}

fn run(forwarder: &mut Forwarder<Queue>) -> [Vec<Vec<u8>>; 2] {
    while forwarder.turn().expect("queues do not fail") {}
    [0, 1].map(|port| forwarder.ports[port].link().gone.take())
}

fn frame(source: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET];
    Ethernet {
        destination: LEFT.ethernet,
        source,
        kind,
    }
    .write(&mut frame);
    frame.extend_from_slice(payload);
    frame.resize(frame.len().max(60), 0); // as short frames are padded
    frame
}

/// Makes a UDP packet from the client to the left port.
fn packet(payload: &[u8], id: u16, may_fragment: bool) -> Vec<u8> {
    let mut packet = vec![0; IPV4 + 8];
    packet.extend_from_slice(payload);
    let total = packet.len();
    packet[0] = 0x45;
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6] = if may_fragment { 0 } else { 0x40 };
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&CLIENT.ip);
    packet[16..20].copy_from_slice(&LEFT.ip);
    wire::cut(&mut packet, IPV4, total, 0, false);
    let length = u16::try_from(total - IPV4).expect("short");
    packet[IPV4 + 4..IPV4 + 6].copy_from_slice(&length.to_be_bytes());
    let checksum = transport_checksum(&packet);
    packet[IPV4 + 6..IPV4 + 8].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn transport_checksum(packet: &[u8]) -> u16 {
    let length = u32::try_from(packet.len() - IPV4).expect("short");
    wire::finish(wire::sum(&packet[12..20]) + 17 + length + wire::sum(&packet[IPV4..]))
}

/// Returns the packets in frames that left the right port, after checks.
fn checked(frames: &[Vec<u8>]) -> Vec<(Ipv4, Vec<u8>)> {
    let check = |frame: &Vec<u8>| {
        let ethernet = Ethernet::read(frame).expect("a header");
        assert_eq!(
            (ethernet.destination, ethernet.source),
            (SERVER.ethernet, RIGHT.ethernet)
        );
        let ip = Ipv4::read(&frame[ETHERNET..]).expect("a header with a right checksum");
        assert_eq!(
            (ip.source, ip.destination, ip.ttl),
            (RIGHT.ip, SERVER.ip, 63)
        );
        assert_eq!(frame.len(), ETHERNET + ip.total);
        (ip, frame[ETHERNET + ip.header..].to_vec())
    };
    frames.iter().map(check).collect()
}

#[test]
fn a_packet_gets_new_addresses_and_keeps_its_bytes() {
    for mirror in [false, true] {
        let mut forwarder = forwarder([1500, 1500], mirror);
        let bytes: Vec<u8> = (0..=255).cycle().take(1400).collect();
        give(
            &forwarder,
            0,
            frame(CLIENT.ethernet, wire::TYPE_IPV4, &packet(&bytes, 1, false)),
        );
        give(
            &forwarder,
            0,
            frame(
                CLIENT.ethernet,
                wire::TYPE_IPV4,
                &packet(b"short", 2, false),
            ),
        );
        let [left, right] = run(&mut forwarder);
        assert!(left.is_empty());
        let all = checked(&right);
        assert_eq!(all[0].1[8..], bytes);
        assert_eq!(all[1].1[8..], *b"short", "the padding is gone");
        for frame in &right {
            assert_eq!(transport_checksum(&frame[ETHERNET..]), 0);
        }
        let done = forwarder.done();
        assert_eq!(done.packets, 2);
        // The short packet has no cluster to share: the mirror got a copy.
        assert_eq!(done.copied_on_write, u64::from(mirror));
        if let Some(mirror) = &forwarder.mirror {
            // The mirror shows the packets as they came.
            let seen = mirror[0].to_vec().expect("bytes");
            assert_eq!(seen[ETHERNET..], packet(&bytes, 1, false));
        }
    }
}

#[test]
fn what_may_not_be_cut_is_refused_and_its_sender_told() {
    let mut forwarder = forwarder([9000, 1500], false);
    let sent = packet(&[7; 4000], 3, false);
    give(
        &forwarder,
        0,
        frame(CLIENT.ethernet, wire::TYPE_IPV4, &sent),
    );
    let [left, right] = run(&mut forwarder);
    assert!(right.is_empty());
    let ip = Ipv4::read(&left[0][ETHERNET..]).expect("a header");
    assert_eq!(
        (ip.protocol, ip.source, ip.destination),
        (1, LEFT.ip, CLIENT.ip)
    );
    let icmp = &left[0][ETHERNET + ip.header..];
    assert_eq!((icmp[0], icmp[1]), (3, 4));
    assert_eq!(wire::finish(wire::sum(icmp)), 0);
    assert_eq!(u16::from_be_bytes([icmp[6], icmp[7]]), 1500);
    assert_eq!(
        icmp[8 + 12..8 + 20],
        sent[12..20],
        "the addresses that it was sent with"
    );
    assert_eq!(forwarder.done().too_long, 1);
}

#[test]
fn an_arp_question_is_answered() {
    let mut forwarder = forwarder([1500, 1500], false);
    let question = Arp {
        question: true,
        sender: (CLIENT.ethernet, CLIENT.ip),
        target: ([0; 6], LEFT.ip),
    };
    give(
        &forwarder,
        0,
        frame(CLIENT.ethernet, wire::TYPE_ARP, &question.bytes()),
    );
    let [left, _] = run(&mut forwarder);
    let answer = Arp::read(&left[0][ETHERNET..]).expect("an answer");
    assert_eq!(answer.sender, (LEFT.ethernet, LEFT.ip));
    assert_eq!(answer.target, (CLIENT.ethernet, CLIENT.ip));
}

/// The last fragment of a packet that never was, and others that do not fit together.
#[test]
fn bad_fragments_are_refused_with_what_came_before() {
    let whole = packet(&[1; 4000], 9, true);
    let ip = Ipv4::read(&whole).expect("good");
    let mbufs = Mbufs::new().expect("mbufs");
    let pieces = || {
        fragments::cut(
            mbufs
                .devget(&frame(CLIENT.ethernet, wire::TYPE_IPV4, &whole), 0)
                .expect("mbufs"),
            &ip,
            1500,
        )
        .expect("cut")
    };
    let mut fragments = Fragments::default();
    let mut add = |mut frame: Chain| {
        let ip = read_ip(&mut frame).expect("good");
        fragments.add(&ip, frame)
    };
    let [first, second, last]: [Chain; 3] = pieces().try_into().expect("three");
    assert!(matches!(add(first), Ok(None)));
    assert!(matches!(add(second), Ok(None)));
    let again = pieces().remove(1);
    assert!(matches!(add(again), Err(Trouble::Refused)), "overlaps");
    assert!(matches!(add(last), Ok(None)), "all before it is forgotten");
}

proptest! {
    /// Fragments that are cut for a smaller MTU, shuffled, and joined for a larger one by a second forwarder give the
    /// original bytes.
    #[test]
    fn fragments_become_the_packet_again(
        length in 0usize..20000,
        mtu in 100usize..1500,
        order in any::<u64>(),
        mirror in any::<bool>(),
    ) {
        let bytes: Vec<u8> = (0..251).cycle().take(length).collect();
        let whole = packet(&bytes, 77, true);
        let mut narrow = forwarder([65535, mtu], mirror);
        give(&narrow, 0, frame(CLIENT.ethernet, wire::TYPE_IPV4, &whole));
        let [_, mut pieces] = run(&mut narrow);
        let total: usize = checked(&pieces).iter().map(|(ip, payload)| {
            assert!(ip.total <= mtu);
            payload.len()
        }).sum();
        prop_assert_eq!(total, length + 8);

        let mut random = order;
        for at in (1..pieces.len()).rev() {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            pieces.swap(at, (random >> 33) as usize % (at + 1));
        }
        // The way back: packets of the first forwarder go to the left port of the second.
        let ports = [
            Port::new(Queue::default(), Address { ethernet: SERVER.ethernet, ip: SERVER.ip }, RIGHT.ip, mtu),
            Port::new(Queue::default(), RIGHT, SERVER.ip, 65535),
        ];
        let mut wide = Forwarder::new(Mbufs::new().expect("mbufs"), ports, mirror);
        let answer = Arp { question: false, sender: (SERVER.ethernet, SERVER.ip), target: (RIGHT.ethernet, RIGHT.ip) };
        give(&wide, 1, frame(SERVER.ethernet, wire::TYPE_ARP, &answer.bytes()));
        run(&mut wide);
        let count = pieces.len();
        pieces.into_iter().for_each(|piece| give(&wide, 0, piece));
        let [_, out] = run(&mut wide);
        prop_assert_eq!(out.len(), 1);
        let packet = &out[0][ETHERNET..];
        prop_assert_eq!(transport_checksum(packet), 0);
        prop_assert_eq!(&packet[IPV4 + 8..], &bytes[..]);
        prop_assert_eq!(wide.done().reassembled, u64::from(count > 1));
    }
}
