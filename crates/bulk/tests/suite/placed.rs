//! Pools where, and with buffers as, a channel wants them: on every backend, at every level.

use crate::cases::{address, settle_raw};
use std::sync::Arc;
use tranship_bulk::raw::Raw;
use tranship_bulk::{Constraints, Direction, Kind, Role, Trust, Wish};
use tranship_transport::Backend;

const SIZE: u64 = 64 << 10;
const GIB: u64 = 1 << 30;

fn raw(backend: &Arc<dyn Backend>, seal_from: u64) -> Raw {
    let raw = Raw::new();
    raw.add_backend("test", Arc::clone(backend));
    raw.seal_from(seal_from);
    raw
}

/// Both ends put a pool where the channel wants it; one that lies elsewhere is refused by who has it there.
pub fn placed(backend: &Arc<dyn Backend>, trust: Trust, seal_from: u64) {
    let wanted = Constraints {
        align_bytes: SIZE,
        min_address: 16 * GIB,
        max_address: 64 * GIB,
        ..Constraints::default()
    };
    let (a, b) = (raw(backend, seal_from), raw(backend, seal_from));
    let wish = |constraints| Wish {
        role: Role::Generic,
        trust,
        constraints,
    };
    // One end says it, and both keep to it.
    let connect = |constraints: Constraints, back: bool| {
        let address = address();
        let (from, to) = if back { (&b, &a) } else { (&a, &b) };
        let anything = wish(Constraints::default());
        let source = from.create(&address, Direction::Source, anything, 8, None);
        let source = source.expect("create");
        let (sink, bound) = to.bind(&address, wish(constraints), None).expect("bind");
        settle_raw(from, source, to, sink);
        assert_eq!(bound.result(), Some(Ok(())));
        (source, sink)
    };
    let (source, sink) = connect(wanted, false);
    let elsewhere = a.new_pool(3, SIZE, false).expect("pool");
    assert_eq!(
        a.assign(source, elsewhere).map(drop),
        Err(Kind::BadArgument.into())
    );
    let pool = a.new_pool_within(3, SIZE, true, &wanted).expect("pool");
    let asked = a.assign(source, pool).expect("assign");
    settle_raw(&a, source, &b, sink);
    assert_eq!(asked.result(), Some(Ok(())));
    let buffer = (pool, a.alloc(pool).expect("alloc"));
    a.write(buffer, 0, b"placed").expect("write");
    for domain in [&a, &b] {
        let at = domain.address((pool, 0)).expect("here") as u64;
        assert!(at.is_multiple_of(SIZE) && (16 * GIB..64 * GIB - 3 * SIZE + 1).contains(&at));
    }
    a.move_(source, buffer, &[]).expect("move");
    settle_raw(&a, source, &b, sink);
    let mut bytes = [0; 6];
    b.read(buffer, 0, &mut bytes).expect("read");
    assert_eq!(&bytes, b"placed");
    // Known where it lies, it does not come by a channel that wants it elsewhere.
    let high = Constraints {
        min_address: 64 * GIB,
        max_address: 128 * GIB,
        ..wanted
    };
    let (onward, end) = connect(high, true);
    assert_eq!(
        b.assign(onward, pool).map(drop),
        Err(Kind::BadArgument.into())
    );
    settle_raw(&b, onward, &a, end);
    // Where nothing is free there is no pool.
    let nowhere = Constraints {
        max_address: SIZE,
        ..Constraints::default()
    };
    assert_eq!(
        a.new_pool_within(3, SIZE, false, &nowhere).map(drop),
        Err(Kind::PoolMap.into())
    );
    let large = Constraints {
        min_buffer_bytes: 2 * SIZE,
        ..Constraints::default()
    };
    assert_eq!(
        a.new_pool_within(3, SIZE, false, &large).map(drop),
        Err(Kind::BadArgument.into())
    );
    let crooked = Constraints {
        align_bytes: 3,
        ..Constraints::default()
    };
    assert_eq!(
        a.new_pool_within(3, SIZE, false, &crooked).map(drop),
        Err(Kind::BadArgument.into())
    );
}
