//! Sequences around a death that random runs found, shrunk; each begins where they begin: five channels, two pools.

use tranship_bulk::spec::{BufferId, Op};

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
