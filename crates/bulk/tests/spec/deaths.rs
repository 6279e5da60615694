//! Sequences that random runs find rarely. Most begin where they begin: five channels, two pools.

use crate::setup::wish;
use tranship_bulk::spec::{BufferId, Op};
use tranship_bulk::{Direction, Trust};

/// A buffer of a pool that only its creator assigns.
pub const LENT: BufferId = BufferId { pool: 1, index: 0 };

/// The creator passes the buffer to domain 0, which copies it to the creator, which copies it on to domain 2 and dies. Domain 0
/// learns of the death, and domain 2 still reads.
pub fn a_creator_that_copied_on_dies() -> Vec<Op> {
    let takes = |domain, channel| Op::Deliver { domain, channel };
    let copies = |domain, channel| Op::Copy {
        domain,
        channel,
        buffer: LENT,
        meta: 2,
    };
    vec![
        Op::Pass {
            domain: 1,
            channel: 0,
            buffer: LENT,
            meta: 1,
        },
        takes(0, 0),
        copies(0, 0),
        takes(1, 0),
        copies(1, 1),
        takes(2, 1),
        Op::Kill { domain: 1 },
        takes(0, 0),
    ]
}

/// Domain 1 has lent the buffer to domain 0, to which it has two channels. What was lent is back with the last of them.
pub fn a_domain_with_two_channels_dies() -> Vec<Op> {
    let takes = |domain, channel| Op::Deliver { domain, channel };
    let gives = |domain, channel| Op::Pass {
        domain,
        channel,
        buffer: LENT,
        meta: 1,
    };
    vec![
        gives(1, 0),
        takes(0, 0),
        Op::Kill { domain: 0 },
        takes(1, 0),
        takes(1, 4),
        Op::Write {
            domain: 1,
            buffer: LENT,
            data: 3,
        },
    ]
}

/// Both ends of channel 4 ask for the same pool at the same time, and both are refused.
pub fn both_ends_assign_at_once() -> Vec<Op> {
    let takes = |domain, channel| Op::Deliver { domain, channel };
    let assigns = |domain, channel| Op::Assign {
        domain,
        channel,
        pool: 2,
    };
    let meet = [
        assigns(0, 4),
        assigns(1, 4),
        takes(0, 4),
        takes(1, 4),
        takes(0, 4),
        takes(1, 4),
    ];
    let mut all = vec![
        Op::NewPool {
            domain: 0,
            buffers: 2,
            buffer_bytes: 4096,
            forward: true,
        },
        assigns(0, 0),
        takes(1, 0),
        takes(0, 0),
        takes(1, 0),
        takes(0, 0),
    ];
    all.extend(meet);
    // One alone is welcome.
    all.extend([
        assigns(1, 4),
        takes(0, 4),
        takes(1, 4),
        takes(0, 4),
        takes(1, 4),
    ]);
    all
}

/// Copies of what may be passed on are out for ever when who had them dies: the end stays as long as the pool.
fn an_end_with_copies_out_is_not_forgotten() -> Vec<Op> {
    let buffer = BufferId { pool: 0, index: 0 };
    let (domain, channel) = (0, 0);
    vec![
        Op::Copy {
            domain,
            channel,
            buffer,
            meta: 1,
        },
        Op::Kill { domain: 1 },
        Op::Deliver { domain, channel },
        Op::Forget { domain, channel },
        Op::Deliver { domain, channel: 4 },
        Op::Forget { domain, channel: 4 },
        Op::Kill { domain: 3 },
        Op::Deliver { domain, channel: 3 },
        Op::DestroyPool { domain, pool: 0 },
        Op::Forget { domain, channel },
    ]
}

/// A creator that holds a copy of its own buffer cannot end the pool before it has released it.
fn a_pool_of_which_its_creator_holds_copies_stays() -> Vec<Op> {
    let takes = |domain, channel| Op::Deliver { domain, channel };
    let destroys = Op::DestroyPool { domain: 1, pool: 1 };
    let (channel, buffer, meta) = (0, LENT, 1);
    vec![
        Op::Pass {
            domain: 1,
            channel,
            buffer,
            meta,
        },
        takes(0, 0),
        Op::Copy {
            domain: 0,
            channel,
            buffer,
            meta,
        },
        takes(1, 0),
        Op::Kill { domain: 0 },
        Op::Kill { domain: 2 },
        takes(1, 0),
        takes(1, 4),
        destroys.clone(),
        takes(1, 1),
        destroys.clone(),
        Op::Release {
            domain: 1,
            channel,
            buffer,
            meta,
        },
        destroys,
    ]
}

/// What is about to go back by the channel that it came by is not assigned on.
fn a_pool_that_is_leaving_is_not_passed_on() -> Vec<Op> {
    let takes = |domain, channel| Op::Deliver { domain, channel };
    let assigns = |domain, channel| Op::Assign {
        domain,
        channel,
        pool: 2,
    };
    vec![
        Op::NewPool {
            domain: 0,
            buffers: 2,
            buffer_bytes: 4096,
            forward: true,
        },
        assigns(0, 0),
        takes(1, 0),
        takes(0, 0),
        takes(1, 0),
        takes(0, 0),
        Op::Close {
            domain: 0,
            channel: 0,
        },
        takes(1, 0),
        assigns(1, 1),
    ]
}

/// From nothing: domain 1 takes a pool off one of two channels, its creator passes a buffer over it, agrees, and dies; the death
/// is learned by the other channel first, which is forgotten. The buffer keeps the pool on the one that is left.
pub fn a_removal_that_a_death_overtakes(trust: Trust) -> Vec<Op> {
    let takes = |domain, channel| Op::Deliver { domain, channel };
    let connects = |channel| {
        let (domain, other) = (channel, 1 - channel);
        let create = Op::Create {
            domain,
            direction: Direction::Source,
            wish: wish(trust),
        };
        let bind = Op::Bind {
            domain: other,
            channel,
            wish: wish(trust),
        };
        [create, bind, takes(domain, channel), takes(other, channel)]
    };
    let (domain, pool) = (0, 0);
    let assigns = |channel| {
        let assign = Op::Assign {
            domain,
            channel,
            pool,
        };
        let both = [takes(1, channel), takes(0, channel)];
        [vec![assign], both.to_vec(), both.to_vec()].concat()
    };
    let mut all = [connects(0), connects(1)].concat();
    all.push(Op::NewPool {
        domain,
        buffers: 2,
        buffer_bytes: 4096,
        forward: false,
    });
    all.extend([assigns(0), assigns(1)].concat());
    all.extend([
        Op::Remove {
            domain: 1,
            channel: 1,
            pool,
        },
        Op::Pass {
            domain,
            channel: 1,
            buffer: BufferId { pool, index: 0 },
            meta: 1,
        },
        takes(0, 1),
        Op::Kill { domain },
        takes(1, 0),
        Op::Forget {
            domain: 1,
            channel: 0,
        },
        takes(1, 1),
        takes(1, 1),
        takes(1, 1),
    ]);
    all
}

/// As above, until the removal; then the buffer goes back by the other channel, which is being closed and which domain 1
/// forgets before it dies. What is on its way there is not back before it has been taken.
pub fn a_death_after_an_end_was_forgotten(trust: Trust) -> Vec<Op> {
    let takes = |domain, channel| Op::Deliver { domain, channel };
    let passes = |domain, channel| Op::Pass {
        domain,
        channel,
        buffer: BufferId { pool: 0, index: 0 },
        meta: 1,
    };
    let mut all = a_removal_that_a_death_overtakes(trust);
    let removal = all.iter().position(|op| matches!(op, Op::Remove { .. }));
    let removes = removal.map(|at| all.split_off(at).swap_remove(0));
    let (domain, channel) = (1, 0);
    all.extend([
        Op::Close { domain: 0, channel },
        takes(1, 0),
        takes(0, 0),
        takes(1, 0),
    ]);
    all.extend(removes);
    all.extend([
        passes(0, 1),
        takes(1, 1),
        passes(1, 0),
        takes(0, 1),
        takes(1, 1),
        Op::Forget { domain, channel },
        takes(0, 1),
        Op::Kill { domain },
        takes(0, 1),
        takes(0, 0),
        takes(0, 0),
        takes(0, 0),
    ]);
    all
}

/// Domain 0 closes a channel over which it has shown a pool, before it hears that it was seen; domain 1 sends over it before it hears
/// that it is being closed. What comes is given back, and the channel ends well.
fn what_was_shown_is_used_while_the_channel_is_closed() -> Vec<Op> {
    let takes = |domain, channel| Op::Deliver { domain, channel };
    let (pool, meta) = (2, 1);
    let buffer = BufferId { pool, index: 0 };
    let assigns = |channel| Op::Assign {
        domain: 0,
        channel,
        pool,
    };
    vec![
        Op::NewPool {
            domain: 0,
            buffers: 2,
            buffer_bytes: 4096,
            forward: false,
        },
        assigns(0),
        takes(1, 0),
        takes(0, 0),
        takes(1, 0),
        takes(0, 0),
        assigns(4),
        takes(1, 4),
        takes(0, 4),
        takes(1, 4),
        Op::Close {
            domain: 0,
            channel: 4,
        },
        Op::Move {
            domain: 0,
            channel: 0,
            buffer,
            meta,
        },
        takes(1, 0),
        Op::Copy {
            domain: 1,
            channel: 4,
            buffer,
            meta,
        },
        takes(0, 4),
        takes(0, 4),
        takes(1, 4),
        takes(0, 4),
        Op::Release {
            domain: 0,
            channel: 4,
            buffer,
            meta,
        },
        takes(1, 4),
        takes(1, 4),
        takes(0, 4),
        Op::Forget {
            domain: 0,
            channel: 4,
        },
        Op::Forget {
            domain: 1,
            channel: 4,
        },
    ]
}

/// All of the others.
pub fn all() -> [Vec<Op>; 7] {
    [
        a_creator_that_copied_on_dies(),
        a_domain_with_two_channels_dies(),
        both_ends_assign_at_once(),
        an_end_with_copies_out_is_not_forgotten(),
        a_pool_of_which_its_creator_holds_copies_stays(),
        a_pool_that_is_leaving_is_not_passed_on(),
        what_was_shown_is_used_while_the_channel_is_closed(),
    ]
}
