//! What can be seen, the limits per user, the helper thread, joining and leaving.

use crate::kit::*;
use std::time::Duration;
use tranship_core::admin::StatRecord;
use tranship_core::error::RefusalCode;
use tranship_core::{Domain, ErrorKind, PoolOptions, Receiver, Sender};
use tranship_manager::{Config, Limits, Rule};
use tranship_proto::Role;

#[test]
fn stat_tells_who_holds_what() {
    let (_dog, a, b) = pair();
    let options = PoolOptions::new(8 * CHUNK as u64)
        .chunk_bytes(CHUNK as u64)
        .name("frames");
    let pool = a.create_pool(options).expect("pool");
    let (mut sender, mut receiver) = link(&a, &b, "cam");
    let _waiting = a.listen::<Receiver>("idle").expect("listen");
    for i in 0..3 {
        sender.send(filled(&pool, CHUNK, i)).expect("send");
    }
    let held = [receiver.recv(), receiver.recv()];
    let stat = b.admin().stat().expect("stat");
    assert!(matches!(&stat[0], StatRecord::Manager(m)
        if m.pid == std::process::id()
            && m.granted_bytes == pool.stats().chunk_bytes_present
            && m.stranded_bytes == 0
            && m.total_bytes >= m.granted_bytes));
    let domain = |id| {
        stat.iter().find_map(|r| match r {
            StatRecord::Domain(d) if d.domain == id => Some(d),
            _ => None,
        })
    };
    let (in_a, in_b) = (domain(a.id()).expect("a"), domain(b.id()).expect("b"));
    assert_eq!((in_a.name.as_str(), in_b.name.as_str()), ("a", "b"));
    assert!(in_a.pid == std::process::id() && in_a.connected);
    let of_pool = stat.iter().find_map(|r| match r {
        StatRecord::Pool(p) if p.pool == pool.id() => Some(p),
        _ => None,
    });
    let of_pool = of_pool.expect("the pool");
    assert_eq!((of_pool.name.as_str(), of_pool.writer), ("frames", a.id()));
    assert_eq!(
        (of_pool.max_bytes, of_pool.chunk_bytes),
        (8 * CHUNK as u64, CHUNK as u64)
    );
    assert_eq!(of_pool.granted_bytes, pool.stats().chunk_bytes_present);
    assert_eq!((of_pool.readers, of_pool.writer_alive), (1, true));
    let channels: Vec<_> = stat
        .iter()
        .filter_map(|r| match r {
            StatRecord::Channel(c) => Some(c),
            _ => None,
        })
        .collect();
    let cam = channels
        .iter()
        .find(|c| c.channel == sender.status().channel)
        .expect("cam");
    assert_eq!(
        (cam.name.as_str(), cam.source, cam.sink),
        ("cam", Some(a.id()), Some(b.id()))
    );
    assert_eq!(
        (cam.taken, cam.lines, &cam.pools),
        (2, 256, &vec![pool.id()])
    );
    let idle = channels.iter().find(|c| c.name == "idle").expect("idle");
    assert_eq!(idle.exported_as, Some(Role::Sink));
    // The manager looks at what is held once a period.
    let hold = || {
        let stat = a.admin().stat().expect("stat").into_iter();
        let mut holds = stat.filter_map(|r| match r {
            StatRecord::Hold(h) if h.domain == b.id() && h.pool == pool.id() => Some(h),
            _ => None,
        });
        holds.next().map(|h| (h.buffers, h.bytes))
    };
    while hold() != Some((2, 2 * CHUNK as u64)) {
        std::thread::yield_now();
    }
    drop(held);
    while hold().is_some_and(|(buffers, _)| buffers > 0) {
        std::thread::yield_now();
    }
}

#[test]
fn pool_statistics_add_up() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 4);
    for i in 0..100 {
        let buf = filled(&pool, CHUNK, i);
        sender.send(buf).expect("send");
        drop(receiver.recv().expect("recv"));
        drop(pool.alloc(10).expect("alloc"));
    }
    let stats = pool.stats();
    assert!(stats.allocs >= 100, "{stats:?}");
    assert!(stats.collected >= 90 && stats.collections > 0, "{stats:?}");
    assert!(stats.collect_ns > 0 && stats.frees >= 90, "{stats:?}");
    assert!(stats.chunk_bytes_present <= stats.quota_bytes, "{stats:?}");
}

#[test]
fn collections_are_counted_where_a_policy_looks() {
    let (_dog, a, b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 4);
    for i in 0..20 {
        sender.send(filled(&pool, CHUNK, i)).expect("send");
        drop(receiver.recv().expect("recv"));
    }
    let counted = pool.stats().collections;
    assert!(counted > 0);
    let figures = || {
        let (_, figures) = b.admin().pool_figures().expect("figures");
        figures.into_iter().find(|p| p.pool == pool.id())
    };
    let record = || {
        let stat = b.admin().stat().expect("stat").into_iter();
        let mut pools = stat.filter_map(|r| match r {
            StatRecord::Pool(p) if p.pool == pool.id() => Some(p),
            _ => None,
        });
        pools.next()
    };
    // The writer reports now and then.
    while figures().is_none_or(|p| p.collections < counted)
        || record().is_none_or(|p| p.collections < counted)
    {
        std::thread::yield_now();
    }
}

/// A buffer that is larger than a chunk is counted like all others.
#[test]
fn pool_statistics_count_buffers_of_all_sizes() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 4);
    let mut expected = 0;
    for len in [0, 100, CHUNK, CHUNK + 1, 3 * CHUNK] {
        for _ in 0..6 {
            drop(pool.alloc(len).expect("alloc"));
            sender.send(filled(&pool, len, 1)).expect("send");
            drop(receiver.recv().expect("recv"));
            expected += 2;
            let stats = pool.stats();
            assert_eq!(stats.allocs, expected, "{len} bytes: {stats:?}");
        }
    }
    let held = pool.alloc(4 * CHUNK).expect("all the others are free");
    let stats = pool.stats();
    assert_eq!((stats.allocs, stats.frees), (expected + 1, expected));
    assert_eq!(stats.collected, expected / 2);
    drop(held);
    let stats = pool.stats();
    assert_eq!((stats.allocs, stats.frees), (expected + 1, expected + 1));
}

#[test]
fn limits_per_user_are_refusals_and_leave_the_rest_alone() {
    let _dog = dog();
    let limits = Limits {
        pools: 2,
        names: 2,
        connections: 2,
        channels: 2,
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::default()
    };
    let a = embedded_with(config);
    let b = join(&a, "b");
    let path = a.socket_path().expect("socket");
    let third = Domain::builder()
        .socket(&path)
        .connect()
        .expect_err("connections");
    assert_eq!(third.kind(), ErrorKind::Limit, "{third}");
    let of = |error: &tranship_core::Error, what: &str| {
        let text = error.to_string();
        assert!(
            text.contains(what) && text.contains("allowed are 2"),
            "{text}"
        );
    };
    of(&third, "connections and domains of this user");
    let pools = [pool(&a, 1), pool(&b, 1)];
    let error = a.create_pool(PoolOptions::new(1 << 20)).expect_err("pools");
    is_refused(&error, RefusalCode::Limit);
    of(&error, "pools and heaps of this user");
    let (mut sender, mut receiver) = link(&a, &b, "x");
    let names = [a.listen::<Receiver>("y"), b.listen::<Receiver>("z")];
    assert!(names.iter().all(Result::is_ok));
    let error = a.listen::<Receiver>("w").expect_err("names");
    is_refused(&error, RefusalCode::Limit);
    of(&error, "names that this user exports or waits for");
    sender.send(filled(&pools[0], 10, 1)).expect("send");
    assert_eq!(receiver.recv().expect("recv").to_vec(), [1; 10]);
    drop(pools);
}

#[test]
fn access_rules_decide_who_may_export_and_bind() {
    let _dog = dog();
    let text =
        "[[export]]\nuid = \"*\"\nname = \"pub/*\"\n[[bind]]\nuid = \"*\"\nname = \"pub/a\"\n";
    let config = Config::parse(text).expect("config");
    let _: &[Rule] = &config.export;
    let a = embedded_with(config);
    let b = join(&a, "b");
    let error = a.listen::<Sender>("private").expect_err("export");
    is_refused(&error, RefusalCode::Access);
    let _other = a.listen::<Sender>("pub/b").expect("export");
    let error = b.open::<Receiver>("pub/b").expect_err("bind");
    is_refused(&error, RefusalCode::Access);
    link(&a, &b, "pub/a");
}

#[test]
fn a_helper_thread_answers_for_a_program_that_does_not() {
    let _dog = dog();
    let a = Domain::builder().name("a").embedded().expect("embedded");
    let path = a.socket_path().expect("socket");
    let b = Domain::builder()
        .name("b")
        .socket(path)
        .helper_thread(true)
        .connect()
        .expect("connect");
    let pool = pool(&a, 64);
    let (mut sender, mut receiver) = link(&a, &b, "x");
    // The assignment and every chunk need b's word; b's own threads do nothing.
    for i in 0..64 {
        sender.send(filled(&pool, CHUNK, i)).expect("send");
    }
    for i in 0..64 {
        assert!(
            receiver
                .recv()
                .expect("recv")
                .to_vec()
                .iter()
                .all(|byte| *byte == i)
        );
    }
    // The writer gives its chunks back, and b's thread unmaps them.
    until(|| {
        a.turn().expect("turn");
        let stat = a.admin().stat().expect("stat");
        stat.iter().any(|r| {
            matches!(r, StatRecord::Manager(m)
            if m.granted_bytes <= CHUNK as u64 && m.stranded_bytes == 0)
        })
    });
}

#[test]
fn no_manager_is_an_error_that_says_what_was_tried() {
    let dir = tempfile_dir();
    let path = dir.join("none.sock");
    let error = Domain::builder()
        .socket(&path)
        .connect()
        .expect_err("nobody");
    assert_eq!(error.kind(), ErrorKind::NoManager);
    let text = error.to_string();
    assert!(text.contains("none.sock (No such file"), "{text}");
    assert!(text.contains("`tranship manager --socket"), "{text}");
}

fn tempfile_dir() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("tranship-none-{}", std::process::id()))
}

#[test]
fn a_domain_that_says_goodbye_is_forgotten() {
    let (_dog, a, b) = pair();
    let id = b.id();
    let second = b.clone();
    drop(b);
    assert!(
        second.admin().is_managed() && second.admin().stat().is_ok(),
        "a clone keeps it"
    );
    drop(second);
    until(|| {
        let stat = a.admin().stat().expect("stat");
        !stat
            .iter()
            .any(|r| matches!(r, StatRecord::Domain(d) if d.domain == id))
    });
}

#[test]
fn an_embedded_manager_goes_with_its_domain_and_links_go_on() {
    let (_dog, a, b) = pair();
    let pool = pool(&b, 4);
    let c = join(&a, "c");
    let (mut sender, mut receiver) = link(&b, &c, "x");
    sender.send(filled(&pool, 100, 1)).expect("send");
    drop(a);
    until(|| {
        let _ = b.turn();
        !b.admin().is_managed()
    });
    for i in 0..50 {
        sender
            .send(filled(&pool, 100, i))
            .expect("existing channels go on");
    }
    for _ in 0..51 {
        receiver.recv().expect("recv");
    }
    let error = b
        .create_pool(PoolOptions::new(1 << 20))
        .expect_err("nothing new");
    assert_eq!(error.kind(), ErrorKind::ManagerAway, "{error}");
    assert_eq!(
        b.admin().stat().expect_err("away").kind(),
        ErrorKind::ManagerAway
    );
    let soon = tranship_core::ChannelOptions::new().timeout(Duration::from_secs(1));
    assert_eq!(
        c.open_with::<Sender>("y", soon).expect_err("away").kind(),
        ErrorKind::ManagerAway
    );
}
