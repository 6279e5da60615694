//! Honest domains: allocate, fill, send, receive, forward, release, die.

use tranship_ledger::order::{PassStep, ReceiptStep, SendStep};

use crate::config::{A, Config};
use crate::state::{Message, Op, State, Thread, Use, status};
use crate::system::Steps;

pub fn steps(config: &Config, state: &State, out: &mut Steps) {
    for d in (0..config.domains).filter(|&d| state.is_alive(d)) {
        if config.is_honest(d) && (d != A || config.writers == 0) {
            match state.thread[usize::from(d)].op {
                Op::Idle => idle(config, state, d, out),
                Op::Receive => out.push(
                    "receives on",
                    d,
                    state.thread[usize::from(d)].queue,
                    receive(config, *state, d),
                ),
                Op::GiveUp => out.push(
                    "gives up",
                    d,
                    state.thread[usize::from(d)].queue,
                    give_up(config, *state, d),
                ),
                Op::Send => {
                    if let Some(next) = send(config, *state, d) {
                        out.push("sends on", d, state.thread[usize::from(d)].queue, next);
                    }
                }
                Op::Pass => {
                    let q = state.thread[usize::from(d)].queue;
                    out.push("passes back on", d, q, pass(config, *state, d));
                }
                Op::LetGo => {
                    let q = state.thread[usize::from(d)].queue;
                    out.push("has moved on", d, q, let_go(config, *state, d));
                }
                Op::Find => unreachable!("what only a writer with handles does"),
            }
        }
        if config.hangs_up & !state.hung_up & 1 << d != 0 {
            let mut next = *state;
            next.hung_up |= 1 << d;
            out.push("hangs up", d, 9, next);
        }
        if config.mortal & 1 << d != 0 && state.deaths < config.deaths {
            let mut next = *state;
            next.alive &= !(1 << d);
            next.deaths += 1;
            next.thread[usize::from(d)] = Thread::default();
            next.held[usize::from(d)] = Default::default();
            out.push("dies", d, 9, next);
        }
    }
}

fn idle(config: &Config, state: &State, d: u8, out: &mut Steps) {
    let i = usize::from(d);
    for (q, &(source, sink)) in config.channels.iter().enumerate() {
        let number = u8::try_from(q).expect("few");
        if sink == d && state.length[q] > 0 && takes(config, state.queue[q]) {
            let message = state.ring[q][0];
            if config
                .parts(message.kind)
                .iter()
                .all(|&s| state.refs[i][s] < config.holds)
            {
                let mut next = *state;
                next.thread[i] = Thread {
                    op: Op::Receive,
                    queue: number,
                    kind: message.kind,
                    ..Thread::default()
                };
                out.push("receives on", d, number, receive(config, next, d));
            }
        }
        let sends = state.queue[q] & status::ASSIGNED != 0
            || (config.source_sends_early && state.queue[q] != 0);
        if let Some(of) = config.back_of(q) {
            passes(config, state, (d, q, of), out);
            continue;
        }
        if source == d && sends && state.queue[q] & status::CLOSED == 0 {
            if state.length[q] < config.ring {
                for kind in config.kinds() {
                    if config.parts(kind).iter().all(|&s| state.held[i][s] > 0) {
                        let mut next = *state;
                        let mut first = 0;
                        for &s in config.parts(kind) {
                            first |= u8::from(d == A && state.slot[s] == Use::Filling) << s;
                        }
                        next.thread[i] = Thread {
                            op: Op::Send,
                            queue: number,
                            kind,
                            first,
                            ..Thread::default()
                        };
                        if config.release_before_sending {
                            for &s in config.parts(kind) {
                                next.refs[i][s] -= 1;
                                next.held[i][s] -= 1;
                            }
                            out.push("releases before it sends on", d, number, next);
                        } else if let Some(next) = send(config, next, d) {
                            out.push("sends on", d, number, next);
                        }
                    }
                }
            }
            if config.closable & 1 << q != 0 {
                let mut next = *state;
                next.queue[q] |= status::CLOSED;
                out.push("closes", d, number, next);
            }
        }
    }
    for s in 0..usize::from(config.slots) {
        let number = u8::try_from(s).expect("few");
        if state.held[i][s] > 0 {
            let mut next = *state;
            next.refs[i][s] -= 1;
            next.held[i][s] -= 1;
            if d == A && state.slot[s] == Use::Filling {
                // Never sent: no counter is asked, the generation stays (or, if it was even, is made odd).
                next.slot[s] = Use::Free;
                next.free_generation(config, s);
            }
            out.push("releases", d, number, next);
        }
        if d == A && state.slot[s] == Use::Free {
            let mut next = *state;
            next.slot[s] = Use::Filling;
            next.refs[i][s] += 1;
            next.held[i][s] += 1;
            if config.even_at_alloc {
                next.publish_generation(config, s);
            }
            out.push("allocates", d, number, next);
        }
    }
}

/// A buffer that it has goes back by `q` to the source of `of`.
fn passes(config: &Config, state: &State, (d, q, of): (u8, usize, usize), out: &mut Steps) {
    let i = usize::from(d);
    if config.channels[q].0 != d || state.length[q] == config.ring {
        return;
    }
    let assigned = state.queue[of] & status::ASSIGNED != 0;
    for kind in (0..config.slots).filter(|&s| assigned && state.held[i][usize::from(s)] > 0) {
        let mut next = *state;
        let queue = u8::try_from(q).expect("few");
        next.thread[i] = Thread {
            op: Op::Pass,
            queue,
            kind,
            ..Thread::default()
        };
        out.push("passes back on", d, queue, pass(config, next, d));
    }
}

fn pass(config: &Config, mut next: State, d: u8) -> State {
    let i = usize::from(d);
    let Thread {
        queue, kind, step, ..
    } = next.thread[i];
    let (q, s) = (usize::from(queue), usize::from(kind));
    match config.pass_back[usize::from(step)] {
        PassStep::Uncount => {
            let of = config.back_of(q).expect("one that leads back");
            next.uncount_rcvd(config, of, s);
        }
        PassStep::Publish => publish(config, &mut next, q, kind),
        PassStep::Release => next.refs[i][s] -= 1,
    }
    if step == 0 {
        // It does nothing more with the buffer than these steps.
        next.held[i][s] -= 1;
    }
    next.thread[i].step += 1;
    if usize::from(step) + 1 == config.pass_back.len() {
        next.thread[i] = Thread::default();
    }
    next
}

/// Whether a sink takes references from a queue.
pub fn takes(config: &Config, queue: u8) -> bool {
    queue & status::RAISED != 0 || (config.sink_takes_early && queue & status::ACCEPTED != 0)
}

fn receive(config: &Config, mut next: State, d: u8) -> State {
    let i = usize::from(d);
    let thread = next.thread[i];
    let q = usize::from(thread.queue);
    let message = next.ring[q][0];
    let (parts, steps) = (config.parts(message.kind), config.receipt(q));
    let (part, step) = (
        usize::from(thread.step) / steps.len(),
        usize::from(thread.step) % steps.len(),
    );
    next.thread[i].step += 1;
    let Some(&s) = parts.get(part) else {
        next.pop(q);
        next.thread[i] = Thread::default();
        return next;
    };
    match steps[step] {
        ReceiptStep::Hold => next.refs[i][s] += 1,
        ReceiptStep::Check => {
            if !config.names(message.generations[s], next.generation[s]) {
                if config.liar.is_none() || config.blame_refusals_on == Some(thread.queue) {
                    next.blame("an honest reference was refused");
                }
                next.thread[i].op = Op::GiveUp;
                next.thread[i].step = u8::from(!steps[..step].contains(&ReceiptStep::Hold));
                return next;
            }
        }
        ReceiptStep::Count => next.count_rcvd(config, q, s),
        ReceiptStep::Fence => {}
    }
    if step == config.relies_after(q) {
        next.held[i][s] += 1;
        if next.slot[s] != Use::Sent {
            next.blame("a domain holds a buffer that the writer has again");
        } else if next.named(s) != message.generations[s] {
            next.blame("a domain holds another buffer than was named");
        } else if config.moves && next.held.iter().map(|held| held[s]).sum::<u8>() > 1 {
            next.blame("two domains have a moved buffer");
        }
    }
    next
}

/// The reference of what was moved goes.
fn let_go(config: &Config, mut next: State, d: u8) -> State {
    let i = usize::from(d);
    for &s in config.parts(next.thread[i].kind) {
        next.refs[i][s] -= 1;
        next.held[i][s] -= u8::from(config.uses_what_it_moved);
    }
    next.thread[i] = Thread::default();
    next
}

/// A stale reference: down again, counted, and on.
fn give_up(config: &Config, mut next: State, d: u8) -> State {
    let i = usize::from(d);
    let q = usize::from(next.thread[i].queue);
    let s = usize::from(next.ring[q][0].kind);
    match next.thread[i].step {
        0 => next.refs[i][s] -= 1,
        1 => next.count_rcvd(config, q, s),
        _ => {
            next.pop(q);
            next.thread[i] = Thread::default();
            return next;
        }
    }
    next.thread[i].step += 1;
    next
}

/// The n-th step of a send: every piece is opened and counted, then one message is published.
fn send_step(config: &Config, thread: Thread, n: usize) -> Option<(usize, SendStep)> {
    let each = config.parts(thread.kind).iter().rev().flat_map(|&s| {
        let steps = if thread.first & 1 << s != 0 {
            &config.send_kept
        } else {
            &config.send_again
        };
        steps
            .iter()
            .filter(|step| !config.aggregates || **step != SendStep::Publish)
            .map(move |&step| (s, step))
    });
    each.chain(config.aggregates.then_some((0, SendStep::Publish)))
        .nth(n)
}

/// `None`: not now.
fn send(config: &Config, mut next: State, d: u8) -> Option<State> {
    let thread = next.thread[usize::from(d)];
    let (q, n) = (usize::from(thread.queue), usize::from(thread.step));
    let (s, step) = send_step(config, thread, n).expect("a send ends with its last step");
    next.slot[s] = Use::Sent;
    match step {
        SendStep::Open => next.publish_generation(config, s),
        SendStep::Count => next = next.count_sent(config, q, s)?,
        SendStep::Publish => {
            publish(config, &mut next, q, thread.kind);
            if config.moves && !config.uses_what_it_moved {
                for &s in config.parts(thread.kind) {
                    next.held[usize::from(d)][s] -= 1;
                }
            }
        }
        SendStep::LetGo | SendStep::Queue => unreachable!("{step:?} with a reference kept"),
    }
    next.thread[usize::from(d)] = match send_step(config, thread, n + 1) {
        Some(_) => Thread {
            step: thread.step + 1,
            ..thread
        },
        None if config.moves => Thread {
            op: Op::LetGo,
            ..thread
        },
        None => Thread::default(),
    };
    Some(next)
}

pub fn publish(config: &Config, next: &mut State, queue: usize, kind: u8) {
    let mut message = Message {
        kind,
        ..Message::default()
    };
    for &s in config.parts(kind) {
        message.generations[s] = next.named(s);
    }
    next.push(queue, message);
}
