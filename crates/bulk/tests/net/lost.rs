//! Connections that are lost, and ends that are gone.

use crate::relay::Relay;
use crate::{PAGE, assigned, both, done, gone, moved, next, open, pair, timing, until};
use std::time::Duration;
use tranship_bulk::{ChannelState, Event, Kind};
use tranship_testkit::{Control, Random, Watchdog, child};
use tranship_transport::Net;
use tranship_transport::net::Timing;

/// Fills a buffer so that every byte says which one it is.
pub fn pattern(round: u32, bytes: usize) -> Vec<u8> {
    let word = round.wrapping_mul(0x9e37_79b9);
    let words = (0..bytes / 4).flat_map(|at| (word ^ u32::try_from(at).unwrap_or(0)).to_le_bytes());
    words.collect()
}

/// Connections are cut at random places in the stream, in the middle of frames and of buffers: everything arrives, once,
/// in order, with its bytes, and comes back.
#[test]
fn nothing_is_lost_or_twice_over_cut_connections() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("cut connections");
    let [plain, tls] = both();
    // Small buffers are cut in their frames, large ones in their bytes.
    for (net, bytes) in [
        (&plain, 1 << 20),
        (&tls, 1 << 18),
        (&plain, PAGE),
        (&tls, PAGE),
    ] {
        let at = open(net);
        let relay = Relay::new(at);
        let p = pair(net, at, relay.at, "cut");
        let ends = [&p.source, &p.sink];
        let pool = assigned(&p, 4, bytes as u64);
        let (mut sent, mut got, mut back) = (0u32, 0u32, 0u32);
        let mut completions = Vec::new();
        let rounds = 200;
        while back < rounds {
            if sent < rounds
                && let Ok(mut buffer) = pool.alloc()
            {
                buffer.write(0, &pattern(sent, bytes)).expect("write");
                completions.push(p.source.move_(buffer, &sent.to_le_bytes()).expect("move"));
                sent += 1;
                if random.one_in(8) {
                    relay.cut_after(1 + random.below(3 * bytes as u64));
                }
            }
            for end in ends {
                end.turn().expect("turn");
            }
            while let Some(event) = p.sink.poll_event().expect("poll") {
                assert!(!matches!(event, Event::Gone(_)), "{:?}", p.sink.why());
                let Some((buffer, meta)) = moved(event) else {
                    continue;
                };
                assert_eq!(meta, got.to_le_bytes());
                assert!(
                    buffer.bytes().expect("bytes") == pattern(got, bytes),
                    "round {got}"
                );
                completions.push(p.sink.pass(buffer, &got.to_le_bytes()).expect("pass"));
                got += 1;
            }
            while let Some(event) = p.source.poll_event().expect("poll") {
                assert!(!matches!(event, Event::Gone(_)), "{:?}", p.source.why());
                let Some((_, meta)) = moved(event) else {
                    continue;
                };
                assert_eq!(meta, back.to_le_bytes());
                back += 1;
            }
        }
        until(&ends, || done(&completions));
        assert!(completions.iter().all(|one| one.result() == Some(Ok(()))));
        assert!(
            relay.connections() > 3,
            "{} connections",
            relay.connections()
        );
        assert_eq!(pool.free(), 4);
    }
}

/// The network holds everything back for longer than silence may last, and then is there again.
#[test]
fn a_partition_shorter_than_the_grace_is_survived() {
    let _dog = Watchdog::new();
    for net in both() {
        let at = open(&net);
        let relay = Relay::new(at);
        let p = pair(&net, at, relay.at, "partition");
        let ends = [&p.source, &p.sink];
        let pool = assigned(&p, 2, PAGE as u64);
        relay.hold(true);
        let mut buffer = pool.alloc().expect("alloc");
        buffer.write(0, &[7; PAGE]).expect("write");
        let sent = p.source.move_(buffer, b"held").expect("move");
        // The silent connection is given up, and another one is tried: that is the sign.
        until(&ends, || relay.connections() > 1);
        assert_eq!(sent.result(), None);
        relay.hold(false);
        let (buffer, meta) = next(&ends, &p.sink, moved);
        assert_eq!(
            (&meta[..], buffer.bytes().expect("bytes")),
            (&b"held"[..], &[7; PAGE][..])
        );
        until(&ends, || sent.result() == Some(Ok(())));
    }
}

/// It stays away for longer than the grace.
#[test]
fn a_partition_longer_than_the_grace_ends_the_channel_with_words() {
    let _dog = Watchdog::new();
    let short = Timing {
        silence: Duration::from_millis(900),
        grace: Duration::from_millis(800),
        acquaintance: Duration::from_millis(500),
        ..timing()
    };
    let net = Net::plain(short).expect("net");
    let at = open(&net);
    let relay = Relay::new(at);
    let p = pair(&net, at, relay.at, "long");
    let pool = assigned(&p, 2, PAGE as u64);
    relay.hold(true);
    let sent = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect("move");
    let words = [gone(&p.source), gone(&p.sink)];
    assert_eq!(sent.result(), Some(Err(Kind::PeerGone.into())));
    assert_eq!(p.source.state(), ChannelState::Closed);
    for why in words {
        assert!(
            why.contains("no connection for") && why.contains("at most 0.8 s"),
            "{why}"
        );
    }
    assert_eq!(pool.free(), 2);
}

/// Beats often, and is silent only after what no loaded machine keeps a thread waiting.
pub fn calm() -> Timing {
    Timing {
        silence: Duration::from_secs(8),
        ..timing()
    }
}

/// Longer than any silence.
pub fn long(mut meanwhile: impl FnMut()) {
    let since = std::time::Instant::now();
    while since.elapsed() < calm().silence + Duration::from_secs(2) {
        meanwhile();
    }
}

/// A program that takes nothing for a long time is not silent: its library says that it is there.
#[test]
fn a_program_that_does_not_look_is_not_gone() {
    let _dog = Watchdog::new();
    let net = Net::plain(calm()).expect("net");
    let at = open(&net);
    let relay = Relay::new(at);
    let p = pair(&net, at, relay.at, "busy");
    let pool = assigned(&p, 4, 1 << 20);
    let mut all = Vec::new();
    for _ in 0..4 {
        let buffer = pool.alloc().expect("alloc");
        all.push(p.source.move_(buffer, &[]).expect("move"));
    }
    // Nobody turns the sink.
    long(|| drop(p.source.wait_event(calm().beat)));
    let stands = (p.source.state(), relay.connections());
    assert_eq!(stands, (ChannelState::Connected, 1));
    for _ in 0..4 {
        drop(next(&[&p.source, &p.sink], &p.sink, moved));
    }
    until(&[&p.source, &p.sink], || done(&all));
}

/// Nothing at all happens for longer than silence may last, and nobody looks.
#[test]
fn an_idle_channel_stays() {
    let _dog = Watchdog::new();
    let net = Net::tls(crate::credentials(), calm()).expect("net");
    let at = open(&net);
    let relay = Relay::new(at);
    let p = pair(&net, at, relay.at, "idle");
    let pool = assigned(&p, 1, PAGE as u64);
    // So many beats of both ends that the silence would have been over.
    let (before, beat) = (relay.pieces(), calm().beat.as_millis());
    while u128::from(relay.pieces() - before) * beat < 3 * calm().silence.as_millis() {
        std::thread::yield_now();
    }
    assert_eq!(relay.connections(), 1, "beats were missed");
    let buffer = pool.alloc().expect("alloc");
    p.source.move_(buffer, &[]).expect("move");
    drop(next(&[&p.source, &p.sink], &p.sink, moved));
}

/// One port, many names and clients; a name may be offered again and again.
#[test]
fn a_port_serves_many_channels_and_clients() {
    let _dog = Watchdog::new();
    let net = Net::tls(crate::credentials(), timing()).expect("net");
    let at = open(&net);
    let pairs: Vec<_> = (0..20)
        .map(|n| pair(&net, at, at, &format!("name {}", n % 4)))
        .collect();
    for (round, p) in (0..).zip(&pairs) {
        let pool = assigned(p, 1, PAGE as u64);
        let mut buffer = pool.alloc().expect("alloc");
        buffer.write(0, &pattern(round, PAGE)).expect("write");
        p.source.move_(buffer, &[]).expect("move");
        let (buffer, _) = next(&[&p.source, &p.sink], &p.sink, moved);
        assert!(buffer.bytes().expect("bytes") == pattern(round, PAGE));
    }
}

/// What was sent before a close, and the close itself, arrive.
#[test]
fn a_farewell_comes_after_everything_else() {
    let _dog = Watchdog::new();
    for net in both() {
        let at = open(&net);
        let p = pair(&net, at, at, "farewell");
        let pool = assigned(&p, 64, 1 << 16);
        for n in 0..64u8 {
            let mut buffer = pool.alloc().expect("alloc");
            buffer.write(0, &[n; 1 << 16]).expect("write");
            p.source.move_(buffer, &[n]).expect("move");
        }
        let crate::Pair {
            a, source, sink, ..
        } = p;
        // As a death is, but of an honest program.
        source.abandon();
        drop((a, source, pool));
        for n in 0..64u8 {
            let (buffer, meta) = next(&[&sink], &sink, moved);
            assert_eq!(meta, [n]);
            assert!(buffer.bytes().expect("bytes").iter().all(|byte| *byte == n));
            std::mem::forget(buffer);
        }
        let why = gone(&sink);
        assert!(why.contains("has ended the channel"), "{why}");
    }
}

// A source that gives its address away, serves one client, and waits to be killed.
child!(
    fn server(ctl: Control) {
        let at: std::net::SocketAddr = ctl.recv().expect("control").expect("start");
        let net = Net::plain(timing()).expect("net");
        let at = net.open(at).expect("open");
        let a = crate::domain(&net);
        let options = tranship_bulk::EndOptions::new(tranship_bulk::Trust::None);
        let source = a.create(
            &format!("net:{at}/killed"),
            tranship_bulk::Direction::Source,
            options,
        );
        let source = source.expect("create");
        ctl.send(&at).expect("control");
        loop {
            let _ = source.wait_event(Duration::from_millis(50));
        }
    }
);

fn bound_to(
    net: &Net,
    at: std::net::SocketAddr,
) -> (tranship_bulk::Domain, tranship_bulk::Channel) {
    let b = crate::domain(net);
    let options = tranship_bulk::EndOptions::new(tranship_bulk::Trust::None);
    let (sink, bound) = b.bind(&format!("net:{at}/killed"), options).expect("bind");
    assert_eq!(sink.block_on(bound), Ok(()));
    (b, sink)
}

#[test]
fn a_process_that_is_killed_is_gone() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    let one = server().start().expect("start");
    one.send(&"127.0.0.1:0").expect("send");
    let at: std::net::SocketAddr = one.expect();
    let (_b, sink) = bound_to(&net, at);
    one.kill();
    let why = gone(&sink);
    assert!(why.contains("the process there is gone"), "{why}");
}

#[test]
fn another_process_in_its_place_is_not_the_same() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    let one = server().start().expect("start");
    one.send(&"127.0.0.1:0").expect("send");
    let at: std::net::SocketAddr = one.expect();
    // The way there is shut until the other process is in its place.
    let relay = Relay::new(at);
    let (_b, sink) = bound_to(&net, relay.at);
    relay.shut(true);
    one.kill();
    let other = server().start().expect("start");
    other.send(&at).expect("send");
    let _: std::net::SocketAddr = other.expect();
    relay.shut(false);
    let why = gone(&sink);
    assert!(why.contains("another process is there now"), "{why}");
}

child!(
    /// Passes back whatever it is sent, at a port of its own or at another's.
    fn echo(ctl: Control) {
        use tranship_bulk::{Direction, EndOptions, Trust};
        let at: Option<std::net::SocketAddr> = ctl.recv().expect("control").expect("start");
        let net = Net::plain(timing()).expect("net");
        let own = crate::domain(&net);
        let options = EndOptions::new(Trust::None).meta_bytes(8);
        let end = match at {
            Some(at) => {
                own.bind(&format!("net:{at}/stopped"), options)
                    .expect("bind")
                    .0
            }
            None => {
                let at = open(&net);
                let end = own.create(&format!("net:{at}/stopped"), Direction::Sink, options);
                ctl.send(&at).expect("control");
                end.expect("create")
            }
        };
        loop {
            if let Some(Event::Moved(buffer, meta)) =
                end.wait_event(Duration::from_secs(1)).expect("event")
            {
                let _ = end.pass(buffer, &meta).expect("pass");
            }
        }
    }
);

/// A process is stopped for longer than silence may last, whoever of the two had connected, and goes on: so does the
/// channel.
#[test]
fn a_process_that_was_stopped_goes_on() {
    use tranship_bulk::{Direction, EndOptions, Trust};
    let _dog = Watchdog::new();
    for it_listens in [true, false] {
        let net = Net::plain(timing()).expect("net");
        let own = crate::domain(&net);
        let other = echo().start().expect("start");
        let options = EndOptions::new(Trust::None).meta_bytes(8);
        let (relay, end) = match it_listens {
            true => {
                other.send(&None::<std::net::SocketAddr>).expect("send");
                let relay = Relay::new(other.expect());
                let bound = own.bind(&format!("net:{}/stopped", relay.at), options);
                (relay, bound.expect("bind").0)
            }
            false => {
                let at = open(&net);
                let end = own.create(&format!("net:{at}/stopped"), Direction::Source, options);
                let relay = Relay::new(at);
                other.send(&Some(relay.at)).expect("send");
                (relay, end.expect("create"))
            }
        };
        let ends = [&end];
        until(&ends, || end.state() == ChannelState::Connected);
        let pool = own.pool(4, PAGE as u64, false).expect("pool");
        let asked = end.assign(pool.info().id).expect("assign");
        assert_eq!(end.block_on(asked), Ok(()));
        let send = |n: u8| {
            let buffer = pool.alloc().expect("alloc");
            drop(end.move_(buffer, &[n]).expect("move"));
        };
        send(0);
        assert_eq!(next(&ends, &end, moved).1, [0]);
        other.stop();
        (1..5).for_each(send);
        let since = std::time::Instant::now();
        while since.elapsed() < timing().silence + Duration::from_secs(2) {
            let event = end.wait_event(timing().beat).expect("event");
            assert!(event.is_none(), "{event:?}");
        }
        other.resume();
        for n in 1..5 {
            assert_eq!(next(&ends, &end, moved).1, [n]);
        }
        assert!(relay.connections() > 1, "{}", relay.connections());
        assert_eq!(pool.free(), 4);
    }
}
