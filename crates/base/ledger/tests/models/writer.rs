//! A writer with threads, word by word: handles of its buffers, the mark that one is queued for collection, the queue,
//! and the collector's lock, which a thread that finds a buffer by an id has too.

use tranship_ledger::order::{ReturnStep, SendStep};

use crate::config::{A, Config};
use crate::domain::{publish, takes};
use crate::state::{Collector, Op, QUEUED, SECOND, State, Thread, Use, status};
use crate::system::Steps;

/// Steps of a send before those of its order: what it looks at.
const LOOKS: u8 = 2;

pub fn steps(config: &Config, state: &State, out: &mut Steps) {
    let threads = [A, SECOND];
    for &t in &threads[..usize::from(config.writers)] {
        let thread = state.thread[usize::from(t)];
        let whom = match thread.op {
            Op::Receive | Op::GiveUp | Op::Send | Op::Pass => thread.queue,
            Op::Idle | Op::LetGo | Op::Find => thread.kind,
        };
        let mut push = |what, next| out.push(what, t, whom, next);
        match thread.op {
            Op::Idle => idle(config, state, t, out),
            Op::Pass => unreachable!("the writer passes nothing back"),
            Op::LetGo => push("lets go of", let_go(config, *state, t)),
            Op::Find => push("holds", find(*state, t)),
            Op::Receive => {
                if let Some(next) = receive(config, state, t) {
                    push("receives on", next);
                }
            }
            Op::GiveUp => push("gives up", give_up(config, *state, t)),
            Op::Send => {
                if let Some(next) = send(config, *state, t) {
                    push("sends on", next);
                }
            }
        }
    }
}

/// Whether a thread has the collector's lock.
pub fn has_lock(state: &State) -> bool {
    state
        .thread
        .iter()
        .any(|thread| thread.op == Op::Find || (thread.op == Op::Receive && thread.step == 1))
}

fn is_locked(state: &State) -> bool {
    has_lock(state) || state.collector.iter().any(|c| c.active)
}

fn idle(config: &Config, state: &State, t: u8, out: &mut Steps) {
    let i = usize::from(t);
    let begin = |op, queue, kind| {
        let mut next = *state;
        next.thread[i] = Thread {
            op,
            queue,
            kind,
            ..Thread::default()
        };
        next
    };
    for (q, &(source, sink)) in config.channels.iter().enumerate() {
        let number = u8::try_from(q).expect("few");
        let is_used = |by: &dyn Fn(Op) -> bool| {
            let others = State::threads(A).map(|t| state.thread[t]);
            others.into_iter().any(|o| by(o.op) && o.queue == number)
        };
        // An end of a channel belongs to one thread at a time.
        if sink == A
            && state.length[q] > 0
            && takes(config, state.queue[q])
            && !is_used(&|op| matches!(op, Op::Receive | Op::GiveUp))
            && state.held[i][usize::from(state.ring[q][0].kind)] < config.holds
        {
            let next = begin(Op::Receive, number, state.ring[q][0].kind);
            if let Some(next) = receive(config, &next, t) {
                out.push("receives on", t, number, next);
            }
        }
        if source == A
            && state.queue[q] & (status::ASSIGNED | status::CLOSED) == status::ASSIGNED
            && state.length[q] < config.ring
            && !is_used(&|op| op == Op::Send)
        {
            for kind in (0..config.slots).filter(|&s| state.held[i][usize::from(s)] > 0) {
                if let Some(next) = send(config, begin(Op::Send, number, kind), t) {
                    out.push("sends on", t, number, next);
                }
            }
        }
    }
    for number in 0..config.slots {
        let s = usize::from(number);
        if state.held[i][s] > 0 {
            let mut next = begin(Op::LetGo, 0, number);
            next.held[i][s] -= 1;
            out.push("lets go of", t, number, let_go(config, next, t));
            for other in State::threads(A).take(usize::from(config.writers)) {
                if state.held[other][s] < config.holds {
                    let mut next = *state;
                    next.word[s] += 1;
                    next.held[other][s] += 1;
                    out.push("clones, for one of A's threads,", t, number, next);
                }
            }
        }
        if state.slot[s] == Use::Free {
            let mut next = *state;
            next.slot[s] = Use::Filling;
            next.word[s] = 1;
            next.held[i][s] = 1;
            out.push("allocates", t, number, next);
        }
        // A thread that looks for another id than the present one finds nothing.
        if config.finds
            && state.generation[s] & 1 == 0
            && state.held[i][s] < config.holds
            && (config.find_without_lock || !is_locked(state))
        {
            out.push("looks for", t, number, begin(Op::Find, 0, number));
        }
    }
}

fn hold(next: &mut State, t: u8, s: usize) {
    next.word[s] += 1;
    next.held[usize::from(t)][s] += 1;
    if next.slot[s] != Use::Sent {
        next.blame("a domain holds a buffer that the writer has again");
    }
}

/// The generation was the id's: the reference is counted, and the lock goes.
fn find(mut next: State, t: u8) -> State {
    let s = usize::from(next.thread[usize::from(t)].kind);
    hold(&mut next, t, s);
    next.thread[usize::from(t)] = Thread::default();
    next
}

/// A buffer comes back. `None`: the lock is not to be had.
fn receive(config: &Config, state: &State, t: u8) -> Option<State> {
    let mut next = *state;
    let thread = state.thread[usize::from(t)];
    let (q, s) = (usize::from(thread.queue), usize::from(thread.kind));
    let named = state.ring[q][0].generations[s];
    let back_of = config.back_of(q);
    let first = back_of.map(|of| (of, config.returned[0]));
    if let Some((of, ReturnStep::Uncount)) = first
        && thread.seen == 0
    {
        next.thread[usize::from(t)].seen = 1;
        next.uncount_sent(config, of, s);
        return Some(next);
    }
    next.thread[usize::from(t)].step += 1;
    match thread.step {
        0 if is_locked(state) && !config.take_back_without_lock => return None,
        0 if !config.names(named, state.generation[s]) => {
            if config.liar.is_none() {
                next.blame("an honest reference was refused");
            }
            next.thread[usize::from(t)] = Thread {
                op: Op::GiveUp,
                step: 0,
                ..thread
            };
        }
        0 => {}
        1 if back_of.is_some() && config.exclusive_at_return => {
            let mut others = 1..config.domains;
            if others.any(|d| config.is_honest(d) && next.holds(d, s) > 0) {
                next.blame("a domain holds a buffer that the writer has again");
            }
            next.slot[s] = Use::Filling;
            next.free_generation(config, s);
            next.listed[s] = false;
            next.word[s] = 1;
            next.held[usize::from(t)][s] += 1;
        }
        1 => {
            hold(&mut next, t, s);
            if next.named(s) != named {
                next.blame("a domain holds another buffer than was named");
            }
        }
        2 => match first {
            Some((of, ReturnStep::Hold)) => next.uncount_sent(config, of, s),
            Some((_, ReturnStep::Uncount)) => {}
            None => next.count_rcvd(config, q, s),
        },
        _ => {
            next.pop(q);
            next.thread[usize::from(t)] = Thread::default();
        }
    }
    Some(next)
}

/// Nothing was held: counted, and on.
fn give_up(config: &Config, mut next: State, t: u8) -> State {
    let thread = &mut next.thread[usize::from(t)];
    let (q, s) = (usize::from(thread.queue), usize::from(thread.kind));
    thread.step += 1;
    if thread.step == 1 {
        next.count_rcvd(config, q, s);
    } else {
        next.pop(q);
        next.thread[usize::from(t)] = Thread::default();
    }
    next
}

/// `None`: not now.
fn send(config: &Config, mut next: State, t: u8) -> Option<State> {
    let i = usize::from(t);
    let thread = next.thread[i];
    let (q, s) = (usize::from(thread.queue), usize::from(thread.kind));
    let at = &mut next.thread[i];
    at.step += 1;
    match thread.step {
        // Is it the only handle, and was it never sent?
        0 => at.first = u8::from(next.word[s] == 1),
        1 => at.first &= next.generation[s] & 1,
        step => {
            let order = match thread.first {
                0 => &config.send_kept,
                _ => &config.send_first,
            };
            let step = usize::from(step - LOOKS);
            match order[step] {
                SendStep::LetGo => {
                    next.word[s] = QUEUED;
                    next.held[i][s] -= 1;
                }
                // Another thread may do the same, but with what it loaded before.
                SendStep::Open if thread.first == 0 && thread.seen == 0 => {
                    at.seen = next.generation[s];
                    at.step -= 1;
                }
                SendStep::Open => {
                    if thread.seen & 1 != 0 {
                        next.generation[s] = thread.seen;
                    }
                    next.publish_generation(config, s);
                    next.slot[s] = Use::Sent;
                }
                SendStep::Count => next = next.count_sent(config, q, s)?,
                SendStep::Publish => publish(config, &mut next, q, thread.kind),
                SendStep::Queue => queue(&mut next, s),
            }
            if step + 1 == order.len() {
                // The handle goes, if it has not gone.
                next.thread[i] = Thread::default();
                if !order.contains(&SendStep::LetGo) {
                    next.held[i][s] -= 1;
                    next.thread[i] = Thread {
                        op: Op::LetGo,
                        kind: thread.kind,
                        ..Thread::default()
                    };
                }
            }
        }
    }
    Some(next)
}

fn queue(next: &mut State, s: usize) {
    if std::mem::replace(&mut next.listed[s], true) || next.collector.iter().any(|c| is_at(c, s)) {
        next.blame("a buffer is queued twice");
    }
}

fn is_at(collector: &Collector, s: usize) -> bool {
    collector.active && usize::from(collector.slot) == s
}

/// Steps: the word is loaded (0); the generation, while the handle is the only one (1); compare and swap (2); queue (3).
fn let_go(config: &Config, mut next: State, t: u8) -> State {
    let i = usize::from(t);
    let thread = next.thread[i];
    let s = usize::from(thread.kind);
    let after = |word: u8| if word == 1 { 1 } else { 2 };
    match thread.step {
        0 if config.let_go_in_two_steps => {
            next.word[s] = next.word[s].wrapping_sub(1);
            match next.word[s] {
                0 => next.thread[i].step = 1,
                _ => next.thread[i] = Thread::default(),
            }
        }
        0 => {
            let word = next.word[s];
            if word & !QUEUED == 0 {
                next.blame("a handle goes that was not counted");
            }
            next.thread[i].seen = word;
            next.thread[i].step = after(word);
        }
        1 if next.generation[s] & 1 != 0 => {
            next.word[s] = 0;
            let held = State::threads(A).any(|t| next.held[t][s] > 0);
            if next.slot[s] != Use::Filling || held {
                next.blame("a buffer is freed that somebody has");
            }
            next.slot[s] = Use::Free;
            next.thread[i] = Thread::default();
        }
        1 if config.let_go_in_two_steps => {
            next.word[s] |= QUEUED;
            next.thread[i].step = 3;
        }
        1 => next.thread[i].step = 2,
        2 if next.word[s] == thread.seen => {
            if thread.seen == 1 {
                next.word[s] = QUEUED;
                next.thread[i].step = 3;
            } else {
                next.word[s] = thread.seen.wrapping_sub(1);
                next.thread[i] = Thread::default();
            }
        }
        2 => {
            next.thread[i].seen = next.word[s];
            next.thread[i].step = after(next.word[s]);
        }
        _ => {
            queue(&mut next, s);
            next.thread[i] = Thread::default();
        }
    }
    next
}

/// The collector found the slot alive: it keeps it if nobody has a handle; else the last one that goes queues it.
pub fn keep(config: &Config, next: &mut State, c: usize) {
    let s = usize::from(next.collector[c].slot);
    if config.keep_in_two_steps && next.collector[c].word == 0 {
        next.collector[c].word = next.word[s] | 0x40;
        return;
    }
    let seen = match next.collector[c].word {
        0 => next.word[s],
        word => word & !0x40,
    };
    next.collector[c] = Collector::default();
    if seen == QUEUED && !config.drop_what_is_alive {
        next.listed[s] = true;
    } else {
        next.word[s] = seen & !QUEUED;
    }
}
