//! The manager's part: assignments, deaths, queues and readers that leave, epochs; and the writer applying them.

use crate::config::{A, Config};
use crate::state::{MANAGER, Op, QUEUED, State, Use, status};
use crate::system::Steps;
use status::{ACCEPTED, ASSIGNED, CLOSED, GONE, LEAVING, ON, RAISED, TOLD};

fn is_dead(config: &Config, state: &State) -> bool {
    config.manager_dies && !state.is_alive(MANAGER)
}

/// Whether the manager takes a domain for dead.
fn is_gone(config: &Config, state: &State, domain: u8) -> bool {
    let hung_up = config.hang_up_is_death && state.hung_up & 1 << domain != 0;
    hung_up || !state.is_alive(domain)
}

/// Whether the writer may not collect now: the control page's epoch differs from the reader set's, as something is raised that it has
/// not applied. Once what a dead manager sent was read to its end, the control page does not matter.
pub fn is_stale(config: &Config, state: &State) -> bool {
    if is_dead(config, state) {
        let unread = |s: &u8| s & TOLD != 0 && s & (ON | GONE) == 0;
        return state.queue.iter().any(unread) && !config.alone_before_the_end;
    }
    let pending = |s: u8| s & GONE == 0 && ((s & RAISED != 0 && s & ON == 0) || s & LEAVING != 0);
    (0..config.channels.len()).any(|q| pending(state.queue[q]))
        || (0..usize::from(config.domains)).any(|d| state.reader[d] & (LEAVING | GONE) == LEAVING)
}

pub fn steps(config: &Config, state: &State, out: &mut Steps) {
    let collecting = !config.edit_during_a_pass && state.collector.iter().any(|c| c.active);
    let writes = state.is_alive(A) || config.orphan;
    let dead = is_dead(config, state);
    if config.manager_dies && !dead {
        let mut next = *state;
        next.alive &= !(1 << MANAGER);
        out.push("the manager dies", 101, 0, next);
    }
    for (q, &(source, sink)) in config.channels.iter().enumerate() {
        let number = u8::try_from(q).expect("few");
        let is = state.queue[q];
        let mut set = |what, bit, also_off: u8| {
            let mut next = *state;
            next.queue[q] = is & !also_off | bit;
            out.push(what, 101, number, next);
        };
        let told = if config.manager_dies { TOLD } else { RAISED };
        let assigned_after = if config.assigned_before_told {
            RAISED
        } else {
            told
        };
        if dead {
            // Nothing more is said.
        } else if is & ACCEPTED == 0 && state.is_alive(sink) {
            set("the sink accepts queue", ACCEPTED, 0);
        } else if is & ACCEPTED != 0 && is & RAISED == 0 {
            set("raises the epoch for queue", RAISED, 0);
        } else if is & assigned_after != 0 && is & ASSIGNED == 0 {
            set("tells both ends of queue", ASSIGNED, 0);
        } else if is & RAISED != 0 && is & told == 0 {
            set("tells the writer of queue", TOLD, 0);
        } else if must_leave(config, state, q, source, sink) {
            set("raises the epoch to take away queue", LEAVING, 0);
        }
        // The writer, or for an orphan the manager, between two collections.
        if writes && !collecting {
            if is & told != 0 && is & (ON | GONE) == 0 {
                let mut next = *state;
                next.queue[q] |= ON;
                let reader = &mut next.reader[usize::from(sink)];
                if *reader & GONE == 0 {
                    *reader |= ON;
                }
                out.push("the writer adds queue", 101, number, next);
            } else if is & LEAVING != 0 && is & ON != 0 && !returns(config, state, q) {
                let mut next = *state;
                next.queue[q] = is & !ON | GONE;
                out.push("the writer drops queue", 101, number, next);
            }
        }
    }
    for d in 1..config.domains {
        let is = state.reader[usize::from(d)];
        let mut set = |what, bits| {
            let mut next = *state;
            next.reader[usize::from(d)] = bits;
            out.push(what, 101, d, next);
        };
        if !dead && reader_must_leave(config, state, d) {
            set("raises the epoch to take away reader", is | LEAVING);
        } else if writes && !collecting && is & LEAVING != 0 && is & GONE == 0 {
            set("the writer drops reader", is & !ON | GONE);
        }
    }
}

/// Whether something that was passed back from a queue's sink is not taken yet. Its writer takes that before it drops the queue.
fn returns(config: &Config, state: &State, q: usize) -> bool {
    let mut backs = config.backs.iter().filter(|(_, of)| *of == q);
    !config.leave_with_returns && backs.any(|(back, _)| state.length[*back] > 0)
}

/// A queue leaves when its sink is dead, or its source ended and the sink has taken the last message.
fn must_leave(config: &Config, state: &State, q: usize, source: u8, sink: u8) -> bool {
    let is = state.queue[q];
    if is & RAISED == 0 || is & LEAVING != 0 {
        return false;
    }
    let taking = State::threads(sink).any(|t| {
        let thread = state.thread[t];
        matches!(thread.op, Op::Receive | Op::GiveUp) && usize::from(thread.queue) == q
    });
    let drained = (state.length[q] == 0 && !taking) || config.leave_undrained;
    let ended = is_gone(config, state, source) && !config.dead_source_stays;
    is_gone(config, state, sink) || ((is & CLOSED != 0 || ended) && drained)
}

fn reader_must_leave(config: &Config, state: &State, d: u8) -> bool {
    // Its joins come first: the manager's events are in order.
    let joining = config
        .channels
        .iter()
        .zip(state.queue)
        .any(|(&(_, sink), is)| sink == d && is & RAISED != 0 && is & (ON | GONE) == 0);
    is_gone(config, state, d)
        && state.reader[usize::from(d)] & (ON | LEAVING | GONE) == ON
        && !joining
}

/// Nobody does or holds anything, everything was taken and told: then everything must be collectable.
pub fn check_quiescence(config: &Config, state: &mut State) {
    if config.liar.is_some()
        || is_dead(config, state)
        || state.wrong.is_some()
        || state.collector.iter().any(|c| c.active)
    {
        return;
    }
    let domains = 0..config.domains;
    let busy = domains.clone().any(|d| {
        state.is_alive(d)
            && State::threads(d)
                .any(|t| state.thread[t].op != Op::Idle || state.held[t].iter().any(|&h| h > 0))
    });
    let channels = config.channels.iter().enumerate();
    let told = !is_stale(config, state)
        && !channels
            .clone()
            .any(|(q, &(source, sink))| must_leave(config, state, q, source, sink))
        && !domains.clone().any(|d| reader_must_leave(config, state, d));
    let taken = channels
        .clone()
        .all(|(q, _)| state.queue[q] & ON == 0 || state.length[q] == 0);
    if busy || !told || !taken {
        return;
    }
    for s in 0..usize::from(config.slots) {
        let balanced = channels
            .clone()
            .all(|(q, _)| state.queue[q] & ON == 0 || state.sent[q][s] == state.rcvd[q][s]);
        let free = domains.clone().all(|d| {
            let counts = if d == A {
                state.is_alive(A)
            } else {
                state.reader[usize::from(d)] & ON != 0
            };
            !counts || state.refs[usize::from(d)][s] == 0
        });
        // Nobody has a handle: then the collector must find it, and without one.
        let queued = config.writers == 0 || (state.listed[s] && state.word[s] == QUEUED);
        if state.slot[s] == Use::Sent && !(balanced && free && queued) {
            state.blame("a buffer leaks");
        }
    }
}
