//! Any operation, right or wrong.

use crate::setup::wish;
use proptest::prelude::*;
use tranship_bulk::spec::{BufferId, Op, Piece};
use tranship_bulk::{Direction, Trust};

pub const DOMAINS: u8 = 4;
const CHANNELS: u8 = 7;

fn trust() -> impl Strategy<Value = Trust> {
    prop_oneof![4 => Just(Trust::None), 1 => Just(Trust::Full)]
}

pub fn op() -> impl Strategy<Value = Op> {
    let (domain, channel, pool) = (0..DOMAINS, 0..CHANNELS, 0..3u8);
    let buffer = (0..3u8, 0..2u8).prop_map(|(pool, index)| BufferId { pool, index });
    let at = (domain.clone(), channel.clone());
    let transfer = (domain.clone(), channel.clone(), buffer.clone(), any::<u8>());
    let gathered = (domain.clone(), 0..2u8);
    // Whole pages mostly, so that it can be mapped.
    let part = prop_oneof![
        4 => Just((0u64, 4096u64)),
        1 => Just((100, 10)),
        1 => Just((4096, 0)),
        1 => Just((1, 4096)),
    ];
    let piece = (buffer.clone(), part).prop_map(|(buffer, (offset, len))| Piece {
        buffer,
        offset,
        len,
    });
    let direction = prop_oneof![Just(Direction::Source), Just(Direction::Sink)];
    prop_oneof![
        40 => at.clone().prop_map(|(domain, channel)| Op::Deliver { domain, channel }),
        3 => (domain.clone(), direction, trust())
            .prop_map(|(domain, direction, t)| Op::Create { domain, direction, wish: wish(t) }),
        6 => (domain.clone(), channel.clone(), trust())
            .prop_map(|(domain, channel, t)| Op::Bind { domain, channel, wish: wish(t) }),
        1 => (domain.clone(), any::<bool>()).prop_map(|(domain, forward)| Op::NewPool {
            domain, buffers: 2, buffer_bytes: 4096, forward }),
        1 => (domain.clone(), pool.clone()).prop_map(|(domain, pool)| Op::DestroyPool { domain, pool }),
        1 => (at.clone(), any::<bool>())
            .prop_map(|((domain, channel), veto)| Op::Veto { domain, channel, veto: veto && domain == 0 }),
        8 => (at.clone(), pool.clone())
            .prop_map(|((domain, channel), pool)| Op::Assign { domain, channel, pool }),
        1 => (at.clone(), pool).prop_map(|((domain, channel), pool)| Op::Remove { domain, channel, pool }),
        4 => (domain.clone(), buffer.clone(), any::<u8>())
            .prop_map(|(domain, buffer, data)| Op::Write { domain, buffer, data }),
        8 => transfer.clone().prop_map(|(domain, channel, buffer, meta)| Op::Move { domain, channel, buffer, meta }),
        8 => transfer.clone().prop_map(|(domain, channel, buffer, meta)| Op::Pass { domain, channel, buffer, meta }),
        12 => transfer.clone().prop_map(|(domain, channel, buffer, meta)| Op::Copy { domain, channel, buffer, meta }),
        12 => transfer.prop_map(|(domain, channel, buffer, meta)| Op::Release { domain, channel, buffer, meta }),
        2 => (at.clone(), buffer.clone(), buffer)
            .prop_map(|((domain, channel), from, to)| Op::FullCopy { domain, channel, from, to, meta: 0 }),
        10 => (gathered.clone(), 0..4u8, piece)
            .prop_map(|((domain, aggregate), at, piece)| Op::Insert { domain, aggregate, at, piece }),
        8 => (gathered.clone(), 0..4u8)
            .prop_map(|((domain, aggregate), at)| Op::TakeOut { domain, aggregate, at }),
        10 => (gathered.clone(), channel.clone(), any::<bool>(), any::<u8>())
            .prop_map(|((domain, aggregate), channel, copies, meta)| Op::SendAll { domain, aggregate, channel, copies, meta }),
        6 => gathered.clone().prop_map(|(domain, aggregate)| Op::Map { domain, aggregate }),
        6 => gathered.prop_map(|(domain, aggregate)| Op::Unmap { domain, aggregate }),
        4 => at.clone().prop_map(|(domain, channel)| Op::Forget { domain, channel }),
        1 => at.prop_map(|(domain, channel)| Op::Close { domain, channel }),
        1 => (domain, 0..8u8).prop_map(|(domain, often)| match often {
            0 => Op::Kill { domain },
            _ => Op::Deliver { domain, channel: 0 },
        }),
    ]
}
