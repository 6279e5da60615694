//! A domain that keeps others' memory is charged for it. A rule of the administrator's says what happens to a domain
//! that keeps too much. With real processes, honest and not.

use std::time::Duration;

use tranship_core::admin::{DomainStat, HogAction, StatRecord};
use tranship_core::error::{Barrier, Limit, RefusalCode, Shortage};
use tranship_core::{
    BufferMut, ChannelOptions, Domain, DomainId, Message, Pool, PoolOptions, Receiver, Sender,
    Trust, WhenFull,
};
use tranship_manager::Config;
use tranship_proto::Role;
use tranship_testkit::hostile::SOCKET;
use tranship_testkit::hostile::raw::Raw;
use tranship_testkit::{Control, Peer, Watchdog, child};

const CHUNK: usize = 64 << 10;
/// Chunks in all.
const TOTAL: u64 = 64;
/// Buffers that are sent, a chunk each.
const SENT: usize = 12;

fn join(name: &str, socket: &str) -> Domain {
    let builder = Domain::builder().name(name).socket(socket).autostart(false);
    builder.connect().expect("connect")
}

// Gives its number, takes so many messages and keeps them. Then 0: lets them go. 1: wants memory until it is refused
// for what it holds, and says why. 2: takes part until it is cut off, and says why and what its buffers look like.
child!(
    fn keeps(ctl: Control) {
        let (socket, wanted): (String, usize) = ctl.recv().unwrap().unwrap();
        let domain = join("keeper", &socket);
        let mut receiver = domain.open::<Receiver>("film").unwrap();
        // A rule may end it as soon as it holds all.
        ctl.send(&domain.id().0).unwrap();
        let mut held: Vec<Message> = Vec::new();
        while held.len() < wanted {
            held.extend(receiver.recv());
        }
        while let Some(what) = ctl.recv::<u32>().unwrap() {
            match what {
                0 => {
                    held.clear();
                    ctl.send(&()).unwrap();
                }
                1 => {
                    let pool = small_pool(&domain, 32, Trust::Producer);
                    let mut own = Vec::new();
                    let limit = loop {
                        match pool.try_alloc(CHUNK) {
                            Ok(buf) => own.push(buf),
                            Err(error) => match error.find::<Shortage>().map(|s| s.limit) {
                                Some(limit @ (Limit::Charged { .. } | Limit::Hog { .. })) => {
                                    break (limit, error.to_string());
                                }
                                Some(Limit::Late) => std::thread::yield_now(),
                                _ => panic!("{error}"),
                            },
                        }
                    };
                    let figures = match limit.0 {
                        Limit::Charged { left_bytes } => ("charged", left_bytes, 0),
                        Limit::Hog {
                            charged_bytes,
                            over_bytes,
                        } => ("hog", charged_bytes, over_bytes),
                        _ => ("other", 0, 0),
                    };
                    ctl.send(&(figures, limit.1, own.len())).unwrap();
                }
                _ => {
                    let refusal = loop {
                        let _ = domain.turn();
                        match domain.admin().cut_off() {
                            Some(Barrier::Refused(refusal)) => break refusal,
                            Some(other) => panic!("{other}"),
                            None => std::thread::yield_now(),
                        }
                    };
                    let zeros = held.drain(..).all(|m| match m.into_buffer() {
                        Some(buf) => buf.to_vec().iter().all(|b| *b == 0),
                        None => false,
                    });
                    let is_hog = refusal.code == RefusalCode::Hog;
                    let figures = (is_hog, refusal.asked, refusal.available);
                    let again = Domain::builder().socket(&socket).autostart(false);
                    let again = again.connect().err().map(|e| e.to_string());
                    ctl.send(&(figures, zeros, again)).unwrap();
                }
            }
        }
    }
);

child!(
    fn never_unmaps(ctl: Control) {
        let mut raw = Raw::join("clinger");
        let mut channel = raw.connect("film", Role::Sink);
        raw.take_offer(&mut channel);
        ctl.send(&raw.domain.0).unwrap();
        // Reads its orders, and does none of them.
        while raw.recv().is_some() {}
        ctl.recv::<()>().unwrap();
    }
);

fn small_pool(domain: &Domain, chunks: usize, trust: Trust) -> Pool {
    let options = PoolOptions::new((chunks * CHUNK) as u64).chunk_bytes(CHUNK as u64);
    domain.create_pool(options.trust(trust)).expect("a pool")
}

/// The manager, a pool in it, and a channel's sending end.
struct Stage {
    domain: Domain,
    pool: Pool,
    sender: Sender,
    peer: Peer,
    keeper: DomainId,
    _dog: Watchdog,
}

impl Stage {
    /// With a keeper that takes all that is sent to it, or given away to be written.
    fn new(rules: &str, moved: bool) -> Stage {
        let dog = Watchdog::new();
        let config = Config {
            total: Some(TOTAL * CHUNK as u64),
            policy_period: Duration::from_millis(100),
            ..Config::parse(rules).expect("rules")
        };
        let builder = Domain::builder().name("manager").config(config);
        let domain = builder.embedded().expect("embedded");
        let socket = domain
            .socket_path()
            .expect("a socket")
            .display()
            .to_string();
        let peer = keeps().start().expect("a keeper");
        peer.send(&(&socket, SENT)).expect("send");
        let trust = match moved {
            false => Trust::Producer,
            true => Trust::Half,
        };
        let pool = small_pool(&domain, 32, trust);
        let mut sender = open(&domain);
        for _ in 0..SENT {
            let mut buf = pool.alloc(CHUNK).expect("room");
            buf.write(0, &[7; CHUNK]).expect("written");
            match moved {
                false => sender.send(buf.freeze()).expect("sent"),
                true => sender.send(buf).expect("moved"),
            };
        }
        let keeper = DomainId(peer.expect::<u32>());
        Stage {
            domain,
            pool,
            sender,
            peer,
            keeper,
            _dog: dog,
        }
    }

    /// Looks at the keeper's record until it is as it should be.
    fn until(&self, good: impl Fn(Option<&DomainStat>) -> bool) -> Option<DomainStat> {
        until(&self.domain, self.keeper, good)
    }
}

fn open(domain: &Domain) -> Sender {
    let options = ChannelOptions::new().when_full(WhenFull::Wait);
    let listener = domain.listen_with::<Sender>("film", options);
    listener.expect("listens").accept().expect("a keeper")
}

fn until(
    domain: &Domain,
    keeper: DomainId,
    good: impl Fn(Option<&DomainStat>) -> bool,
) -> Option<DomainStat> {
    loop {
        domain.turn().expect("turn");
        let records = domain.admin().stat().expect("statistics");
        let found = records.into_iter().find_map(|r| match r {
            StatRecord::Domain(d) if d.domain == keeper => Some(d),
            _ => None,
        });
        if good(found.as_ref()) {
            return found;
        }
        std::thread::yield_now();
    }
}

const ALL: u64 = (SENT * CHUNK) as u64;
/// Limit of rules: only a domain that holds everything is above it. So no rule ends the domain while buffers are still
/// sent to it.
const ALL_BUT_ONE: u64 = ALL - CHUNK as u64;

fn lingers(bytes: u64) -> impl Fn(Option<&DomainStat>) -> bool {
    move |d| d.is_some_and(|d| d.lingering_bytes == bytes)
}

#[test]
fn what_a_reader_never_drops_is_charged_to_it_until_it_does() {
    let stage = Stage::new("linger = \"300ms\"\n[[hog]]\nover = \"128KiB\"", false);
    stage.until(lingers(ALL));
    let d = stage.until(|d| d.is_some_and(|d| d.hog.is_some()));
    let hog = d.and_then(|d| d.hog).expect("a hog");
    assert_eq!((hog.action, hog.over_bytes), (HogAction::Report, 128 << 10));
    let records = stage.domain.admin().stat().expect("statistics");
    let hold = records.into_iter().find_map(|r| match r {
        StatRecord::Hold(h) if h.domain == stage.keeper => Some(h),
        _ => None,
    });
    let hold = hold.expect("it holds something");
    assert_eq!(
        (hold.lingering_bytes, hold.bytes, hold.buffers),
        (ALL, ALL, u32::try_from(SENT).expect("few"))
    );
    assert!(hold.held_ms >= Some(300), "{hold:?}");
    stage.peer.ask::<()>(&0u32);
    stage.until(lingers(0));
    stage.until(|d| d.is_some_and(|d| d.hog.is_none()));
    drop(stage.sender);
}

/// Memory that comes and goes is never charged, however much it is.
#[test]
fn a_stream_is_not_charged() {
    let stage = Stage::new("linger = \"10min\"", false);
    stage.until(|d| d.is_some());
    for _ in 0..3 {
        let records = stage.domain.admin().stat().expect("statistics");
        let held = records.into_iter().find_map(|r| match r {
            StatRecord::Hold(h) if h.domain == stage.keeper => h.held_ms,
            _ => None,
        });
        let held = held.unwrap_or(0);
        // Until the manager has checked again.
        until(&stage.domain, stage.keeper, |_| {
            let records = stage.domain.admin().stat().expect("statistics");
            records.into_iter().any(|r| {
                matches!(r, StatRecord::Hold(h) if h.domain == stage.keeper && h.held_ms > Some(held))
            })
        });
    }
    stage.until(lingers(0));
}

#[test]
fn what_was_moved_is_charged_without_delay() {
    let stage = Stage::new("linger = \"10min\"", true);
    stage.until(lingers(ALL));
    stage.peer.ask::<()>(&0u32);
    stage.until(lingers(0));
}

#[test]
fn what_one_holds_counts_against_what_it_may_have() {
    let rules = "linger = \"10ms\"\n[limits]\ndomain_memory = \"1MiB\"";
    let stage = Stage::new(rules, false);
    stage.until(lingers(ALL));
    let (figures, text, got): ((String, u64, u64), String, usize) = stage.peer.ask(&1u32);
    assert_eq!(figures.0, "charged", "{text}");
    assert_eq!((got, figures.1), (16 - SENT, 0), "{text}");
    assert!(text.contains("dropped make room"), "{text}");
}

#[test]
fn a_throttled_hog_hears_why() {
    let rules =
        "linger = \"10ms\"\n[[hog]]\nname = \"keeper\"\nover = \"704KiB\"\naction = \"throttle\"";
    let stage = Stage::new(rules, false);
    stage.until(|d| d.is_some_and(|d| d.hog.is_some()));
    let (figures, text, _): ((String, u64, u64), String, usize) = stage.peer.ask(&1u32);
    assert_eq!(figures, ("hog".to_owned(), ALL, ALL_BUT_ONE), "{text}");
    assert!(text.contains("slowed down"), "{text}");
}

#[test]
fn a_disconnected_hog_holds_nothing_any_more_and_stays_out() {
    let rules = "linger = \"10ms\"\n[[hog]]\nover = \"704KiB\"\naction = \"disconnect\"";
    let stage = Stage::new(rules, false);
    let ((is_hog, charged, over), zeros, again): ((bool, u64, u64), bool, Option<String>) =
        stage.peer.ask(&2u32);
    assert!(is_hog);
    assert!(charged > over && over == ALL_BUT_ONE, "{charged} of {over}");
    assert!(zeros, "what others write is let go of");
    let again = again.expect("not let in again");
    assert!(again.contains("charged to it"), "{again}");
    stage.until(|d| d.is_none());
    // All of the pool can be had again, although the process is there.
    let room = |_| stage.pool.alloc_timeout(CHUNK, Duration::from_secs(60));
    let all: Vec<BufferMut> = (0..32).map(room).collect::<Result<_, _>>().expect("room");
    assert!(!stage.peer.has_ended());
    drop(all);
}

#[test]
fn a_hog_is_killed() {
    let rules = "linger = \"10ms\"\n[[hog]]\nover = \"704KiB\"\naction = \"kill\"";
    let stage = Stage::new(rules, false);
    assert!(
        format!("{:?}", stage.peer.wait()).contains('9'),
        "by SIGKILL"
    );
    stage.until(|d| d.is_none());
    let room = |_| stage.pool.alloc_timeout(CHUNK, Duration::from_secs(60));
    let all: Vec<BufferMut> = (0..32).map(room).collect::<Result<_, _>>().expect("room");
    drop(all);
}

/// A domain that follows no orders keeps its chunks stranded, and pays for them, until a rule ends it.
#[test]
fn who_does_not_unmap_is_charged_and_ended() {
    let _dog = Watchdog::new();
    let rules = "[[hog]]\nname = \"clinger\"\nover = \"0%\"\nfor = \"200ms\"\naction = \"kill\"";
    let config = Config {
        total: Some(TOTAL * CHUNK as u64),
        policy_period: Duration::from_millis(100),
        ..Config::parse(rules).expect("rules")
    };
    let builder = Domain::builder().name("manager").config(config);
    let domain = builder.embedded().expect("embedded");
    let socket = domain.socket_path().expect("a socket");
    let peer = never_unmaps()
        .env(SOCKET, socket)
        .start()
        .expect("a clinger");
    let pool = small_pool(&domain, 8, Trust::Producer);
    let first = pool.alloc(CHUNK).expect("room");
    let mut sender = open(&domain);
    sender.assign(&pool).expect("taken");
    let clinger = DomainId(peer.expect::<u32>());
    drop(first);
    drop(sender);
    drop(pool);
    let chunk = CHUNK as u64;
    until(&domain, clinger, |d| {
        d.is_some_and(|d| d.stranded_bytes == chunk && d.charged_bytes() == chunk)
    });
    assert!(format!("{:?}", peer.wait()).contains('9'), "by SIGKILL");
    until(&domain, clinger, |d| d.is_none());
    loop {
        let records = domain.admin().stat().expect("statistics");
        let stranded = records.into_iter().find_map(|r| match r {
            StatRecord::Manager(m) => Some(m.stranded_bytes),
            _ => None,
        });
        if stranded == Some(0) {
            break;
        }
        std::thread::yield_now();
    }
}
