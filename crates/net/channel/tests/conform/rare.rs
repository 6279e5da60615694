//! Sequences that random programs find rarely. All begin with five channels (0 to 1, 1 to 2, 2 to 3, 3 to 0, 1 to 0)
//! and two pools. Only the first pool's buffers may be sent on.

use tranship_model::{BufferId, Op};

const B: BufferId = BufferId { pool: 0, index: 0 };
/// Buffer of a pool that only its writer sends from.
const LENT: BufferId = BufferId { pool: 1, index: 0 };

fn allocs(domain: u8, pool: u8) -> Op {
    let data = 7;
    Op::Alloc { domain, pool, data }
}

fn takes(domain: u8, channel: u8) -> Op {
    Op::Deliver { domain, channel }
}

fn moves(domain: u8, channel: u8, buffer: BufferId) -> Op {
    Op::Move {
        domain,
        channel,
        buffer,
        word: 1,
    }
}

fn sends(domain: u8, channel: u8, buffer: BufferId, keep: bool) -> Op {
    Op::Send {
        domain,
        channel,
        buffer,
        keep,
        word: 2,
    }
}

fn drops(domain: u8, buffer: BufferId) -> Op {
    Op::Drop { domain, buffer }
}

fn freezes(domain: u8, buffer: BufferId) -> Op {
    Op::Freeze { domain, buffer }
}

fn kills(domain: u8) -> Op {
    Op::Kill { domain }
}

fn passes(domain: u8, channel: u8, buffer: BufferId) -> Op {
    Op::Pass {
        domain,
        channel,
        buffer,
        word: 3,
    }
}

fn takes_back(domain: u8, channel: u8) -> Op {
    Op::TakeBack { domain, channel }
}

fn closes(domain: u8, channel: u8) -> Op {
    Op::Close { domain, channel }
}

pub fn all() -> Vec<(&'static str, Vec<Op>)> {
    vec![
        (
            "what was sent on outlives the one in the middle",
            vec![
                allocs(0, 0),
                moves(0, 0, B),
                takes(1, 0),
                moves(1, 1, B),
                kills(1),
                takes(2, 1),
                takes(2, 1),
                allocs(0, 0),
                drops(2, B),
                allocs(0, 0),
            ],
        ),
        (
            "what was sent on outlives its writer",
            vec![
                allocs(0, 0),
                freezes(0, B),
                sends(0, 0, B, false),
                takes(1, 0),
                sends(1, 1, B, true),
                kills(0),
                takes(2, 1),
                drops(1, B),
                // The pool is agreed to there: it goes on.
                sends(1, 1, B, true),
                sends(2, 2, B, true),
                drops(2, B),
            ],
        ),
        (
            "a writer that copied on dies",
            vec![
                allocs(1, 1),
                moves(1, 4, LENT),
                takes(0, 4),
                freezes(0, LENT),
                kills(1),
                takes(0, 4),
                drops(0, LENT),
            ],
        ),
        (
            "what was passed back by one who died is there",
            vec![
                allocs(1, 1),
                moves(1, 4, LENT),
                takes(0, 4),
                passes(0, 4, LENT),
                kills(0),
                takes_back(1, 4),
                allocs(1, 1),
                moves(1, 4, LENT),
                drops(1, LENT),
                allocs(1, 1),
                allocs(1, 1),
            ],
        ),
        (
            "what was lent to the dead is back, over whatever channels",
            vec![
                allocs(1, 1),
                allocs(1, 1),
                moves(1, 4, LENT),
                moves(1, 1, BufferId { pool: 1, index: 1 }),
                takes(2, 1),
                kills(0),
                allocs(1, 1),
                kills(2),
                allocs(1, 1),
            ],
        ),
        (
            "the end of a channel over which something is passed back",
            vec![
                allocs(1, 1),
                moves(1, 4, LENT),
                takes(0, 4),
                passes(0, 4, LENT),
                closes(1, 4),
                allocs(1, 1),
                takes(0, 4),
                allocs(1, 1),
            ],
        ),
        (
            "what was sent before the end is taken, and passed on, after it",
            vec![
                allocs(0, 0),
                moves(0, 0, B),
                closes(0, 0),
                takes(1, 0),
                passes(1, 0, B),
                moves(1, 1, B),
                closes(1, 1),
                takes(2, 1),
                takes(2, 1),
                drops(2, B),
                allocs(0, 0),
            ],
        ),
        (
            "a circle of copies, and a death in it",
            vec![
                allocs(0, 0),
                freezes(0, B),
                sends(0, 0, B, true),
                takes(1, 0),
                sends(1, 4, B, true),
                takes(0, 4),
                sends(1, 1, B, true),
                sends(0, 0, B, true),
                kills(1),
                drops(0, B),
                drops(0, B),
                allocs(0, 0),
                takes(2, 1),
                drops(2, B),
                allocs(0, 0),
            ],
        ),
    ]
}
