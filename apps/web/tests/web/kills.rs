//! Components that are killed at random under load: a request costs at most itself.

use crate::site::Site;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tranship_testkit::{Held, Random, Watchdog};

const CLIENTS: u64 = 6;
const COMPONENTS: [&str; 8] = [
    "front", "http", "guard", "route", "cache", "static", "dynamic", "log",
];
const SIZES: [usize; 5] = [0, 64, 4 << 10, 64 << 10, 256 << 10];
/// How long a client goes on between two kills.
const BETWEEN: Duration = Duration::from_millis(60);
/// Bytes in use at rest: files that are kept, and the request that asks. Pools count whole chunks.
const AT_REST: u64 = 8 << 20;

/// What clients and the killer share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Counted before each kill of the component of the connections, and once its next process is there: odd meanwhile.
    fronts: AtomicU64,
    right: AtomicU64,
    refused: AtomicU64,
    reset: AtomicU64,
}

/// How a request ended.
enum End {
    Right,
    /// A status of 500 and more, complete.
    Refused,
    /// The connection broke.
    Broken(String),
    Wrong(String),
}

/// One kind of request, and its right answer.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Dynamic(usize),
    File(usize),
    Echo(usize),
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ask::Dynamic(n) => write!(f, "GET /dynamic?n={n} HTTP/1.1\r\nHost: x\r\n\r\n"),
            Ask::File(n) => write!(f, "GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n"),
            Ask::Echo(n) => write!(
                f,
                "POST /dynamic HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\n\r\n"
            ),
        }
    }
}

impl Ask {
    fn any(random: &mut Random) -> Ask {
        let size = SIZES[usize::try_from(random.below(SIZES.len() as u64)).expect("few")];
        match random.below(3) {
            0 => Ask::Dynamic(size),
            1 => Ask::File(size),
            // Without a body it would be another request.
            _ => Ask::Echo(size.max(1)),
        }
    }

    fn body(self) -> Vec<u8> {
        match self {
            Ask::Dynamic(n) => vec![b'x'; n],
            Ask::File(n) => vec![b'f'; n],
            Ask::Echo(n) => (0..n).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect(),
        }
    }

    fn on(self, socket: &mut BufReader<UnixStream>) -> (End, bool) {
        let broken = |error: &dyn fmt::Display| (End::Broken(error.to_string()), false);
        let mut bytes = self.to_string().into_bytes();
        if let Ask::Echo(_) = self {
            bytes.extend(self.body());
        }
        // A refusal may come before the whole body is taken: it is read all the same.
        let sent = socket.get_mut().write_all(&bytes);
        let mut line = String::new();
        match socket.read_line(&mut line) {
            Ok(0) => return broken(&sent.err().map_or("ended".to_owned(), |why| why.to_string())),
            Ok(_) => {}
            Err(error) => return broken(&error),
        }
        let status: u16 = match line.split(' ').nth(1).and_then(|it| it.parse().ok()) {
            Some(status) => status,
            None => return (End::Wrong(format!("no status: {line:?}")), false),
        };
        let (mut length, mut stays) = (0, true);
        loop {
            let mut line = String::new();
            match socket.read_line(&mut line) {
                Ok(0) => return broken(&"ended within a head"),
                Ok(_) => {}
                Err(error) => return broken(&error),
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            stays &= line != "connection: close";
        }
        let mut body = vec![0; length];
        if let Err(error) = socket.read_exact(&mut body) {
            return broken(&error);
        }
        let end = match status {
            200 if body == self.body() => End::Right,
            500.. => End::Refused,
            _ => End::Wrong(format!(
                "status {status}, {length} bytes, not those of {self:?}"
            )),
        };
        (end, stays)
    }
}

/// Sends one request after the other until it is told to stop. A connection may break only if the component of the
/// connections was killed since it was made.
fn client(site: &Site, shared: &Shared, mut random: Random) -> Result<(), String> {
    while !shared.stop.load(Ordering::Relaxed) {
        let since = shared.fronts.load(Ordering::SeqCst);
        let Ok(socket) = connect(site) else {
            return Err("refused: the supervisor's socket always listens".to_owned());
        };
        let mut socket = BufReader::new(socket);
        while !shared.stop.load(Ordering::Relaxed) {
            let ask = Ask::any(&mut random);
            let (end, stays) = ask.on(&mut socket);
            let count = match end {
                End::Right => &shared.right,
                End::Refused => &shared.refused,
                End::Wrong(why) => return Err(why),
                End::Broken(why)
                    if since.is_multiple_of(2) && shared.fronts.load(Ordering::SeqCst) == since =>
                {
                    return Err(format!(
                        "{ask:?}: the connection broke, and its component lived: {why}"
                    ));
                }
                End::Broken(_) => &shared.reset,
            };
            count.fetch_add(1, Ordering::Relaxed);
            if !stays {
                break;
            }
        }
    }
    Ok(())
}

/// Asks until each kind of request has its right answer.
fn until_served(site: &Site) {
    for ask in [Ask::Dynamic(64), Ask::File(64), Ask::Echo(64)] {
        until_right(site, ask);
    }
}

fn until_right(site: &Site, ask: Ask) {
    loop {
        let socket = connect(site).expect("the supervisor's socket listens");
        if let (End::Right, _) = ask.on(&mut BufReader::new(socket)) {
            break;
        }
    }
}

fn connect(site: &Site) -> std::io::Result<UnixStream> {
    UnixStream::connect(site.dir.path().join("web.sock"))
}

/// Waits until there is one pool for each component, and no buffer of a request is in use.
fn until_at_rest(site: &Site) {
    loop {
        let (status, text) = site.get("/dynamic/status");
        let text = String::from_utf8(text).expect("JSON");
        let number = |part: &str| {
            part.split_once(',')
                .and_then(|(n, _)| n.parse::<u64>().ok())
        };
        let live = text.split("\"live_bytes\":").skip(1).map(number);
        let live: Vec<u64> = live.map(|n| n.expect("a number")).collect();
        if status == 200 && live.len() == COMPONENTS.len() && live.iter().sum::<u64>() <= AT_REST {
            return;
        }
        std::thread::yield_now();
    }
}

/// Returns the processes of the components.
fn components(site: &Site) -> BTreeMap<&'static str, u32> {
    let pid = |name| Some((name, site.pid(name)?));
    COMPONENTS.into_iter().filter_map(pid).collect()
}

/// Returns resident bytes of memory that components share; `None` where only root may look.
fn resident(site: &Site) -> Option<u64> {
    let held = Held::by(components(site).into_values());
    held.ok().map(|held| held.resident())
}

#[test]
fn a_killed_component_costs_its_requests_and_nothing_else() {
    let dog = Watchdog::new();
    let kills = tranship_testkit::kills(20, 1000);
    let mut random = Random::printed("kills");
    let site = Site::start(&[]);
    for size in SIZES {
        let file = site.dir.path().join("site").join(size.to_string());
        std::fs::write(file, vec![b'f'; size]).expect("a file");
    }
    // It listens before its components are there.
    drop(site.client());
    // Each kind once: a component has counters for the pools that have come to it.
    for size in SIZES {
        for ask in [Ask::Dynamic(size), Ask::File(size), Ask::Echo(size.max(1))] {
            until_right(&site, ask);
        }
    }
    until_at_rest(&site);
    let before = resident(&site);
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let seed = random.next();
                let (site, shared) = (&site, &shared);
                scope.spawn(move || {
                    let done = client(site, shared, Random::seeded(seed));
                    if done.is_err() {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        for kill in 0..kills {
            random.instant(BETWEEN);
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let alive = components(&site);
            assert_eq!(alive.len(), COMPONENTS.len(), "{alive:?}");
            let at = usize::try_from(random.below(alive.len() as u64)).expect("few");
            let (name, pid) = alive.iter().nth(at).expect("a component");
            if *name == "front" {
                shared.fronts.fetch_add(1, Ordering::SeqCst);
            }
            dog.step(format_args!("kill {kill}: {name}"));
            site.kill(name);
            // Another process is there, and serves; the others are those that were there.
            let now = loop {
                let now = components(&site);
                if now.get(*name).is_some_and(|new| new != pid) && now.len() == alive.len() {
                    break now;
                }
                std::thread::yield_now();
            };
            if *name == "front" {
                shared.fronts.fetch_add(1, Ordering::SeqCst);
            }
            until_served(&site);
            let others = |all: &BTreeMap<&'static str, u32>| {
                let mut all = all.clone();
                all.remove(*name);
                all
            };
            assert_eq!(others(&now), others(&alive), "only {name} was killed");
        }
        shared.stop.store(true, Ordering::Relaxed);
        for client in clients {
            client
                .join()
                .expect("a client")
                .expect("every answer is right, a refusal, or a reset");
        }
    });
    let [right, refused, reset] =
        [&shared.right, &shared.refused, &shared.reset].map(|count| count.load(Ordering::Relaxed));
    println!("{kills} kills: {right} right answers, {refused} of 5xx, {reset} resets");
    assert!(right > kills);
    // A client has one request under way.
    assert!(
        refused + reset <= kills * CLIENTS,
        "a death costs at most the requests under way"
    );
    until_at_rest(&site);
    let after = resident(&site);
    println!("{before:?} bytes of shared memory before, {after:?} after");
    site.stop();
}
