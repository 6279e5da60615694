//! The manager is waited for under no shard's lock: a relay between it and the store tries the lock at each question.

use super::*;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tranship_core::Domain;
use tranship_manager::{Config, Embedded};
use tranship_proto::Request;
use tranship_sys::socket;
use tranship_testkit::Watchdog;

/// Shortest time that an answer is waited for, from before the question on: an attempt after it says nothing.
const WAITED_FOR: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Tried {
    store: OnceLock<Weak<Store>>,
    begun: Mutex<Option<Instant>>,
    /// Notes for each question in time whether the only shard's lock was free.
    free: Mutex<Vec<bool>>,
}

impl Tried {
    fn asked(&self) {
        let store = self.store.get().and_then(Weak::upgrade);
        let begun = *lock(&self.begun);
        if let Some((store, begun)) = store.zip(begun) {
            let is_free = store.shards[0].try_lock().is_ok();
            if begun.elapsed() < WAITED_FOR {
                lock(&self.free).push(is_free);
            }
        }
    }

    fn watch(&self, act: impl FnOnce()) {
        *lock(&self.begun) = Some(Instant::now());
        act();
        *lock(&self.begun) = None;
    }
}

fn pass(from: &OwnedFd, to: &OwnedFd, seen: impl Fn(&[u8])) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(got) = socket::recvmsg(from, &mut bytes, false)
        && got.bytes > 0
    {
        seen(&bytes[..got.bytes]);
        let fds: Vec<_> = got.fds.iter().map(AsFd::as_fd).collect();
        if socket::sendmsg(to, &bytes[..got.bytes], &fds, false).is_err() {
            break;
        }
    }
    let _ = (socket::shutdown(from), socket::shutdown(to));
}

/// Lets one domain through.
fn relay(at: &Path, manager: &Path, tried: &Arc<Tried>) {
    let listener = socket::listen(at, 0o600).expect("listen");
    let (manager, tried) = (manager.to_owned(), Arc::clone(tried));
    std::thread::spawn(move || {
        let domain = socket::accept(&listener).expect("accept");
        let manager = socket::connect(&manager).expect("connect");
        std::thread::scope(|s| {
            s.spawn(|| pass(&manager, &domain, |_| {}));
            pass(&domain, &manager, |bytes| {
                if let Ok(Request::Admit { .. }) = tranship_proto::decode(bytes) {
                    tried.asked();
                }
            });
        });
    });
}

/// A store of one shard, charged to a domain of a manager of its own.
fn with_watched_store(test: impl FnOnce(&Store, &Tried)) {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().expect("a folder");
    let (at, behind) = (folder.path().join("relay"), folder.path().join("manager"));
    let _manager = Embedded::start(Config::default(), Some(&behind)).expect("a manager");
    let tried = Arc::new(Tried::default());
    relay(&at, &behind, &tried);
    let domain = Domain::builder().name("cache").socket(&at).connect();
    let options = StoreOptions {
        domain: Some(domain.expect("a domain")),
        memory: 256 << 20,
        longest: LONGEST,
        shards: 1,
    };
    let store = Arc::new(Store::new(options).expect("a store"));
    let known = tried.store.set(Arc::downgrade(&store));
    known.expect("the first");
    test(&store, &tried);
    let free = lock(&tried.free);
    assert!(free.iter().all(|free| *free), "{free:?}");
}

#[test]
fn a_value_that_grows_has_the_manager_asked_under_no_lock() {
    with_watched_store(|store, tried| {
        while lock(&tried.free).len() < 3 {
            store.put(b"grows", patient(store, 0), 0, 0, Mode::Set);
            for _ in 0..(LONGEST >> 16) {
                let more = patient(store, 1 << 16);
                tried.watch(|| {
                    let grown = store.put(b"grows", more, 0, 0, Mode::Append(None));
                    // If the manager does not answer in time, even this value is evicted for itself.
                    let gone = matches!(grown, Outcome::NoMemory | Outcome::NotStored);
                    assert!(gone || matches!(grown, Outcome::Stored { .. }), "{grown:?}");
                });
            }
        }
    });
}

#[test]
fn the_cleaner_has_the_manager_asked_under_no_lock() {
    with_watched_store(|store, tried| {
        let mut moved = 0;
        let mut numbers = 0..;
        while lock(&tried.free).len() < 3 || moved == 0 {
            let keys: Vec<u32> = numbers.by_ref().take(256).collect();
            for key in &keys {
                let value = patient(store, 4000);
                store.put(&key.to_be_bytes(), value, 0, 0, Mode::Set);
            }
            store.arena().protect();
            for key in keys.iter().step_by(2) {
                store.delete(&key.to_be_bytes(), None);
            }
            // The admitted memory is in use.
            let mut rest = Vec::new();
            while let Ok(value) = store.arena().alloc_admitted(1 << 16) {
                rest.push(value);
            }
            tried.watch(|| store.empty_blocks(16));
            // Relaxed: nobody else counts.
            moved = store.counts.moved.load(Ordering::Relaxed);
        }
    });
}

#[test]
fn what_the_cleaner_has_moved_it_moves_no_second_time() {
    with_watched_store(|store, _| {
        for key in 0..64u32 {
            let stays = usize::from(key % 4 == 0);
            let value = patient(store, 4000 + stays);
            store.put(&key.to_be_bytes(), value, 0, 0, Mode::Set);
        }
        store.arena().protect();
        // One pageblock of the admitted memory is left: after that the manager is asked.
        let mut rest = Vec::new();
        while let Ok(value) = store.arena().alloc_admitted(1 << 16) {
            rest.push(value);
        }
        drop(rest.pop());
        // No block is emptied whole, wherever the others go.
        store.move_away(&store.shards[0], &|value| value.len() == 4000);
        // Relaxed: nobody else counts.
        assert_eq!(store.counts.moved.load(Ordering::Relaxed), 48);
    });
}
