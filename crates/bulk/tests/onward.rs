//! A pool that goes on: its writer is one process, a second one assigns it on to a third, all over `shm:`. Also with the second
//! or the first killed while the third has buffers of it.

use std::time::Duration;
use tranship_bulk::{
    Buffer, Channel, ChannelState, Direction, Domain, EndOptions, Event, Kind, Relay, Side, Trust,
};
use tranship_core::Domain as Manager;
use tranship_testkit::peer::{Exit, Launch};
use tranship_testkit::{Control, Peer, Watchdog, child};

const BYTES: usize = 3 * 4096;
const LIMIT: Duration = Duration::from_millis(100);

/// Where it begins, the level, and from which size on buffers are sealed.
type Start = (String, usize, u64);

fn options(trust: Trust) -> EndOptions {
    EndOptions::new(trust).meta_bytes(8)
}

/// A domain of the manager that the environment names.
fn domain(seal_from: u64) -> Domain {
    let domain = Domain::new();
    domain.seal_from(seal_from);
    domain
}

fn next(end: &Channel) -> Event {
    loop {
        match end.wait_event(LIMIT).expect("event") {
            Some(Event::PoolAssigned(_) | Event::Bound(Ok(_))) | None => {}
            Some(event) => return event,
        }
    }
}

// The one in the middle.
child!(
    fn middle(ctl: Control) {
        let (address, trust, seal_from): Start = ctl.recv().expect("control").expect("start");
        let own = domain(seal_from);
        let trust = Trust::ALL[trust];
        let down = own.create(&format!("{address}-2"), Direction::Source, options(trust));
        let down = down.expect("create");
        ctl.send(&"listening").expect("control");
        while down.state() != ChannelState::Connected {
            let _ = down.wait_event(LIMIT).expect("event");
        }
        // There is somebody to bind to.
        let _ = ctl.recv::<String>().expect("control");
        let (up, _) = own
            .bind(&format!("{address}-1"), options(trust))
            .expect("bind");
        while up.state() != ChannelState::Connected {
            let _ = up.wait_event(LIMIT).expect("event");
        }
        let mut relay = Relay::new(&up, &down).expect("relay");
        let mut gone = false;
        while !gone {
            let turned = relay.turn(|side, event| match (side, event) {
                (Side::Up, Event::Gone(_)) => gone = true,
                (_, Event::Bound(Ok(_)) | Event::TeardownBegun) => {}
                (side, event) => panic!("{side:?}: {event:?}"),
            });
            if turned.expect("turn") == 0 && !gone {
                relay.wait(LIMIT);
            }
        }
        // The writer is dead. What comes back stays here, and can be read.
        ctl.send(&"alone").expect("control");
        let Event::Passed(back, _) = next(&down) else {
            panic!("not passed");
        };
        ctl.send(&back.view(|view| view.to_vec()).expect("view"))
            .expect("control");
        let _ = ctl.recv::<String>();
    }
);

// The one at the end: sends back what it is asked to, says what it has read.
child!(
    fn last(ctl: Control) {
        let (address, trust, seal_from): Start = ctl.recv().expect("control").expect("start");
        let own = domain(seal_from);
        let (end, _) = own
            .bind(&format!("{address}-2"), options(Trust::ALL[trust]))
            .expect("bind");
        ctl.send(&"bound").expect("control");
        let mut kept: Vec<Buffer> = Vec::new();
        while let Some(order) = ctl.recv::<String>().expect("control") {
            match &order[..] {
                // Takes one, and passes it back.
                "pass" => {
                    let Event::Moved(buffer, meta) = next(&end) else {
                        panic!("not moved");
                    };
                    let bytes = buffer.view(|view| view.to_vec()).expect("view");
                    ctl.send(&(bytes, meta.to_vec())).expect("control");
                    let _ = end.pass(buffer, &meta).expect("pass");
                }
                "copy" => {
                    let Event::Copied(copy, meta) = next(&end) else {
                        panic!("not copied");
                    };
                    let bytes = copy.view(|view| view.to_vec()).expect("view");
                    ctl.send(&(bytes, meta.to_vec())).expect("control");
                    let _ = end.release(copy).expect("release");
                }
                "keep" => {
                    let Event::Moved(buffer, meta) = next(&end) else {
                        panic!("not moved");
                    };
                    kept.push(buffer);
                    ctl.send(&meta.to_vec()).expect("control");
                }
                "gone" => {
                    assert!(matches!(next(&end), Event::Gone(_)));
                    ctl.send(&"gone").expect("control");
                }
                "read" => {
                    let bytes = kept[0].view(|view| view.to_vec()).expect("view");
                    ctl.send(&bytes).expect("control");
                }
                _ => {
                    let _ = end.pass(kept.remove(0), &[]).expect("pass");
                }
            }
        }
    }
);

/// A manager, and the other two as its members.
struct Row {
    manager: Manager,
    middle: Peer,
    last: Peer,
    start: Start,
}

fn row(level: (usize, u64)) -> Row {
    let manager = Manager::embedded().expect("a manager");
    let path = manager.socket_path().expect("its socket").to_owned();
    let member = |launch: Launch| launch.env("TRANSHIP_SOCKET", &path).start().expect("start");
    let (number, seal_from) = level;
    let address = format!("shm:onward-{}-{number}-{seal_from}", std::process::id());
    let start: Start = (address, number, seal_from);
    let (middle, last) = (member(middle()), member(last()));
    middle.send(&start).expect("send");
    assert_eq!(middle.expect::<String>(), "listening");
    last.send(&start).expect("send");
    assert_eq!(last.expect::<String>(), "bound");
    Row {
        manager,
        middle,
        last,
        start,
    }
}

/// All levels; `none` with buffers copied out, and sealed.
fn levels() -> impl Iterator<Item = (usize, u64)> {
    let none = Trust::ALL.iter().position(|t| *t == Trust::None);
    let all = (0..Trust::ALL.len()).map(|number| (number, u64::MAX));
    all.chain(none.map(|number| (number, 0)))
}

/// The writer: its domain, its end and its pool of two buffers.
fn writer(row: &Row) -> (Domain, Channel, tranship_bulk::Pool) {
    let (address, trust, seal_from) = &row.start;
    let own = Domain::over(&row.manager).expect("a member");
    own.seal_from(*seal_from);
    let end = own.create(
        &format!("{address}-1"),
        Direction::Source,
        options(Trust::ALL[*trust]),
    );
    let end = end.expect("create");
    row.middle.send(&"bind").expect("send");
    while end.state() != ChannelState::Connected {
        let _ = end.wait_event(LIMIT).expect("event");
    }
    let pool = own.pool(2, BYTES as u64, true).expect("pool");
    let asked = end.assign(pool.info().id).expect("assign");
    assert_eq!(end.block_on(asked), Ok(()));
    (own, end, pool)
}

fn filled(pool: &tranship_bulk::Pool, byte: u8) -> Buffer {
    let mut buffer = pool.alloc().expect("alloc");
    buffer.write(0, &[byte; BYTES]).expect("write");
    buffer
}

#[test]
fn a_third_domains_pool_goes_through_and_comes_back() {
    let _dog = Watchdog::new();
    for level in levels() {
        let row = row(level);
        let (_own, end, pool) = writer(&row);
        for round in 1..20 {
            let buffer = filled(&pool, round);
            let _ = end.move_(buffer, &[round]).expect("move");
            row.last.send(&"pass").expect("send");
            let (bytes, meta) = row.last.expect::<(Vec<u8>, Vec<u8>)>();
            assert_eq!(
                (bytes, meta),
                (vec![round; BYTES], vec![round]),
                "{level:?}"
            );
            let Event::Passed(back, meta) = next(&end) else {
                panic!("not passed");
            };
            assert_eq!((pool.free(), &meta[..]), (1, &[round][..]));
            drop(back);
            let mut own = filled(&pool, 100 + round);
            let _ = end.copy(&own, &[round]).expect("copy");
            row.last.send(&"copy").expect("send");
            let (bytes, _) = row.last.expect::<(Vec<u8>, Vec<u8>)>();
            assert_eq!(bytes, vec![100 + round; BYTES], "{level:?}");
            assert!(matches!(next(&end), Event::Released(..)));
            own.write(0, &[round]).expect("ours alone again");
        }
        assert_eq!(pool.free(), 2);
        drop(end);
    }
}

#[test]
fn what_was_passed_on_outlives_the_one_in_the_middle() {
    let _dog = Watchdog::new();
    for level in levels() {
        let row = row(level);
        let (_own, end, pool) = writer(&row);
        let _ = end.move_(filled(&pool, 7), &[1]).expect("move");
        row.last.send(&"keep").expect("send");
        assert_eq!(row.last.expect::<Vec<u8>>(), [1]);
        row.middle.kill();
        assert_eq!(row.middle.wait(), Exit::Signal(libc::SIGKILL));
        // Nobody here knows that the third has it: it is not taken back, nor given out again.
        assert!(matches!(next(&end), Event::Gone(0)), "{level:?}");
        assert_eq!(pool.free(), 1);
        row.last.send(&"gone").expect("send");
        assert_eq!(row.last.expect::<String>(), "gone");
        let _other = filled(&pool, 8);
        assert_eq!(pool.alloc().expect_err("stranded"), Kind::AllocCount);
        row.last.send(&"read").expect("send");
        assert_eq!(row.last.expect::<Vec<u8>>(), vec![7; BYTES], "{level:?}");
    }
}

// The writer, in a process of its own.
child!(
    fn first(ctl: Control) {
        let (address, trust, seal_from): Start = ctl.recv().expect("control").expect("start");
        let own = domain(seal_from);
        let end = own.create(
            &format!("{address}-1"),
            Direction::Source,
            options(Trust::ALL[trust]),
        );
        let end = end.expect("create");
        ctl.send(&"listening").expect("control");
        while end.state() != ChannelState::Connected {
            let _ = end.wait_event(LIMIT).expect("event");
        }
        let pool = own.pool(2, BYTES as u64, true).expect("pool");
        let asked = end.assign(pool.info().id).expect("assign");
        assert_eq!(end.block_on(asked), Ok(()));
        let _ = end.move_(filled(&pool, 9), &[2]).expect("move");
        loop {
            std::thread::park();
        }
    }
);

#[test]
fn what_was_passed_on_outlives_its_writer() {
    let _dog = Watchdog::new();
    for level in levels() {
        let row = row(level);
        let path = row.manager.socket_path().expect("its socket").to_owned();
        let writer = first()
            .env("TRANSHIP_SOCKET", &path)
            .start()
            .expect("start");
        writer.send(&row.start).expect("send");
        assert_eq!(writer.expect::<String>(), "listening");
        row.middle.send(&"bind").expect("send");
        row.last.send(&"keep").expect("send");
        assert_eq!(row.last.expect::<Vec<u8>>(), [2]);
        writer.kill();
        assert_eq!(writer.wait(), Exit::Signal(libc::SIGKILL));
        assert_eq!(row.middle.expect::<String>(), "alone");
        row.last.send(&"read").expect("send");
        assert_eq!(row.last.expect::<Vec<u8>>(), vec![9; BYTES], "{level:?}");
        // It still goes back over the channel by which it came.
        row.last.send(&"give it back").expect("send");
        let bytes = row.middle.expect::<Vec<u8>>();
        assert_eq!(bytes.len(), BYTES);
    }
}
