//! Four processes in a row, over two kinds of address: shared memory, the network, shared memory again, with a manager
//! on either side. Messages arrive; then the process beyond the network is killed in the middle of it.

use crate::kit::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tranship_core::{Body, ChannelOptions, Domain, ErrorKind, Receiver, Sender, Trust};
use tranship_testkit::{Control, Peer, child};
use tranship_transport::net::{Net, Timing};

const BYTES: usize = 40_000;
const LEVELS: [Trust; 4] = [Trust::None, Trust::Producer, Trust::Half, Trust::Full];

/// Returns a backend that is soon sure that a peer is gone.
fn soon() -> Net {
    let timing = Timing {
        grace: Duration::from_millis(500),
        ..timing()
    };
    Net::plain(timing).expect("net")
}

fn join(manager: &PathBuf, net: &Net) -> Domain {
    let domain = Domain::builder().helper_thread(true).socket(manager);
    let domain = domain.connect().expect("connect");
    add(&domain, "tcp+plain", Arc::new(net.clone()));
    domain
}

/// Returns a receiver that has room for the messages that it must copy.
fn receiver(domain: &Domain, address: &str) -> Receiver {
    let copies = pool(domain, 4 << 20);
    let options = ChannelOptions::new().lines(8).snapshots(copies.id());
    domain
        .open_with::<Receiver>(address, options)
        .expect("open")
}

/// Hands on until one side is gone: says which end it was, and how it ended, in words.
fn forward(ctl: &Control, mut up: Receiver, mut down: Sender) {
    let (side, end) = loop {
        let message = match up.recv() {
            Ok(message) => message,
            Err(end) => break ("up", end),
        };
        let (word, sent) = (message.word, message.body);
        let sent = match sent {
            Body::Buffer(buf) => down.send((buf, word)).map_err(|failed| failed.error),
            Body::BufferMut(buf) => down.send((buf, word)).map_err(|failed| failed.error),
            other => panic!("{other:?}"),
        };
        if let Err(error) = sent {
            break ("down", error);
        }
    };
    match end.kind() {
        ErrorKind::PeerGone => drop(down),
        _ => down.abandon(),
    }
    drop(up);
    let said = (side, end.kind().number(), end.to_string());
    ctl.send(&said).expect("control");
    let _ = ctl.recv::<()>();
}

// The one before the network.
child!(
    fn near(ctl: Control) {
        let manager: PathBuf = ctl.recv().expect("control").expect("start");
        let net = soon();
        let own = join(&manager, &net);
        let at = net.open("127.0.0.1:0".parse().expect("address"));
        let address = format!("tcp+plain:{}/hops", at.expect("a port"));
        let listener = own.listen_with::<Sender>(&address, ChannelOptions::new().lines(8));
        let listener = listener.expect("listen");
        ctl.send(&address).expect("control");
        let down = listener.accept().expect("accept");
        forward(&ctl, receiver(&own, "shm:first"), down);
    }
);

// The one beyond it.
child!(
    fn far(ctl: Control) {
        let (manager, address): (PathBuf, String) = ctl.recv().expect("control").expect("start");
        let own = join(&manager, &soon());
        let up = receiver(&own, &address);
        let down = own.open::<Sender>("shm:last").expect("open");
        forward(&ctl, up, down);
    }
);

// The last one: looks at each, keeps the last eight, says when it has so many, and how it ended.
child!(
    fn last(ctl: Control) {
        let (manager, many): (PathBuf, u64) = ctl.recv().expect("control").expect("start");
        let own = join(&manager, &soon());
        let listener = own.listen::<Receiver>("shm:last").expect("listen");
        ctl.send(&()).expect("control");
        let mut from = listener.accept().expect("accept");
        let mut kept = std::collections::VecDeque::new();
        let end = loop {
            let message = match from.recv() {
                Ok(message) => message,
                Err(end) => break end,
            };
            let number = message.word;
            assert!(message.to_vec() == pattern(number, BYTES), "{number}");
            kept.push_back(message);
            assert_eq!(number, kept[0].word + kept.len() as u64 - 1, "in order");
            if kept.len() > 8 {
                kept.pop_front();
            }
            if number + 1 == many {
                ctl.send(&number).expect("control");
            }
        };
        // Messages that were here stay readable.
        for message in &kept {
            assert!(message.to_vec() == pattern(message.word, BYTES));
        }
        let next = kept.back().map_or(0, |message| message.word + 1);
        let said = (next, end.kind().number(), end.to_string());
        ctl.send(&said).expect("control");
        let _ = ctl.recv::<()>();
    }
);

struct Row {
    near: Peer,
    far: Peer,
    last: Peer,
    to: Sender,
    here: Domain,
    _there: Domain,
}

fn row(many: u64) -> Row {
    let managers = [(); 2].map(|()| {
        let domain = Domain::builder().helper_thread(true).embedded();
        domain.expect("embedded")
    });
    let paths = [0, 1].map(|n: usize| managers[n].socket_path().expect("socket").to_owned());
    let (near, far, last) = (
        near().start().expect("start"),
        far().start().expect("start"),
        last().start().expect("start"),
    );
    last.ask::<()>(&(&paths[1], many));
    let [here, there] = managers;
    let options = ChannelOptions::new().lines(8);
    let listener = here.listen_with::<Sender>("shm:first", options);
    let listener = listener.expect("listen");
    let address: String = near.ask(&paths[0]);
    far.send(&(&paths[1], &address)).expect("send");
    let to = listener.accept().expect("accept");
    Row {
        near,
        far,
        last,
        to,
        here,
        _there: there,
    }
}

/// Report of a hop at its end: its side, the kind of the error, the words.
type Said = (String, u16, String);

#[test]
fn what_is_sent_goes_over_three_hops() {
    const MESSAGES: u64 = 200;
    let _dog = dog();
    let mut row = row(MESSAGES);
    let pools = LEVELS.map(|trust| pool_of(&row.here, 4 << 20, trust));
    let mut random = tranship_testkit::Random::printed("hops");
    for number in 0..MESSAGES {
        let pool = &pools[usize::try_from(random.below(4)).expect("small")];
        let mut buf = pool.alloc(BYTES).expect("alloc");
        buf.write(0, &pattern(number, BYTES)).expect("inside");
        match random.one_in(2) {
            true => row.to.send((buf.freeze(), number)).expect("send"),
            false => row.to.send((buf, number)).expect("move"),
        };
    }
    assert_eq!(row.last.expect::<u64>(), MESSAGES - 1);
    drop(row.to);
    // An end in order goes through, too.
    for hop in [&row.near, &row.far] {
        let (side, kind, words): Said = hop.expect();
        assert_eq!(
            (&*side, kind),
            ("up", ErrorKind::PeerGone.number()),
            "{words}"
        );
    }
    let (next, kind, words): (u64, u16, String) = row.last.expect();
    assert_eq!(
        (next, kind),
        (MESSAGES, ErrorKind::PeerGone.number()),
        "{words}"
    );
    for pool in pools {
        let most = usize::try_from(pool.max_bytes()).expect("small");
        drop(pool.alloc(most).expect("all of it"));
    }
}

/// The domain beyond the network is killed while messages are everywhere. The programs left on either side learn it,
/// with words. The last one gets no orderly end, and the owner has its memory again.
#[test]
fn a_hop_that_is_killed_is_learned_on_both_sides() {
    let _dog = dog();
    let mut row = row(20);
    let pool = pool(&row.here, 4 << 20);
    let mut killed = false;
    let mut number = 0;
    let error = loop {
        if !killed && row.last.control().is_ready() {
            assert_eq!(row.last.expect::<u64>(), 19);
            row.far.kill();
            killed = true;
        }
        let sent = match pool.alloc_timeout(BYTES, Duration::from_millis(20)) {
            Ok(mut buf) => {
                buf.write(0, &pattern(number, BYTES)).expect("inside");
                let sent = row.to.send((buf.freeze(), number));
                sent.map_err(|failed| failed.error)
            }
            Err(_) if row.to.status().peer_gone => row.to.send(b"").map_err(|failed| failed.error),
            Err(_) => continue,
        };
        match sent {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
    let (side, kind, words): Said = row.near.expect();
    assert_eq!(
        (&*side, kind),
        ("down", ErrorKind::PeerGone.number()),
        "{words}"
    );
    assert!(
        words.contains("messages may not have reached it"),
        "{words}"
    );
    let (next, kind, words): (u64, u16, String) = row.last.expect();
    assert_eq!(kind, ErrorKind::PeerDied.number(), "{words}");
    assert!((20..=number).contains(&next), "{next} of {number}");
    drop(row.to);
    let most = usize::try_from(pool.max_bytes()).expect("small");
    drop(pool.alloc(most).expect("all of it"));
}
