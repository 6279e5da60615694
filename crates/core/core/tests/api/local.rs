//! Channels inside a process: `local:` addresses. What is the same at every address is in the tests of `channel`.

use crate::kit::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tranship_core::admin::{ChannelStat, StatRecord};
use tranship_core::{ChannelOptions, Domain, ErrorKind, Receiver, Sender, Trust};

fn local(from: &Domain, to: &Domain, name: &str, options: ChannelOptions) -> (Sender, Receiver) {
    let address = format!("local:{name}");
    let listener = to.listen_with::<Receiver>(&address, options.clone());
    let listener = listener.expect("listen");
    let sender = from.open_with::<Sender>(&address, options).expect("open");
    (sender, listener.accept().expect("accept"))
}

/// Both ends may be of one domain, and one thread may have them.
#[test]
fn one_domain_is_enough() {
    let _dog = dog();
    let a = Domain::embedded().expect("embedded");
    let (mut to, mut from) = local(&a, &a, "alone", ChannelOptions::new());
    let pool = pool(&a, 8);
    let shared = pool.copy(b"shared").expect("alloc").freeze();
    to.send(shared.clone()).expect("send");
    let mut moved = pool.copy(b"moved").expect("alloc");
    let at = moved.as_ptr();
    moved[0] = b'M';
    to.send(moved).expect("move");
    let came = from.recv().expect("recv").into_buffer().expect("shared");
    assert_eq!(
        (came.id(), came.bytes()),
        (shared.id(), Some(&b"shared"[..]))
    );
    let mut came = from.recv().expect("recv").into_buffer_mut().expect("moved");
    // The very same, and as writable as it was.
    assert_eq!(came.as_ptr(), at);
    came[4] = b'!';
    assert_eq!(&*came, b"Move!");
    assert!(from.try_recv().expect("nothing").is_none());
}

#[test]
fn levels_that_are_not_taken() {
    let _dog = dog();
    let a = Domain::embedded().expect("embedded");
    let options = ChannelOptions::new().accept_trust([Trust::Producer]);
    let (mut to, _from) = local(&a, &a, "levels", options);
    let buf = pool_of(&a, Trust::Full).alloc(KIB).expect("alloc");
    let failed = to.send(buf).expect_err("not taken");
    assert_eq!(failed.kind(), ErrorKind::ChannelTrust);
    assert!(failed.to_string().contains("`full`"), "{failed}");
}

/// The receiver is asked as at other addresses: once, unless it refuses.
#[test]
fn pools_that_are_not_wanted() {
    let _dog = dog();
    let a = Domain::embedded().expect("embedded");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let options = ChannelOptions::new().accept_pools(move |offer| {
        count.fetch_add(1, Ordering::Relaxed);
        offer.max_bytes <= 4 * CHUNK as u64
    });
    let (mut to, mut from) = local(&a, &a, "unwanted", options);
    let (large, small) = (pool(&a, 8), pool(&a, 4));
    for refused in [1, 2] {
        let buf = large.copy(b"large").expect("alloc");
        let failed = to.send(buf).expect_err("too large");
        assert_eq!(failed.kind(), ErrorKind::Refused, "{failed}");
        assert_eq!(failed.unsent.to_vec(), b"large");
        assert_eq!(asked.load(Ordering::Relaxed), refused);
    }
    assert_eq!(to.assign(&large), Err(ErrorKind::Refused.into()));
    to.assign(&small).expect("small enough");
    for _ in 0..3 {
        to.send(small.copy(b"small").expect("alloc").freeze())
            .expect("send");
        assert_eq!(from.recv().expect("recv").to_vec(), b"small");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn a_buffer_is_sent_by_its_own_domain() {
    let (_dog, a, b) = pair();
    let (mut there, mut from) = local(&a, &b, "there", ChannelOptions::new());
    let (mut back, _to) = local(&b, &a, "back", ChannelOptions::new());
    there
        .send(pool(&a, 4).alloc(KIB).expect("alloc").freeze())
        .expect("send");
    let came = from.recv().expect("recv").into_buffer().expect("shared");
    let failed = back.send(came).expect_err("not b's");
    assert_eq!(failed.kind(), ErrorKind::BufferNotOwned, "{failed}");
}

#[test]
fn a_name_is_taken_once() {
    let (_dog, a, b) = pair();
    let listener = a.listen::<Receiver>("local:once").expect("listen");
    let taken = b.listen::<Receiver>("local:once").expect_err("taken");
    assert_eq!(taken.kind(), ErrorKind::NameTaken, "{taken}");
    drop(listener);
    drop(b.listen::<Receiver>("local:once").expect("free again"));
}

/// The domain goes when the last end has gone, as with other channels.
#[test]
fn ends_keep_their_domain() {
    let (_dog, a, b) = pair();
    let (mut to, mut from) = local(&b, &b, "keeps", ChannelOptions::new());
    let buf = pool(&b, 4).copy(b"kept").expect("alloc");
    let id = b.id();
    let is_there = || {
        a.admin().stat().expect("stat").iter().any(|record| {
        matches!(record, tranship_core::admin::StatRecord::Domain(domain) if domain.domain == id)
    })
    };
    drop(b);
    to.send(buf.freeze()).expect("send");
    assert_eq!(from.recv().expect("recv").to_vec(), b"kept");
    assert!(is_there());
    drop((to, from));
    while is_there() {
        thread::yield_now();
    }
}

/// Returns the manager's records of channels of that address.
fn shown(domain: &Domain, address: &str) -> Vec<ChannelStat> {
    let records = domain.admin().stat().expect("stat").into_iter();
    let of = |record| match record {
        StatRecord::Channel(channel) if channel.name == address => Some(channel),
        _ => None,
    };
    records.filter_map(of).collect()
}

/// The manager lists a local channel, although the channel needs no manager.
#[test]
fn it_is_shown_while_it_is_there() {
    let (_dog, a, b) = pair();
    for (from, to) in [(&a, &a), (&a, &b)] {
        let (mut to_it, mut from_it) = local(from, to, "shown", ChannelOptions::new());
        to_it.send(b"a word").expect("send");
        from_it.recv().expect("recv");
        let ends = (Some(from.id()), Some(to.id()));
        let told = loop {
            match &shown(&b, "local:shown")[..] {
                [one] if one.taken == 1 => break one.clone(),
                // What it says of it is on its way.
                _ => thread::yield_now(),
            }
        };
        assert_eq!((told.source, told.sink), ends, "{told:?}");
        assert_eq!(told.channel, to_it.status().channel);
        assert!(told.place.is_none() && told.ring_bytes > 0, "{told:?}");
        drop((to_it, from_it));
        while !shown(&b, "local:shown").is_empty() {
            thread::yield_now();
        }
    }
}

#[test]
fn the_next_manager_is_shown_it_too() {
    let _dog = dog();
    let first = Domain::embedded().expect("embedded");
    let path = first.socket_path().expect("socket");
    let builder = || Domain::builder().socket(&path).helper_thread(true);
    let a = builder().connect().expect("connect");
    let (_to, _from) = local(&a, &a, "shown again", ChannelOptions::new());
    while shown(&first, "local:shown again").is_empty() {
        thread::yield_now();
    }
    drop(first);
    let next = loop {
        // The first may still be ending.
        match builder().embedded() {
            Ok(next) => break next,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ManagerRunning, "{error}"),
        }
        thread::yield_now();
    };
    while shown(&next, "local:shown again").is_empty() {
        thread::yield_now();
    }
}
