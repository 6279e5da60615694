//! Notifications by batch: a carrier is called at each notification, so it can count them.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tranship_core::carrier::{Carrier, Driver, Ends, Handed, Outlet, add_to};
use tranship_core::{ChannelOptions, Domain, Error, ErrorKind, PoolOptions, Sender};

/// Messages of a batch.
const BATCH: u64 = 32;

/// The far end: how often it was told, and how many messages it has taken. It takes all that are there.
#[derive(Default)]
struct Far {
    outlet: Mutex<Option<Outlet>>,
    told: AtomicU64,
    taken: AtomicU64,
}

impl Driver for Far {
    fn stir(&self) {
        // Ordering: relaxed; only the sending thread calls.
        self.told.fetch_add(1, Ordering::Relaxed);
        let mut outlet = self.outlet.lock().expect("no panic");
        while let Some(end) = &mut *outlet {
            match end.try_take() {
                Ok(Some(_)) => {
                    let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
                    end.acknowledge(taken);
                }
                Ok(None) => break,
                Err(_) => *outlet = None,
            }
        }
    }
    fn look(&self) {}
    fn wait(&self, _: Duration, _: &dyn Fn() -> bool) {}
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Far")
    }
}

#[derive(Debug)]
struct Counted(Arc<Far>);

impl Carrier for Counted {
    fn schemes(&self) -> &[&str] {
        &["counted"]
    }
    fn listen(&self, _: &str, _: &str, _: Ends) -> Result<Box<dyn Any + Send + Sync>, Error> {
        Err(ErrorKind::InvalidEndpoint.into())
    }
    fn open(&self, _: &str, _: &str, ends: &Ends) -> Result<Handed, Error> {
        let (outlet, mut handed) = ends.sending("there", 1 << 20)?;
        *self.0.outlet.lock().expect("no panic") = Some(outlet);
        handed.drive(Arc::clone(&self.0) as _);
        Ok(handed)
    }
}

#[test]
fn a_batch_is_one_notification_and_single_messages_are_one_each() {
    let _dog = tranship_testkit::Watchdog::new();
    let domain = Domain::embedded().expect("a domain");
    let far = Arc::new(Far::default());
    add_to(&domain, Arc::new(Counted(Arc::clone(&far))));
    let options = ChannelOptions::new().lines(64);
    let mut sender = domain
        .open_with::<Sender>("counted:x", options)
        .expect("a channel");
    let pool = domain
        .create_pool(PoolOptions::new(1 << 20))
        .expect("a pool");
    let mut told = far.told.load(Ordering::Relaxed);
    let mut since = || {
        let before = std::mem::replace(&mut told, far.told.load(Ordering::Relaxed));
        told - before
    };
    for _ in 0..BATCH {
        sender.send(b"one").expect("sent");
    }
    assert_eq!(since(), BATCH, "inline, each by itself");
    let batch = (0..BATCH).map(|_| b"one");
    assert_eq!(sender.send_many(batch).expect("sent"), 32);
    assert_eq!(since(), 1, "inline, a batch");
    let buffers: Vec<_> = (0..BATCH)
        .map(|_| pool.copy(b"moved").expect("a buffer"))
        .collect();
    assert_eq!(sender.send_many(buffers).expect("sent"), 32);
    assert_eq!(since(), 1, "moves, a batch");
    let buffers = (0..BATCH).map(|_| pool.copy(b"shared").expect("a buffer").freeze());
    let buffers: Vec<_> = buffers.collect();
    assert_eq!(sender.send_many(buffers).expect("sent"), 32);
    assert_eq!(since(), 1, "shares, a batch");
    // A batch of more than the ring has tells when there is no room, and at the end.
    assert_eq!(
        sender.send_many((0..100).map(|_| b"one")).expect("sent"),
        100
    );
    let told = since();
    assert!(
        (2..=4).contains(&told),
        "{told} notifications for 100 messages on 64 lines"
    );
    assert_eq!(far.taken.load(Ordering::Relaxed), 4 * BATCH + 100);
}
