//! What the ends agree on, what they refuse, and what is left of them when they are over: on every backend.

use crate::cases::{address, bytes, copied, domain, event, moved, pair, pair_with, settle};
use std::sync::Arc;
use tranship_bulk::{
    BufferState, ChannelState, Constraints, Direction, EndOptions, Event, Kind, Role, Trust,
};
use tranship_transport::Backend;

const PAGE: usize = 4096;

/// Ends that are over go with their handles, and with them what they had; a name that nobody bound is free again.
pub fn forgotten(backend: &Arc<dyn Backend>) {
    let (a, b) = (domain(backend), domain(backend));
    let address = address();
    let options = || EndOptions::new(Trust::Half);
    for round in 0..3 {
        // The same name: the end before this one is gone.
        let source = a.create(&address, Direction::Source, options());
        drop(source.expect("create"));
        let source = a.create(&address, Direction::Source, options());
        let source = source.expect("create again");
        let (sink, _) = b.bind(&address, options()).expect("bind");
        settle(&[&source, &sink]);
        assert!(matches!(event(&sink), Event::Bound(Ok(_))));
        let pool = a.pool(3, PAGE as u64, false).expect("pool");
        let asked = source.assign(pool.info().id).expect("assign");
        settle(&[&source, &sink]);
        assert_eq!(asked.result(), Some(Ok(())));
        for _ in 0..2 {
            let _ = source
                .move_(pool.alloc().expect("alloc"), &[])
                .expect("move");
        }
        let copied_one = pool.alloc().expect("alloc");
        let _ = source.copy(&copied_one, &[]).expect("copy");
        let (taken, _) = moved(&sink);
        settle(&[&source, &sink]);
        assert_eq!(b.channels(), 1, "round {round}");
        // The other end dies, as far as this one sees.
        source.abandon();
        settle(&[&sink]);
        assert_eq!(sink.state(), ChannelState::Closed);
        // What was not looked at goes with the handle; what the program has keeps the end, and its memory.
        drop(sink);
        assert_eq!((b.channels(), taken.len()), (1, PAGE));
        drop(taken);
        assert_eq!(b.channels(), 0);
        drop(source);
        assert_eq!(a.channels(), 0);
        pool.destroy().expect("destroy");
    }
    // A bind that was refused leaves nothing either.
    let source = a.create(&address, Direction::Source, options());
    let source = source.expect("create");
    let (sink, asked) = b
        .bind(&address, EndOptions::new(Trust::Full))
        .expect("bind");
    settle(&[&source, &sink]);
    assert_eq!(asked.result(), Some(Err(Kind::ChannelBind.into())));
    drop(sink);
    assert_eq!(b.channels(), 0);
}

/// What was copied to a creator that died stays read-only, as others may have it from there; the end goes with its handle.
pub fn copied_to_a_dead_creator(backend: &Arc<dyn Backend>) {
    let p = pair(backend, Trust::Half);
    let pool = p.assigned(&p.sink, &p.b, 1);
    let own = pool.alloc().expect("alloc");
    let _ = p.sink.pass(own, &[]).expect("pass");
    let (buffer, _) = moved(&p.source);
    let _ = p.source.copy(&buffer, &[]).expect("copy");
    p.settle();
    p.sink.abandon();
    p.until(|| p.source.state() == ChannelState::Closed);
    assert_eq!(buffer.state(), BufferState::ReadOnlyOwned);
    let (a, source) = (p.a, p.source);
    drop(source);
    assert_eq!(
        (a.channels(), buffer.state()),
        (1, BufferState::ReadOnlyOwned)
    );
    drop(buffer);
    assert_eq!(a.channels(), 0);
}

pub fn negotiation(backend: &Arc<dyn Backend>) {
    for creator_trust in Trust::ALL {
        for binder_trust in Trust::ALL {
            for creator in Role::ALL {
                for binder in Role::ALL {
                    let (a, b) = (domain(backend), domain(backend));
                    let address = address();
                    let options = EndOptions::new(creator_trust).role(creator);
                    let end = a
                        .create(&address, Direction::Sink, options)
                        .expect("create");
                    let options = || EndOptions::new(binder_trust).role(binder);
                    let (other, asked) = b.bind(&address, options()).expect("bind");
                    settle(&[&end, &other]);
                    let fits = creator_trust == binder_trust
                        && (creator != binder || creator == Role::Generic);
                    if !fits {
                        assert_eq!(asked.result(), Some(Err(Kind::ChannelBind.into())));
                        assert_eq!(end.state(), ChannelState::Initialized);
                        assert_eq!(other.state(), ChannelState::Uninitialized);
                        continue;
                    }
                    assert_eq!(asked.result(), Some(Ok(())));
                    let (here, there) = (end.direction_and_role(), other.direction_and_role());
                    let (Some((_, here)), Some((direction, there))) = (here, there) else {
                        panic!("not connected");
                    };
                    assert_eq!((direction, here.other()), (Direction::Source, there));
                    let fixed = match (creator, binder) {
                        (Role::Generic, Role::Generic) => Role::Master,
                        (Role::Generic, binder) => binder.other(),
                        (creator, _) => creator,
                    };
                    assert_eq!(here, fixed);
                }
            }
        }
    }
}

pub fn vetoes(backend: &Arc<dyn Backend>) {
    let small = |info: &tranship_bulk::PoolInfo| match info.buffers {
        0..=2 => Ok(()),
        _ => Err(Kind::PoolVeto.into()),
    };
    let binder = EndOptions::new(Trust::Half).accept(small);
    let p = pair_with(backend, EndOptions::new(Trust::Half), binder);
    let pool = p.a.pool(3, PAGE as u64, false).expect("pool");
    let id = pool.info().id;
    let asked = p.source.assign(id).expect("assign");
    assert_eq!(
        p.source.assign(id).expect_err("twice"),
        Kind::PoolAlreadyAssigned
    );
    p.settle();
    assert_eq!(asked.result(), Some(Err(Kind::PoolVeto.into())));
    let refused = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect_err("not assigned");
    assert_eq!(refused.kind(), Kind::PoolNotAssigned);
    assert_eq!(
        p.source.remove(id).expect_err("not assigned"),
        Kind::PoolNotAssigned
    );
    pool.destroy().expect("destroy");
    // One that is welcome, taken off, and put on again.
    let pool = p.assigned(&p.source, &p.a, 2);
    let id = pool.info().id;
    assert!(matches!(event(&p.sink), Event::PoolAssigned(_)));
    let _ = p
        .source
        .move_(pool.alloc().expect("alloc"), &[])
        .expect("move");
    let (buffer, _) = moved(&p.sink);
    let asked = p.source.remove(id).expect("remove");
    p.settle();
    assert_eq!(asked.result(), Some(Err(Kind::PoolInUse.into())));
    drop(buffer);
    drop(moved(&p.source));
    let asked = p.source.remove(id).expect("remove");
    p.settle();
    assert_eq!(asked.result(), Some(Ok(())));
    assert!(matches!(event(&p.sink), Event::PoolRemoved(gone) if gone == id));
    let asked = p.source.assign(id).expect("assign");
    p.settle();
    assert_eq!(asked.result(), Some(Ok(())));
}

pub fn constraints(backend: &Arc<dyn Backend>) {
    let big = Constraints {
        min_buffer_bytes: 2 * PAGE as u64,
        ..Constraints::default()
    };
    let nowhere = Constraints {
        max_address: PAGE as u64,
        ..Constraints::default()
    };
    let binder = |constraints| EndOptions::new(Trust::Full).constraints(constraints);
    let p = pair_with(backend, EndOptions::new(Trust::Full), binder(big));
    let pool = p.a.pool(1, PAGE as u64, false).expect("pool");
    assert_eq!(
        p.source.assign(pool.info().id).expect_err("small"),
        Kind::BadArgument
    );
    let p = pair_with(backend, EndOptions::new(Trust::Full), binder(nowhere));
    let pool = p.a.pool(1, PAGE as u64, false).expect("pool");
    assert_eq!(
        p.source.assign(pool.info().id).expect_err("address"),
        Kind::BadArgument
    );
    let (a, b) = (domain(backend), domain(backend));
    let address = address();
    let small = Constraints {
        max_buffer_bytes: PAGE as u64,
        ..Constraints::default()
    };
    let end = a
        .create(&address, Direction::Source, binder(small))
        .expect("create");
    let (other, asked) = b.bind(&address, binder(big)).expect("bind");
    settle(&[&end, &other]);
    assert_eq!(asked.result(), Some(Err(Kind::ChannelBind.into())));
}

pub fn refusals(backend: &Arc<dyn Backend>) {
    let a = domain(backend);
    let options = || EndOptions::new(Trust::Full);
    let source = Direction::Source;
    let address = address();
    for wrong in ["nothing", "unknown:x", "test:"] {
        assert_eq!(
            a.create(wrong, source, options()).expect_err(wrong),
            Kind::InvalidEndpoint
        );
    }
    assert_eq!(
        a.bind(&address, options()).expect_err("nobody"),
        Kind::InvalidEndpoint
    );
    let long = options().meta_bytes(2049);
    assert_eq!(
        a.create(&address, source, long).expect_err("meta"),
        Kind::BadArgument
    );
    let crooked = Constraints {
        align_bytes: 12,
        ..Constraints::default()
    };
    let crooked = options().constraints(crooked);
    assert_eq!(
        a.create(&address, source, crooked).expect_err("align"),
        Kind::BadArgument
    );
    let _end = a.create(&address, source, options()).expect("create");
    assert_eq!(
        a.create(&address, source, options()).expect_err("taken"),
        Kind::InvalidEndpoint
    );
    assert_eq!(a.pool(1, 5, false).expect_err("size"), Kind::AllocSize);
    assert_eq!(
        a.pool(0, PAGE as u64, false).expect_err("count"),
        Kind::AllocCount
    );
    assert_eq!(
        a.pool(u32::MAX, 1 << 40, false).expect_err("much"),
        Kind::AllocCount
    );
    assert_eq!(
        a.pool(1, 1 << 60, false).expect_err("memory"),
        Kind::OutOfMemory
    );
    let pool = a.pool(1, PAGE as u64, false).expect("pool");
    let _only = pool.alloc().expect("alloc");
    assert_eq!(pool.alloc().expect_err("empty"), Kind::AllocCount);
    // A handle of another domain.
    let p = pair(backend, Trust::Full);
    let mine = p.assigned(&p.source, &p.a, 1);
    let refused = p
        .sink
        .pass(mine.alloc().expect("alloc"), &[])
        .expect_err("foreign");
    assert_eq!(refused.kind(), Kind::BufferNotOwned);
}

/// What does not fit comes back, and goes later.
pub fn a_full_channel_changes_nothing(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 2);
    let own = pool.alloc().expect("alloc");
    let mut sent = 0u32;
    let refused = loop {
        match p.source.copy(&own, &[]) {
            Ok(_) => sent += 1,
            Err(code) => break code,
        }
        assert!(sent < 1_000_000, "it never fills");
    };
    assert_eq!(refused, Kind::Full);
    let other = pool.alloc().expect("alloc");
    let other = p.source.move_(other, &[]).expect_err("full");
    assert_eq!(
        (other.kind(), other.unsent.state()),
        (Kind::Full, BufferState::ReadWrite)
    );
    // Not even the bytes of what was to take the others'.
    let mut other = other.unsent;
    other.write(0, &[3; PAGE]).expect("write");
    let other = p.source.full_copy(&own, other, &[]).expect_err("full");
    assert_eq!(
        (other.kind(), other.unsent.state(), bytes(&other.unsent)),
        (Kind::Full, BufferState::ReadWrite, vec![3; PAGE])
    );
    for _ in 0..sent {
        drop(copied(&p.sink));
        let _ = p.source.turn();
    }
    p.settle();
    assert_eq!(own.state(), BufferState::ReadWrite);
    let _ = p
        .source
        .move_(other.unsent, &[])
        .expect("there is room again");
}
