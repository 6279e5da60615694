//! Every kind of error that the ends of channels have is seen at every address where it has a meaning, and changes
//! nothing.

use crate::kit::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tranship_core::{Body, ChannelOptions, Error, ErrorKind, PoolOptions, Released, Sender, Trust};

struct Seen(BTreeSet<ErrorKind>);

impl Seen {
    #[track_caller]
    fn see<T>(&mut self, kind: ErrorKind, result: Result<T, impl Into<Error>>) {
        let error: Error = match result {
            Ok(_) => panic!("expected {kind:?}"),
            Err(error) => error.into(),
        };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().len() > 10, "{error}");
        self.0.insert(kind);
    }
}

/// All of them, but those that only the manager's or the machine's state gives: `core/tests/api`, `hung`, `facts`,
/// `descriptors`, `unreachable`.
const ALL: [ErrorKind; 17] = [
    ErrorKind::Refused,
    ErrorKind::TimedOut,
    ErrorKind::TooLarge,
    ErrorKind::OutOfMemory,
    ErrorKind::Full,
    ErrorKind::PeerGone,
    ErrorKind::PeerDied,
    ErrorKind::BadArgument,
    ErrorKind::NameTaken,
    ErrorKind::SameRole,
    ErrorKind::InvalidEndpoint,
    ErrorKind::ChannelTrust,
    ErrorKind::BufferNotOwned,
    ErrorKind::BufferInvalid,
    ErrorKind::PoolNotAssigned,
    ErrorKind::Stale,
    ErrorKind::PoolPending,
];

#[test]
fn every_kind_where_it_has_a_meaning() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("codes") {
        let scheme = address.split(':').next().expect("a scheme").to_owned();
        let mut seen = Seen(BTreeSet::new());
        opening(&world, &address, &mut seen);
        memory(&world, &address, &mut seen);
        transfers(&world, &address, &mut seen);
        let without: &[ErrorKind] = match scheme.as_str() {
            // One domain has both ends: the pool belongs to both, and no end has to agree.
            "local" => &[
                ErrorKind::PoolNotAssigned,
                ErrorKind::PoolPending,
                ErrorKind::BufferInvalid,
            ],
            "shm" => &[],
            // No pool of the sender's comes there, and so nothing of it can be given back.
            _ => &[
                ErrorKind::Refused,
                ErrorKind::ChannelTrust,
                ErrorKind::PoolNotAssigned,
                ErrorKind::PoolPending,
                ErrorKind::BufferInvalid,
            ],
        };
        let missing = ALL
            .iter()
            .filter(|kind| !seen.0.contains(kind) && !without.contains(kind));
        assert_eq!(
            missing.collect::<Vec<_>>(),
            [&ErrorKind::Full; 0],
            "{address}"
        );
    }
}

fn opening(world: &World, address: &str, seen: &mut Seen) {
    let short = || ChannelOptions::new().timeout(Duration::from_millis(30));
    seen.see(
        ErrorKind::TimedOut,
        world.a.open_with::<Sender>(address, short()),
    );
    seen.see(ErrorKind::InvalidEndpoint, world.a.open::<Sender>("udp:x"));
    let _listener = world.b.listen::<Sender>(address).expect("listen");
    let again = world.a.listen::<Sender>(address);
    let taken = again.map_err(|error| match error.kind() {
        // The error of a port for a name.
        ErrorKind::InvalidEndpoint => {
            Error::because(ErrorKind::NameTaken, "the name is taken", error)
        }
        _ => error,
    });
    seen.see(ErrorKind::NameTaken, taken);
    let long = ChannelOptions::new().timeout(Duration::from_secs(60));
    seen.see(
        ErrorKind::SameRole,
        world.a.open_with::<Sender>(address, long),
    );
}

fn memory(world: &World, address: &str, seen: &mut Seen) {
    let small = PoolOptions::new(64 << 10).chunk_bytes(64 << 10);
    let pool = world.a.create_pool(small).expect("pool");
    seen.see(ErrorKind::TooLarge, pool.alloc(1 << 20));
    let all = pool.alloc(64 << 10).expect("all of it").freeze();
    seen.see(ErrorKind::OutOfMemory, pool.try_alloc(1));
    let (mut to, mut from) = world.channel(&format!("{address}-memory"));
    to.send(all.clone()).expect("send");
    drop(from.recv().expect("recv"));
    to.wait_taken(None).expect("taken");
    let id = all.id();
    drop(all);
    drop(pool.alloc(64 << 10).expect("it is free"));
    let stale = match address.starts_with("shm:") {
        true => pool.lookup(id),
        // No domain was told that id.
        false => pool.lookup(tranship_core::BufferId::new(pool.id(), 0, 77)),
    };
    seen.see(ErrorKind::Stale, stale);
}

fn transfers(world: &World, address: &str, seen: &mut Seen) {
    let quick = || ChannelOptions::new().lines(2);
    // While the test holds it, the receiver does not answer.
    let answers = Arc::new(Mutex::new(()));
    let refuses = || {
        let producers = quick().accept_trust([Trust::Producer]);
        let answers = answers.clone();
        producers.accept_pools(move |offer| {
            drop(answers.lock());
            offer.max_bytes < 2 << 20
        })
    };
    let inside = address.starts_with("local:");
    let b = if inside { &world.a } else { &world.b };
    let ends = |name: &str, receives| {
        connect(
            [&world.a, b],
            &format!("{address}-{name}"),
            quick(),
            receives,
        )
    };
    let (mut to, mut from) = ends("transfers", refuses());
    seen.see(
        ErrorKind::TooLarge,
        to.send(&[0; 41][..]).map_err(|f| f.error),
    );
    seen.see(
        ErrorKind::TimedOut,
        from.recv_timeout(Duration::from_millis(5)),
    );
    let pool_a = pool(&world.a, 1 << 20);
    if address.starts_with("shm:") || inside {
        let large = pool(&world.a, 4 << 20);
        seen.see(ErrorKind::Refused, to.assign(&large));
        let full = pool_of(&world.a, 1 << 20, Trust::Full);
        seen.see(ErrorKind::ChannelTrust, to.assign(&full));
    }
    if address.starts_with("shm:") {
        let at_once = pool_a.alloc(10).expect("alloc");
        let _silent = answers.lock().expect("no panic");
        seen.see(
            ErrorKind::PoolPending,
            to.try_send(at_once).map_err(|f| f.error),
        );
    }
    to.assign(&pool_a).expect("agreed");
    to.send(pool_a.alloc(10).expect("alloc")).expect("move");
    match from.recv().expect("recv").body {
        Body::Buffer(given) => {
            // A buffer that is not of this channel's sender.
            let (mut other, mut elsewhere) = ends("elsewhere", quick());
            let failed = elsewhere.send_back(given).expect_err("it came otherwise");
            seen.see(ErrorKind::PoolNotAssigned, Err::<(), _>(failed.error));
            drop(failed.unsent);
            let half = pool_of(&world.a, 1 << 20, Trust::Half);
            other.send(half.alloc(10).expect("alloc")).expect("move");
            let written = elsewhere.recv().expect("recv").into_buffer_mut();
            let id = written.expect("to be written").id();
            seen.see(ErrorKind::BufferInvalid, half.lookup(id));
            let mine = pool(b, 1 << 20).alloc(10).expect("alloc");
            let failed = from.send_back(mine).map_err(|f| f.error);
            seen.see(ErrorKind::BufferNotOwned, failed);
        }
        // Another domain of this process may not send it.
        Body::BufferMut(given) if inside => {
            let (mut foreign, _from) = connect(
                [&world.b, &world.b],
                &format!("{address}-b"),
                quick(),
                quick(),
            );
            let failed = foreign.send(given).expect_err("not b's");
            seen.see(ErrorKind::BufferNotOwned, Err::<(), _>(failed.error));
            drop(failed.unsent);
        }
        Body::BufferMut(given) => seen.see(
            ErrorKind::BufferNotOwned,
            from.send_back(given).map_err(|f| f.error),
        ),
        other => panic!("{other:?}"),
    }
    let twice = from.send_back(Released(Body::Released(None)));
    seen.see(ErrorKind::BadArgument, twice.map_err(|f| f.error));
    let full = (0..100).find_map(|n| to.try_send((b"more", n)).err());
    seen.see(
        ErrorKind::Full,
        full.map_or(Ok(()), |failed| Err(failed.error)),
    );
    to.abandon();
    let died = loop {
        match from.recv() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    seen.see(ErrorKind::PeerDied, Err::<(), _>(died));
    let (mut to, from) = ends("gone", quick());
    drop(from);
    while !to.status().peer_gone {
        thread::yield_now();
    }
    let failed = to.send(pool_a.copy(b"kept").expect("alloc").freeze());
    let failed = failed.expect_err("gone");
    seen.see(ErrorKind::PeerGone, Err::<(), _>(failed.error));
}
