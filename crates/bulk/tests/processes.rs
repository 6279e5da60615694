//! Two processes over `shm:`: the report's seven tests (data with and without trust, and the five accesses that must
//! fault, which they do by the signal), and a peer that is killed.
use tranship_bulk::raw::{Event, Raw};
use tranship_bulk::{Access, ChannelState, Constraints, Direction, Kind, Role, Trust, Wish};
use tranship_core::Domain as Manager;
use tranship_testkit::peer::{Exit, Launch};
use tranship_testkit::{Control, Peer, Watchdog, child};

#[path = "conform/probe.rs"]
mod probe;

const PAGE: usize = 4096;
const TEXT: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ1234567890\0";

fn wish(role: Role, trust: Trust) -> Wish {
    Wish {
        role,
        trust,
        constraints: Constraints::default(),
    }
}

/// Turns until the event is there; what is not wanted is passed over.
fn next<T>(raw: &Raw, channel: u64, wanted: impl Fn(&Event) -> Option<T>) -> T {
    loop {
        while let Some(event) = raw.poll_event(channel) {
            if let Some(found) = wanted(&event) {
                return found;
            }
            assert!(!matches!(event, Event::Gone(_)), "the other end is gone");
        }
        if !raw.turn(channel).expect("turn") {
            std::thread::yield_now();
        }
    }
}

fn buffer(event: &Event) -> Option<(u64, u32)> {
    match event {
        Event::Moved(pool, index, _)
        | Event::Passed(pool, index, _)
        | Event::Copied(pool, index, _) => Some((*pool, *index)),
        _ => None,
    }
}

fn assigned(raw: &Raw, channel: u64) -> u64 {
    let pool = raw.new_pool(5, PAGE as u64, false).expect("pool");
    let asked = raw.assign(channel, pool).expect("assign");
    while asked.result().is_none() {
        raw.turn(channel).expect("turn");
    }
    assert_eq!(asked.result(), Some(Ok(())));
    pool
}

/// Touches a byte for real.
fn touch(raw: &Raw, buffer: (u64, u32), write: bool) {
    let at = raw.address(buffer).expect("its pool is here");
    let at = std::ptr::with_exposed_provenance_mut::<u8>(at);
    // SAFETY: it is to fault; where it does not, it is a byte of a buffer that nobody looks at any more.
    unsafe {
        match write {
            true => at.write_volatile(1),
            false => drop(at.read_volatile()),
        }
    }
}

// The report's agent 1: the source. `test` says where it breaks the rules.
child!(
    fn agent1(ctl: Control) {
        let (address, trust, test): (String, usize, u8) =
            ctl.recv().expect("control").expect("start");
        let raw = Raw::new();
        let wish = wish(Role::Slave, Trust::ALL[trust]);
        let channel = raw
            .create(&address, Direction::Source, wish, 0, None)
            .expect("create");
        ctl.send(&"listening").expect("control");
        let got = next(&raw, channel, buffer);
        raw.write(got, 0, TEXT).expect("write");
        raw.move_(channel, got, &[]).expect("move");
        if test == 3 {
            touch(&raw, got, false);
        }
        let pool = assigned(&raw, channel);
        let own = (pool, raw.alloc(pool).expect("alloc"));
        raw.write(own, 0, &[0x21; PAGE]).expect("write");
        raw.copy(channel, own, &[]).expect("copy");
        if test == 4 {
            touch(&raw, own, true);
        }
        next(&raw, channel, |event| {
            matches!(event, Event::Released(..)).then_some(())
        });
        raw.write(own, 0, &[0x22; PAGE]).expect("write again");
        ctl.send(&"done").expect("control");
        let _ = ctl.recv::<String>();
    }
);

// The report's agent 2: the sink.
child!(
    fn agent2(ctl: Control) {
        let (address, trust, test): (String, usize, u8) =
            ctl.recv().expect("control").expect("start");
        let raw = Raw::new();
        let wish = wish(Role::Master, Trust::ALL[trust]);
        let (channel, _) = raw.bind(&address, wish, None).expect("bind");
        next(&raw, channel, |event| {
            matches!(event, Event::Bound(Ok(_))).then_some(())
        });
        let pool = assigned(&raw, channel);
        let own = (pool, raw.alloc(pool).expect("alloc"));
        raw.pass(channel, own, &[]).expect("pass");
        if test == 2 {
            touch(&raw, own, false);
        }
        let got = next(&raw, channel, buffer);
        let mut text = [0; TEXT.len()];
        raw.read(got, 0, &mut text).expect("read");
        assert_eq!(text, TEXT);
        raw.write(got, 0, &[0; PAGE]).expect("write");
        let copy = next(&raw, channel, buffer);
        let mut bytes = [0; PAGE];
        raw.read(copy, 0, &mut bytes).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 0x21));
        if test == 5 {
            touch(&raw, copy, true);
        }
        raw.release(channel, copy).expect("release");
        if test == 6 {
            touch(&raw, copy, false);
        }
        ctl.send(&"done").expect("control");
        let _ = ctl.recv::<String>();
    }
);

/// A manager in this process, which the child joins.
fn manager() -> Manager {
    Manager::embedded().expect("a manager")
}

/// Starts a child as a member of that manager.
fn member(launch: Launch, manager: &Manager) -> Peer {
    let path = manager.socket_path().expect("its socket");
    launch.env("TRANSHIP_SOCKET", path).start().expect("start")
}

/// Addresses of every backend that connects processes.
const SCHEMES: [&str; 3] = ["shm", "copy", "tcp+plain"];

fn start(manager: &Manager, scheme: &str, trust: Trust, test: u8) -> (Peer, Peer) {
    let trust = Trust::ALL
        .iter()
        .position(|t| *t == trust)
        .expect("a level");
    let name = format!("processes-{}-{trust}-{test}", std::process::id());
    let address = match scheme {
        "tcp+plain" => {
            // Free a moment ago.
            let port = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
            format!("{scheme}:{}/{name}", port.local_addr().expect("address"))
        }
        _ => format!("{scheme}:{name}"),
    };
    let one = member(agent1(), manager);
    one.send(&(&address, trust, test)).expect("send");
    assert_eq!(one.expect::<String>(), "listening");
    let two = member(agent2(), manager);
    two.send(&(&address, trust, test)).expect("send");
    (one, two)
}

#[test]
fn data_arrives_with_and_without_trust() {
    let _dog = Watchdog::new();
    let manager = manager();
    for scheme in SCHEMES {
        for trust in [Trust::Full, Trust::Half, Trust::None] {
            let (one, two) = start(&manager, scheme, trust, 0);
            assert_eq!(two.expect::<String>(), "done");
            assert_eq!(one.expect::<String>(), "done");
        }
    }
}

#[test]
fn what_is_not_allowed_faults() {
    let _dog = Watchdog::new();
    let manager = manager();
    for scheme in SCHEMES {
        for trust in [Trust::Half, Trust::None] {
            for test in 2..=6 {
                let (one, two) = start(&manager, scheme, trust, test);
                let breaks = if matches!(test, 3 | 4) { one } else { two };
                assert_eq!(
                    breaks.wait(),
                    Exit::Signal(libc::SIGSEGV),
                    "test {test} over {scheme} with {trust:?}"
                );
            }
        }
    }
}

// Takes what it is sent, says so, and waits for its end.
child!(
    fn holder(ctl: Control) {
        let (address, trust): (String, usize) = ctl.recv().expect("control").expect("start");
        let raw = Raw::new();
        let (channel, _) = raw
            .bind(&address, wish(Role::Generic, Trust::ALL[trust]), None)
            .expect("bind");
        for _ in 0..2 {
            next(&raw, channel, buffer);
            ctl.send(&"has it").expect("control");
        }
        loop {
            std::thread::park();
        }
    }
);

#[test]
fn what_a_killed_process_had_comes_back() {
    let _dog = Watchdog::new();
    let (manager, probe) = (manager(), probe::Probe::new());
    for (number, trust) in Trust::ALL.into_iter().enumerate() {
        let address = format!("shm:killed-{}-{number}", std::process::id());
        let raw = Raw::over(&manager).expect("a member");
        let generic = wish(Role::Generic, trust);
        let channel = raw
            .create(&address, Direction::Source, generic, 0, None)
            .expect("create");
        let peer = member(holder(), &manager);
        peer.send(&(&address, number)).expect("send");
        next(&raw, channel, |event| {
            matches!(event, Event::Bound(Ok(_))).then_some(())
        });
        let pool = assigned(&raw, channel);
        let [a, b, c] = [0; 3].map(|_| (pool, raw.alloc(pool).expect("alloc")));
        raw.move_(channel, a, &[]).expect("move");
        raw.copy(channel, b, &[]).expect("copy");
        for _ in 0..2 {
            assert_eq!(peer.expect::<String>(), "has it");
        }
        let late = raw.move_(channel, c, &[]).expect("move");
        let closed = matches!(trust, Trust::Half | Trust::None);
        let seen = probe.touch(raw.address(a).expect("mapped"));
        assert_eq!(
            seen,
            if closed {
                Access::None
            } else {
                Access::ReadWrite
            }
        );
        peer.kill();
        let back = loop {
            raw.turn(channel).expect("turn");
            if let Some(Event::Gone(back)) = raw.poll_event(channel) {
                break back;
            }
        };
        assert_eq!(back.len(), 2);
        assert_eq!(late.result(), Some(Err(Kind::PeerGone.into())));
        for buffer in [a, b, c] {
            assert_eq!(
                probe.touch(raw.address(buffer).expect("mapped")),
                Access::ReadWrite
            );
        }
        raw.write(b, 0, b"ours alone again").expect("write");
        raw.destroy_pool(pool).expect("destroy");
    }
}

/// Descriptors travel beside the ring: whoever looks at the socket between the two must not take them for an end.
#[test]
fn pools_come_while_the_other_end_looks() {
    let _dog = Watchdog::new();
    let address = format!("shm:looks-{}", std::process::id());
    let manager = manager();
    let member = || Raw::over(&manager).expect("a member");
    let (here, there) = (member(), member());
    let generic = wish(Role::Generic, Trust::None);
    let channel = here
        .create(&address, Direction::Source, generic, 0, None)
        .expect("create");
    let (other, _) = there.bind(&address, generic, None).expect("bind");
    let looks = std::thread::spawn(move || {
        // Its events pile up; all that it does is to look.
        while there.channel_state(other) != Some(ChannelState::Closed) {
            there.turn(other).expect("turn");
        }
    });
    next(&here, channel, |event| {
        matches!(event, Event::Bound(Ok(_))).then_some(())
    });
    for _ in 0..300 {
        let pool = assigned(&here, channel);
        let asked = here.remove(channel, pool).expect("remove");
        while asked.result().is_none() {
            here.turn(channel).expect("turn");
        }
        assert_eq!(asked.result(), Some(Ok(())));
        here.destroy_pool(pool).expect("destroy");
    }
    drop(here);
    looks.join().expect("looks");
}
