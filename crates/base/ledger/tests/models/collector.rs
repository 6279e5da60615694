//! The collector, one shared word at a time.

use tranship_ledger::order::{CollectStep, Phase};

use crate::config::{A, Config};
use crate::manager::is_stale;
use crate::state::{Collector, Q, QUEUED, State, Use, status::ON};
use crate::system::Steps;
use crate::writer;

pub fn steps(config: &Config, state: &State, out: &mut Steps) {
    // An orphan's verdict is the manager's, once the writer is dead; otherwise the writer's own.
    if state.is_alive(A) == config.orphan {
        return;
    }
    for c in 0..usize::from(config.collectors) {
        if state.collector[c].active {
            step(config, state, c, out);
        } else if !writer::has_lock(state) {
            let is_candidate = |s: &usize| match config.writers {
                0 => state.slot[*s] == Use::Sent,
                _ => state.listed[*s],
            };
            for s in (0..usize::from(config.slots)).filter(is_candidate) {
                if config.own_before_the_pass && state.refs[usize::from(A)][s] > 0 {
                    continue;
                }
                let mut next = *state;
                next.listed[s] = false;
                let slot = u8::try_from(s).expect("few");
                next.collector[c] = Collector {
                    active: true,
                    slot,
                    direct: is_direct(config, state),
                    ..Collector::default()
                };
                step(config, &next, c, out);
            }
        }
    }
}

/// Whether the writer is the source of every queue on the reader set, and comes by a handle under the collector's lock only.
fn is_direct(config: &Config, state: &State) -> bool {
    let has_lock = config.writers > 0 || config.channels.iter().all(|(_, sink)| *sink != A);
    let others = |q: usize| config.channels[q].0 != A && config.back_of(q).is_none();
    let on_reader_set = |q: &usize| state.queue[*q] & ON != 0;
    let mut others = (0..config.channels.len()).filter(|q| others(*q) && on_reader_set(q));
    let direct = config.always_direct || (has_lock && others.next().is_none());
    direct && !config.orphan && !config.always_twice
}

fn collection(config: &Config, at: Collector) -> &[CollectStep] {
    match at.direct {
        true => &config.collection_direct,
        false => &config.collection,
    }
}

/// The words of a phase, bit by index.
fn words(config: &Config, state: &State, at: Collector, phase: Phase) -> u8 {
    match phase {
        Phase::Received | Phase::Sent => (0..config.channels.len())
            .filter(|&q| state.queue[q] & ON != 0 && config.back_of(q).is_none())
            .fold(0, |bits, q| bits | 1 << q),
        Phase::References => {
            let own = u8::from(!config.orphan && !config.own_before_the_pass && !at.direct);
            (1..config.domains)
                .filter(|&d| state.reader[usize::from(d)] & ON != 0)
                .fold(own, |bits, d| bits | 1 << d)
        }
        Phase::Own => 1,
    }
}

fn step(config: &Config, state: &State, c: usize, out: &mut Steps) {
    let at = state.collector[c];
    let s = usize::from(at.slot);
    if at.restoring {
        let mut next = *state;
        next.generation[s] = at.even;
        next.collector[c].even = 0;
        next.collector[c].restoring = false;
        next.collector[c].direct = false;
        spare(config, &mut next, c);
        out.push("restores", 100, at.slot, next);
        return;
    }
    if at.keeping {
        let mut next = *state;
        writer::keep(config, &mut next, c);
        out.push("keeps or leaves", 100, at.slot, next);
        return;
    }
    match collection(config, at)[usize::from(at.step)] {
        CollectStep::CheckEpoch => {
            let mut next = *state;
            if is_stale(config, state) {
                spare(config, &mut next, c);
            } else {
                advance(config, &mut next, c);
            }
            out.push("looks at the epoch, slot", 100, at.slot, next);
        }
        CollectStep::Pass | CollectStep::LookAgain => {
            let phase = phase(config, at);
            let unread = words(config, state, at, phase) & !at.read;
            for bit in (0..8).filter(|b| unread & 1 << b != 0) {
                let mut next = *state;
                if phase == Phase::References && !config.is_honest(bit) && at.even != 0 {
                    // Told otherwise by a liar: only after the bump does that make a difference.
                    spare(config, &mut next, c);
                    out.push("is told to spare by ref of", 100, bit, next);
                    next = *state;
                }
                read(config, &mut next, c, phase, bit);
                out.push(label(phase), 100, bit, next);
                if !config.any_order {
                    break;
                }
            }
            if unread == 0 {
                // No word of this kind at all.
                let mut next = *state;
                end_phase(config, &mut next, c);
                out.push("finds none of a kind, slot", 100, at.slot, next);
            }
        }
        CollectStep::Bump => {
            let mut next = *state;
            next.collector[c].even = state.generation[s];
            next.free_generation(config, s);
            advance(config, &mut next, c);
            out.push("bumps", 100, at.slot, next);
        }
        CollectStep::Fence => unreachable!("left out"),
    }
}

fn pass(config: &Config, at: Collector) -> &[Phase] {
    match at.direct {
        true => &config.pass_direct,
        false => &config.pass,
    }
}

fn phase(config: &Config, at: Collector) -> Phase {
    if config.look_again_at_references_only && at.even != 0 {
        return Phase::References;
    }
    pass(config, at)[usize::from(at.phase)]
}

fn label(phase: Phase) -> &'static str {
    match phase {
        Phase::Received => "reads rcvd of queue",
        Phase::References => "reads ref of domain",
        Phase::Sent => "reads sent of queue",
        Phase::Own => "reads the handles of",
    }
}

fn read(config: &Config, next: &mut State, c: usize, phase: Phase, bit: u8) {
    let i = usize::from(bit);
    let s = usize::from(next.collector[c].slot);
    let value = match phase {
        Phase::Received => next.rcvd[i][s],
        Phase::References | Phase::Own if config.writers > 0 && bit == A => next.word[s] & !QUEUED,
        Phase::Own => next.refs[usize::from(A)][s],
        Phase::References => next.refs[i][s],
        Phase::Sent => next.sent[i][s],
    };
    let all = words(config, next, next.collector[c], phase);
    let sent = next.sent[i.min(Q - 1)][s];
    let at = &mut next.collector[c];
    at.read |= 1 << bit;
    if matches!(phase, Phase::References | Phase::Own) {
        if value > 0 {
            return spare(config, next, c);
        }
    } else if config.is_a_liars(i) {
        // Reads whatever makes it go on; anything else would end the pass.
    } else if at.direct {
        if value != sent {
            return spare(config, next, c);
        }
    } else if at.have & 1 << bit == 0 {
        at.have |= 1 << bit;
        at.seen[i] = value;
    } else if config.sums {
        // Some queue of a liar's, if there is one, has the difference that makes the sums equal.
        at.seen[i] = at.seen[i].wrapping_sub(value);
        let sum = at.seen.iter().fold(0u8, |sum, d| sum.wrapping_add(*d));
        if at.read == all && sum != 0 && config.liar.is_none() {
            return spare(config, next, c);
        }
    } else {
        at.have &= !(1 << bit);
        if std::mem::take(&mut at.seen[i]) != value {
            return spare(config, next, c);
        }
    }
    if next.collector[c].read == all {
        end_phase(config, next, c);
    }
}

fn end_phase(config: &Config, next: &mut State, c: usize) {
    let at = &mut next.collector[c];
    at.read = 0;
    at.phase += 1;
    if usize::from(at.phase) == pass(config, *at).len()
        || (config.look_again_at_references_only && at.even != 0)
    {
        at.phase = 0;
        at.have = 0;
        at.seen = Default::default();
        advance(config, next, c);
    }
}

/// Alive, or not to be judged now.
fn spare(config: &Config, next: &mut State, c: usize) {
    let Collector {
        active,
        direct,
        slot,
        even,
        ..
    } = next.collector[c];
    let restoring = even != 0;
    next.collector[c] = Collector {
        active: active && (restoring || config.writers > 0),
        direct: direct && restoring,
        slot,
        even,
        restoring,
        keeping: !restoring && config.writers > 0,
        ..Collector::default()
    };
    if !next.collector[c].active {
        next.collector[c] = Collector::default();
    }
}

fn advance(config: &Config, next: &mut State, c: usize) {
    next.collector[c].step += 1;
    if usize::from(next.collector[c].step) < collection(config, next.collector[c]).len() {
        return;
    }
    let s = usize::from(next.collector[c].slot);
    next.collector[c] = Collector::default();
    if next.slot[s] != Use::Sent {
        next.blame("a buffer is handed out twice");
    }
    for d in 0..config.domains {
        if next.is_alive(d) && config.is_honest(d) && next.holds(d, s) > 0 {
            next.blame("a buffer is collected while an honest domain holds it");
        }
    }
    next.slot[s] = Use::Free;
    next.free_generation(config, s);
}
