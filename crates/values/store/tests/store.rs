//! A store with its home and clients, which come, wait, and end.

use std::thread;
use std::time::{Duration, Instant};
use tranship_core::{Domain, ErrorKind, Pool, PoolOptions};
use tranship_store::{Got, Store, StoreOptions, Stores, Value, Wait};
use tranship_testkit::{Watchdog, start_manager};

const MIB: u64 = 1 << 20;
const NOW: Option<Duration> = Some(Duration::ZERO);

fn home(options: StoreOptions) -> (Domain, Store) {
    let domain = Domain::builder()
        .name("home")
        .helper_thread(true)
        .embedded();
    let domain = domain.expect("embedded");
    let store = domain.create_store("store", options).expect("a store");
    (domain, store)
}

fn join(home: &Domain) -> (Domain, Store, Pool) {
    let path = home.socket_path().expect("a socket");
    let domain = Domain::builder()
        .name("client")
        .socket(path)
        .helper_thread(true);
    let domain = domain.connect().expect("connected");
    let store = domain.store("store").expect("the store");
    let pool = pool(&domain);
    (domain, store, pool)
}

fn pool(domain: &Domain) -> Pool {
    let options = PoolOptions::new(16 * MIB).allow_forward(true);
    domain.create_pool(options).expect("a pool")
}

fn value(pool: &Pool, text: &str) -> Value {
    let piece = pool.copy(text.as_bytes()).expect("memory").freeze();
    Value::new(vec![piece]).expect("a piece")
}

fn done(wait: Wait) -> u64 {
    match wait.wait().expect("done") {
        Got::Done(number) => number,
        Got::Value(_) => panic!("a value"),
    }
}

fn text(wait: Wait) -> String {
    match wait.wait().expect("a value") {
        Got::Value(value) => {
            let all: Vec<u8> = value.pieces().iter().flat_map(|p| p.to_vec()).collect();
            String::from_utf8(all).expect("text")
        }
        Got::Done(number) => panic!("done, {number}"),
    }
}

fn kind(wait: Wait) -> ErrorKind {
    wait.wait().expect_err("an error").kind()
}

#[test]
fn values_go_between_all() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let own = pool(&domain);
    let (_a, a, a_pool) = join(&domain);
    let (_b, b, b_pool) = join(&domain);
    done(a.put(b"from a", &value(&a_pool, "a's")));
    done(at_home.put(b"from home", &value(&own, "home's")));
    for store in [&at_home, &a, &b] {
        assert_eq!(text(store.get(b"from a", None)), "a's");
        assert_eq!(text(store.get(b"from home", None)), "home's");
        assert_eq!(kind(store.get(b"nothing", NOW)), ErrorKind::NoSuchName);
        assert_eq!(done(store.bytes()), 9);
    }
    assert_eq!(
        kind(b.put(b"from a", &value(&b_pool, "no"))),
        ErrorKind::NameTaken
    );
    assert_eq!(text(b.take(b"from a", NOW)), "a's");
    assert_eq!(kind(a.delete(b"from a")), ErrorKind::NoSuchName);
}

#[test]
fn a_value_of_several_pieces_stays_where_it_is() {
    let _dog = Watchdog::new();
    let (domain, _at_home) = home(StoreOptions::new());
    let (_a, a, a_pool) = join(&domain);
    let (_b, b, _) = join(&domain);
    let piece = |text: &str| a_pool.copy(text.as_bytes()).expect("memory").freeze();
    let value = Value::new(vec![piece("one"), piece("two")]).expect("pieces");
    done(a.push(b"q", &value, 0, None));
    let Got::Value(got) = b.pop(b"q", NOW).wait().expect("an item") else {
        panic!("an item")
    };
    let ids = |value: &Value| {
        value
            .pieces()
            .iter()
            .map(|piece| piece.id())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&got), ids(&value));
}

#[test]
fn items_of_a_client_that_ended_stop_no_join() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let own = pool(&domain);
    for text in ["one", "two"] {
        done(at_home.push(b"q", &value(&own, text), 0, None));
    }
    let (a_domain, a, _) = join(&domain);
    assert_eq!(text(a.pop(b"q", None)), "one");
    assert_eq!(text(a.pop(b"q", None)), "two");
    done(a.finish(b"q"));
    let joins = at_home.join(b"q");
    drop((a, a_domain));
    let error = joins.wait().expect_err("an item is left");
    assert_eq!(error.kind(), ErrorKind::PeerDied);
    let process = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&process), "{error}");
    done(at_home.join(b"q"));
}

#[test]
fn a_reader_waits_until_a_value_is_there() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let own = pool(&domain);
    let (_a, a, _) = join(&domain);
    let early = a.get(b"later", None);
    let here = at_home.get(b"later", None);
    done(at_home.put(b"later", &value(&own, "now")));
    assert_eq!(text(early), "now");
    assert_eq!(text(here), "now");
    for store in [&a, &at_home] {
        let begun = Instant::now();
        let wait = Some(Duration::from_millis(30));
        assert_eq!(kind(store.get(b"never", wait)), ErrorKind::NoSuchName);
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }
}

#[test]
fn queues_keep_their_order_and_their_limit() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let own = pool(&domain);
    let (_a, a, a_pool) = join(&domain);
    for number in 0..3 {
        done(a.push(b"q", &value(&a_pool, &number.to_string()), 3, None));
    }
    assert_eq!(
        kind(at_home.push(b"q", &value(&own, "no"), 3, NOW)),
        ErrorKind::Full
    );
    assert_eq!(done(a.length(b"q")), 3);
    let waits = at_home.push(b"q", &value(&own, "3"), 3, None);
    for number in 0..4 {
        let store = if number % 2 == 0 { &a } else { &at_home };
        assert_eq!(text(store.pop(b"q", None)), number.to_string());
    }
    done(waits);
    assert_eq!(kind(a.pop(b"q", NOW)), ErrorKind::NoSuchName);
    let joins = a.join(b"q");
    for _ in 0..4 {
        done(at_home.finish(b"q"));
    }
    done(joins);
    assert_eq!(kind(a.finish(b"q")), ErrorKind::BadArgument);
}

#[test]
fn a_wait_that_is_given_up_loses_no_item() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let own = pool(&domain);
    let (_a, a, _) = join(&domain);
    for store in [&a, &at_home] {
        drop(store.pop(b"q", None));
        done(at_home.push(b"q", &value(&own, "item"), 0, None));
        assert_eq!(text(at_home.pop(b"q", NOW)), "item");
    }
    // The item is on its way already when the wait is given up.
    let late = a.pop(b"q", None);
    done(at_home.push(b"q", &value(&own, "item"), 0, None));
    drop(late);
    assert_eq!(text(at_home.pop(b"q", None)), "item");
}

#[test]
fn what_a_dead_process_put_is_there_for_all() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let (a_domain, a, a_pool) = join(&domain);
    let (_b, b, _) = join(&domain);
    done(a.put(b"key", &value(&a_pool, "kept")));
    done(a.push(b"q", &value(&a_pool, "item"), 0, None));
    drop((a, a_pool, a_domain));
    assert_eq!(text(b.get(b"key", NOW)), "kept");
    assert_eq!(text(b.pop(b"q", NOW)), "item");
    assert_eq!(text(at_home.get(b"key", NOW)), "kept");
}

#[test]
fn values_end_with_their_owner_if_asked() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new().end_with_owner(true));
    let (a_domain, a, a_pool) = join(&domain);
    done(a.put(b"key", &value(&a_pool, "gone")));
    drop((a, a_pool, a_domain));
    while at_home.get(b"key", NOW).wait().is_ok() {
        thread::yield_now();
    }
}

#[test]
fn a_reader_keeps_what_was_evicted() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new().quota(10));
    let own = pool(&domain);
    let (_a, a, _) = join(&domain);
    done(at_home.put(b"1", &value(&own, "12345678")));
    let Got::Value(held) = a.get(b"1", NOW).wait().expect("a value") else {
        panic!("a value")
    };
    done(at_home.put(b"2", &value(&own, "87654321")));
    assert_eq!(kind(a.get(b"1", NOW)), ErrorKind::NoSuchName);
    assert_eq!(held.pieces()[0].to_vec(), b"12345678");
    done(a.pin(b"2", true));
    assert_eq!(
        kind(at_home.put(b"3", &value(&own, "123"))),
        ErrorKind::Quota
    );
    assert_eq!(
        kind(at_home.put(b"3", &value(&own, "12345678901"))),
        ErrorKind::Quota
    );
}

#[test]
fn all_write_a_block_and_the_last_one_frees_it() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let (a_domain, a, _) = join(&domain);
    let block = |wait: Wait| match wait.wait().expect("a block") {
        Got::Value(value) => value.into_pieces().remove(0),
        Got::Done(_) => panic!("a block"),
    };
    let at_a = block(a.block(b"b", 100));
    assert_eq!(at_a.to_vec(), [0; 100]);
    let here = block(at_home.attach(b"b"));
    assert_eq!(here.len(), 100);
    assert_eq!(kind(at_home.block(b"b", 1)), ErrorKind::NameTaken);
    done(at_home.detach(b"b"));
    assert_eq!(block(a.attach(b"b")).len(), 100);
    drop((at_a, a, a_domain));
    while at_home.attach(b"b").wait().is_ok() {
        done(at_home.detach(b"b"));
        thread::yield_now();
    }
}

#[test]
fn the_end_of_the_home_is_told() {
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let (_a, a, _) = join(&domain);
    let waits = a.get(b"never", None);
    drop(at_home);
    assert!([ErrorKind::PeerDied, ErrorKind::PeerGone].contains(&kind(waits)));
    assert!([ErrorKind::PeerDied, ErrorKind::PeerGone].contains(&kind(a.delete(b"x"))));
}

#[test]
fn what_is_no_question_is_answered_so() {
    use tranship_service::Services;
    let _dog = Watchdog::new();
    let (domain, at_home) = home(StoreOptions::new());
    let (a_domain, a, a_pool) = join(&domain);
    let client = a_domain.client("store").expect("a client");
    for lie in [&[][..], &[1; 20], &[255; 40], &[10; 3]] {
        let answer = client.call(lie).expect("an answer");
        assert_eq!(answer.to_vec()[0], 7, "{lie:?}");
    }
    let long = a_pool.copy(&[3; 10_000]).expect("memory").freeze();
    assert_eq!(client.call(long).expect("an answer").to_vec()[0], 7);
    assert_eq!(kind(a.get(&[0; 5000], NOW)), ErrorKind::BadArgument);
    assert_eq!(kind(at_home.get(b"x", NOW)), ErrorKind::NoSuchName);
}

#[test]
fn a_manager_that_is_late_with_memory_is_waited_for() {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().expect("a folder");
    let path = folder.path().join("m.sock");
    let manager = start_manager(&path, "[pressure]\nwatch = false\n");
    let join = |name: &str| {
        let domain = Domain::builder().name(name).socket(&path);
        domain.helper_thread(true).connect().expect("connected")
    };
    let (near, far) = (join("home"), join("client"));
    let at_home = near.create_store("store", StoreOptions::new());
    let at_home = at_home.expect("a store");
    let away = far.store("store").expect("the store");
    let others: Vec<Pool> = (0..4).map(|_| pool(&near)).collect();
    manager.stop();
    let (begun, begins) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for store in [&at_home, &away] {
            let begun = begun.clone();
            scope.spawn(move || {
                begun.send(()).expect("a listener");
                let key = if store.is_home() { b"here" } else { b"away" };
                let block = store.block(key, 10).wait();
                assert!(matches!(block, Ok(Got::Value(_))), "{block:?}");
            });
            begins.recv().expect("a caller");
        }
        // Each takes as long as a caller waits that does not want to wait.
        for other in &others {
            let error = other.try_alloc(10).expect_err("the manager stands");
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        }
        manager.resume();
    });
}
