//! Ends whose handles are gone while they are open: on every backend, at every level.

use crate::cases::{Pair, address, copied, domain, event, moved, pair, settle};
use std::sync::Arc;
use tranship_bulk::{
    BufferState, Channel, ChannelState, Direction, Domain, EndOptions, Event, Kind, Trust,
};
use tranship_transport::Backend;

const PAGE: usize = 4096;

/// Something else of the domain, which its program goes on using.
fn another(of: &Domain) -> Channel {
    let options = EndOptions::new(Trust::Full);
    of.create(&address(), Direction::Source, options)
        .expect("create")
}

/// It is closed: what was sent arrives, what the other end has comes back when it lets it go, and nothing is left.
pub fn by_the_source(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 3);
    let own = pool.alloc().expect("alloc");
    let _ = p.source.copy(&own, &[]).expect("copy");
    let mut sent = pool.alloc().expect("alloc");
    sent.write(0, &[7; PAGE]).expect("write");
    let done = p.source.move_(sent, &[8]).expect("move");
    let Pair { a, b, source, sink } = p;
    let else_where = another(&a);
    drop(source);
    let (copy, _) = copied(&sink);
    let (taken, meta) = moved(&sink);
    assert_eq!(meta, [8]);
    taken
        .view(|view| assert_eq!(view.to_vec(), [7; PAGE]))
        .expect("view");
    assert!(matches!(event(&sink), Event::TeardownBegun));
    settle(&[&sink, &else_where]);
    assert_eq!(sink.state(), ChannelState::Teardown);
    assert_eq!((a.channels(), pool.free()), (2, 1));
    assert_eq!(own.state(), BufferState::ReadOnlyOwned);
    drop((copy, taken));
    while sink.state() != ChannelState::Closed {
        settle(&[&sink, &else_where]);
    }
    assert!(matches!(event(&sink), Event::Closed));
    assert_eq!(done.result(), Some(Ok(())));
    assert_eq!((a.channels(), pool.free()), (1, 2));
    assert_eq!(own.state(), BufferState::ReadWrite);
    pool.destroy().expect("destroy");
    drop(sink);
    assert_eq!(b.channels(), 0);
}

/// What is on its way to it, and what was not looked at, goes back.
pub fn by_the_sink(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 4);
    let own = pool.alloc().expect("alloc");
    let send = || {
        let _ = p.source.copy(&own, &[]).expect("copy");
        let buffer = pool.alloc().expect("alloc");
        let _ = p.source.move_(buffer, &[]).expect("move");
    };
    send();
    p.settle();
    send();
    let Pair { a, b, source, sink } = p;
    let else_where = another(&b);
    drop(sink);
    while source.state() != ChannelState::Closed {
        settle(&[&source, &else_where]);
    }
    assert_eq!((b.channels(), own.state()), (1, BufferState::ReadWrite));
    while source.poll_event().expect("event").is_some() {}
    assert_eq!((a.channels(), pool.free()), (1, 3));
    pool.destroy().expect("destroy");
}

/// Whoever holds something of it holds the end, and no longer.
pub fn while_something_is_held(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 2);
    let own = pool.alloc().expect("alloc");
    let _ = p.source.copy(&own, &[]).expect("copy");
    let (copy, _) = copied(&p.sink);
    let Pair { a, b, source, sink } = p;
    drop(sink);
    settle(&[&source]);
    assert_eq!(source.state(), ChannelState::Teardown);
    let mut byte = [1];
    copy.read(0, &mut byte).expect("still here");
    assert_eq!(b.channels(), 1);
    // Nothing else is turned here: letting it go is enough.
    drop(copy);
    settle(&[&source]);
    let empty = b.pool(1, PAGE as u64, false).expect("pool");
    let _only = empty.alloc().expect("alloc");
    while source.state() != ChannelState::Closed || b.channels() > 0 {
        settle(&[&source]);
        assert_eq!(empty.alloc().expect_err("empty"), Kind::AllocCount);
    }
    assert_eq!(a.channels(), 1);
    assert_eq!(own.state(), BufferState::ReadWrite);
}

/// A bind that nobody waits for any more is taken back.
pub fn before_it_is_bound(backend: &Arc<dyn Backend>) {
    let (a, b) = (domain(backend), domain(backend));
    let (address, options) = (address(), || EndOptions::new(Trust::Half));
    let source = a
        .create(&address, Direction::Source, options())
        .expect("create");
    let (sink, asked) = b.bind(&address, options()).expect("bind");
    drop(sink);
    assert_eq!(asked.result(), Some(Err(Kind::ChannelState.into())));
    assert_eq!(b.channels(), 0);
    // What had been asked may have been answered by then.
    let mut ends = 0;
    while source.state() == ChannelState::Initialized && ends < 100 {
        settle(&[&source]);
        ends += 1;
    }
    if source.state() == ChannelState::Initialized {
        let (sink, _) = b.bind(&address, options()).expect("bind");
        settle(&[&source, &sink]);
        assert_eq!(source.state(), ChannelState::Connected);
    }
}
