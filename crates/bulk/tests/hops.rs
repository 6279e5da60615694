//! Four processes in a row, over two kinds of carrier: shared memory, the network, shared memory again. Buffers go through
//! and come back without waiting for each other; then the one beyond the network is killed in the middle of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tranship_bulk::{
    Channel, ChannelState, Direction, Domain, EndOptions, Event, Kind, Relay, Trust,
};
use tranship_core::Domain as Manager;
use tranship_testkit::{Control, Peer, Watchdog, child};
use tranship_transport::Net;
use tranship_transport::net::Timing;

const BYTES: usize = 16 * 4096;
const BUFFERS: u32 = 8;
const LIMIT: Duration = Duration::from_millis(50);

fn options(trust: usize) -> EndOptions {
    EndOptions::new(Trust::ALL[trust]).meta_bytes(8)
}

fn pattern(round: u32) -> Vec<u8> {
    let word = round.wrapping_mul(0x9e37_79b9);
    (0..u32::try_from(BYTES / 4).expect("small"))
        .flat_map(|at| (word ^ at).to_le_bytes())
        .collect()
}

fn domain() -> (Domain, Net) {
    let timing = Timing {
        beat: Duration::from_millis(200),
        silence: Duration::from_secs(8),
        grace: Duration::from_secs(2),
        acquaintance: Duration::from_secs(30),
        linger: Duration::from_secs(30),
    };
    let own = Domain::new();
    let net = Net::plain(timing).expect("net");
    own.add_backend("net", Arc::new(net.clone()));
    (own, net)
}

fn connected(end: &Channel) {
    while end.state() != ChannelState::Connected {
        let _ = end.wait_event(LIMIT).expect("event");
    }
}

/// Hands on until one side is gone; says why, and how handing on ended.
fn forward(ctl: &Control, up: &Channel, down: &Channel) {
    let mut relay = Relay::new(up, down).expect("relay");
    let mut gone = None;
    let code = loop {
        let turned = relay.turn(|side, event| match event {
            Event::Gone(_) => gone = Some(side),
            Event::Bound(Ok(_)) => {}
            event => panic!("{side:?}: {event:?}"),
        });
        match turned {
            Err(code) => break Some(code),
            Ok(_) if gone.is_some() => break None,
            Ok(0) => drop(relay.wait(LIMIT)),
            Ok(_) => {}
        }
    };
    let lost = if down.state() == ChannelState::Closed {
        down
    } else {
        up
    };
    let code = code.map(|error| error.kind().number());
    ctl.send(&(lost.why(), code)).expect("control");
    drop(relay);
    // What it still had goes back meanwhile.
    while !ctl.is_ready() {
        let _ = up.wait_event(LIMIT);
    }
}

// The one before the network.
child!(
    fn near(ctl: Control) {
        let (first, trust): (String, usize) = ctl.recv().expect("control").expect("start");
        let (own, net) = domain();
        let (up, _) = own.bind(&first, options(trust)).expect("bind");
        let at = net.open("127.0.0.1:0".parse().expect("address"));
        let at = at.expect("a port");
        let down = own
            .create(&format!("net:{at}/hops"), Direction::Source, options(trust))
            .expect("create");
        ctl.send(&at).expect("control");
        connected(&up);
        connected(&down);
        ctl.send(&"ready").expect("control");
        forward(&ctl, &up, &down);
    }
);

// The one beyond it.
child!(
    fn far(ctl: Control) {
        let (at, last, trust): (SocketAddr, String, usize) =
            ctl.recv().expect("control").expect("start");
        let (own, _) = domain();
        let (up, _) = own
            .bind(&format!("net:{at}/hops"), options(trust))
            .expect("bind");
        let down = own.create(&last, Direction::Source, options(trust));
        let down = down.expect("create");
        ctl.send(&"listening").expect("control");
        connected(&up);
        connected(&down);
        ctl.send(&"ready").expect("control");
        forward(&ctl, &up, &down);
    }
);

// The last one: looks at each, and passes it back, or keeps it.
child!(
    fn last(ctl: Control) {
        let (address, trust, keeps): (String, usize, u32) =
            ctl.recv().expect("control").expect("start");
        let own = Domain::new();
        let (end, _) = own.bind(&address, options(trust)).expect("bind");
        connected(&end);
        ctl.send(&"ready").expect("control");
        let mut kept = Vec::new();
        loop {
            match end.wait_event(LIMIT).expect("event") {
                Some(Event::Moved(buffer, meta)) => {
                    let round = u32::from_le_bytes(meta[..].try_into().expect("a number"));
                    let bytes = buffer.view(|view| view.to_vec()).expect("view");
                    assert!(bytes == pattern(round), "round {round}");
                    match round < keeps {
                        true => drop(end.pass(buffer, &meta).expect("pass")),
                        false => {
                            kept.push(buffer);
                            ctl.send(&round).expect("control");
                        }
                    }
                }
                Some(Event::Gone(_)) => break,
                _ => {}
            }
        }
        // What was here stays readable.
        for buffer in &kept {
            assert_eq!(
                buffer.view(|view| view.to_vec()).expect("view").len(),
                BYTES
            );
        }
        ctl.send(&"gone").expect("control");
        let _ = ctl.recv::<()>();
    }
);

struct Row {
    near: Peer,
    far: Peer,
    last: Peer,
    _own: Domain,
    end: Channel,
    pool: tranship_bulk::Pool,
}

fn row(manager: &Manager, trust: usize, keeps: u32) -> Row {
    let path = manager.socket_path().expect("its socket").to_owned();
    let start = |launch: tranship_testkit::Launch| {
        launch.env("TRANSHIP_SOCKET", &path).start().expect("start")
    };
    let name = |n| format!("shm:hops-{}-{trust}-{keeps}-{n}", std::process::id());
    let own = Domain::over(manager).expect("a member");
    let end = own.create(&name(1), Direction::Source, options(trust));
    let end = end.expect("create");
    let (near, far, last) = (start(near()), start(far()), start(last()));
    near.send(&(name(1), trust)).expect("send");
    let at: SocketAddr = near.expect();
    far.send(&(at, name(2), trust)).expect("send");
    assert_eq!(far.expect::<String>(), "listening");
    last.send(&(name(2), trust, keeps)).expect("send");
    connected(&end);
    for peer in [&last, &far, &near] {
        assert_eq!(peer.expect::<String>(), "ready");
    }
    let pool = own.pool(BUFFERS, BYTES as u64, true).expect("pool");
    let asked = end.assign(pool.info().id).expect("assign");
    assert_eq!(end.block_on(asked), Ok(()));
    Row {
        near,
        far,
        last,
        _own: own,
        end,
        pool,
    }
}

impl Row {
    /// Sends one, if a buffer is here.
    fn send(&self, round: u32) -> bool {
        let Ok(mut buffer) = self.pool.alloc() else {
            return false;
        };
        buffer.write(0, &pattern(round)).expect("write");
        drop(self.end.move_(buffer, &round.to_le_bytes()).expect("move"));
        true
    }

    /// The next that comes back.
    fn back(&self) -> Option<u32> {
        match self.end.wait_event(LIMIT).expect("event") {
            Some(Event::Passed(_, meta)) => {
                Some(u32::from_le_bytes(meta[..].try_into().expect("a number")))
            }
            Some(Event::Gone(_)) => panic!("gone: {:?}", self.end.why()),
            _ => None,
        }
    }
}

#[test]
fn buffers_go_over_three_hops_and_back() {
    let _dog = Watchdog::new();
    let manager = Manager::embedded().expect("a manager");
    for trust in 0..Trust::ALL.len() {
        let row = row(&manager, trust, u32::MAX);
        let (mut sent, mut back, mut most) = (0, 0, 0);
        while back < 200 {
            while sent < 200 && row.send(sent) {
                sent += 1;
            }
            most = most.max(sent - back);
            if let Some(round) = row.back() {
                assert_eq!(round, back);
                back += 1;
            }
        }
        assert_eq!((most, row.pool.free()), (BUFFERS, BUFFERS as usize));
    }
}

/// The domain beyond the network is killed while the last one has buffers and others are on their way: who is left on
/// either side learns it, with words; nothing comes back twice; and the owner ends the pool, wherever its buffers are.
#[test]
fn a_hop_that_is_killed_is_learned_on_both_sides() {
    let _dog = Watchdog::new();
    let manager = Manager::embedded().expect("a manager");
    for trust in 0..Trust::ALL.len() {
        let row = row(&manager, trust, 20);
        let (mut sent, mut back) = (0, BTreeSet::new());
        // The first 20 come back, the next 4 stay with the last one.
        while back.len() < 20 {
            while sent < 24 && row.send(sent) {
                sent += 1;
            }
            back.extend(row.back());
        }
        while sent < 24 {
            assert!(row.send(sent));
            sent += 1;
        }
        for round in 20..24 {
            assert_eq!(row.last.expect::<u32>(), round);
        }
        assert_eq!(row.pool.free(), 4);
        row.far.stop();
        while row.send(sent) {
            sent += 1;
        }
        row.far.kill();
        let (why, code): (Option<String>, Option<u16>) = row.near.expect();
        let why = why.expect("words");
        assert!(
            why.contains("ended") || why.contains("no connection") || why.contains("closed"),
            "{why}"
        );
        assert!(
            code.is_none_or(|code| code == Kind::ChannelState as u16),
            "{code:?}"
        );
        assert_eq!(row.last.expect::<String>(), "gone");
        // The near one ends its program.
        row.near.send(&()).expect("send");
        let gone = loop {
            match row.end.wait_event(LIMIT).expect("event") {
                Some(Event::Passed(_, meta)) => {
                    let round = u32::from_le_bytes(meta[..].try_into().expect("a number"));
                    assert!(back.insert(round), "{round} twice");
                }
                Some(Event::Gone(count)) => break count,
                // It was quick enough to say that it has nothing left itself.
                Some(Event::Closed) => break 0,
                Some(Event::TeardownBegun) | None => {}
                other => panic!("{other:?}"),
            }
        };
        println!(
            "{trust}: {} free of {BUFFERS}, {gone} came back by the end",
            row.pool.free()
        );
        assert!(row.pool.free() <= 4, "the last one has four of {BUFFERS}");
        // Its owner ends the pool, and with it whatever is beyond.
        row.pool.destroy().map_err(|_| ()).expect("destroy");
    }
}
