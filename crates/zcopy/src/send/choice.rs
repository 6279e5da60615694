//! Which way is cheapest: learnt from what each has cost, by kind of socket and size.
//!
//! For each kind and each doubling of the bytes that may go by reference there is a running mean of nanoseconds a byte for each
//! way. The cheapest is used; now and then another is tried. Tries of a way that is far off become rarer, so that what they cost
//! stays below a hundredth. A way takes over when it is cheaper by a twentieth.

use super::socket::{Route, Socket};
use std::collections::HashMap;
use std::fmt;

/// A way to send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Way {
    /// sendmsg(2): the kernel copies, many pieces in one call.
    Copy,
    /// vmsplice(2) and splice(2): references to pages by way of a pipe.
    Splice,
    /// sendfile(2) from the arena's file.
    File,
    /// MSG_ZEROCOPY: references to pages, and a notification when they are free.
    Notified,
}

const WAYS: [Way; 4] = [Way::Copy, Way::Splice, Way::File, Way::Notified];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Copy => "copy",
            Way::Splice => "vmsplice",
            Way::File => "sendfile",
            Way::Notified => "MSG_ZEROCOPY",
        })
    }
}

/// Below that copying always wins, and nothing else is tried (measured: a page's reference costs what copying 2 KiB does).
const SMALLEST: usize = 1024;
/// From here on references are likely to be cheaper.
const LIKELY: usize = 4096;
/// Sends between two tries of a way that costs about the same.
const PROBE: u32 = 64;
/// A way that costs `n` times as much is tried so much more rarely, at most.
const RAREST: u32 = 4096;
/// Samples of a way before its mean is believed.
const ENOUGH: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    /// Nanoseconds for 1024 bytes.
    cost: f64,
    samples: u32,
    refused: bool,
    /// Sends of this class until it is tried again.
    next: u32,
}

#[derive(Debug, Default)]
struct Class {
    means: [Mean; WAYS.len()],
    current: usize,
    sends: u64,
    changes: u32,
}

/// The state of a decision, for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Kind of socket: `unix`, `loopback`, `remote`, `other`.
    pub route: &'static str,
    /// Up to so many bytes.
    pub up_to_bytes: usize,
    /// The way that is used now.
    pub way: Way,
    /// Sends so far.
    pub sends: u64,
    /// How often the way changed.
    pub changes: u32,
    /// What each way cost that was tried, or that it was refused.
    pub choices: Vec<Choice>,
}

/// What a way costs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// The way.
    pub way: Way,
    /// Nanoseconds for 1024 bytes; 0 if never tried.
    pub ns_per_kib: f64,
    /// How many sends were measured.
    pub samples: u32,
    /// The kernel refused it.
    pub refused: bool,
}

#[derive(Debug, Default)]
pub(super) struct Chooser {
    classes: HashMap<(Route, u32), Class>,
}

fn class_of(bytes: usize) -> u32 {
    bytes.max(1).ilog2()
}

fn index_of(way: Way) -> usize {
    WAYS.iter().position(|known| *known == way).expect("known")
}

impl Chooser {
    /// The way for the next send, and whether to measure it.
    pub(super) fn choose(&mut self, socket: &Socket, bytes: usize) -> (Way, bool) {
        if bytes < SMALLEST {
            return (Way::Copy, false);
        }
        let class = self
            .classes
            .entry((socket.route, class_of(bytes)))
            .or_insert_with(|| Class::new(bytes));
        class.sends += 1;
        if !socket.allows(WAYS[class.current]) {
            class.current = 0;
        }
        let current = class.current;
        // The one in use first.
        let others = (0..WAYS.len()).filter(|index| *index != current);
        for index in std::iter::once(current).chain(others) {
            let way = &WAYS[index];
            let mean = &mut class.means[index];
            if mean.refused || !socket.allows(*way) {
                continue;
            }
            mean.next = mean.next.saturating_sub(1);
            if mean.next == 0 {
                // The current one is measured as often as one that costs the same.
                mean.next = if mean.samples < ENOUGH { 1 } else { PROBE };
                return (*way, true);
            }
        }
        (WAYS[current], false)
    }

    /// A send took so long.
    pub(super) fn learn(&mut self, socket: &Socket, bytes: usize, way: Way, ns: u128, sent: usize) {
        let Some(class) = self.classes.get_mut(&(socket.route, class_of(bytes))) else {
            return;
        };
        #[allow(clippy::cast_precision_loss, reason = "a mean")]
        let cost = ns as f64 * 1024.0 / sent.max(1) as f64;
        let index = index_of(way);
        let mean = &mut class.means[index];
        mean.samples = mean.samples.saturating_add(1);
        mean.cost = if mean.samples == 1 {
            cost
        } else {
            // An interrupt or a sleeping peer says nothing about the way.
            let capped = cost.min(mean.cost * 4.0);
            let weight = if mean.samples <= 8 { 0.25 } else { 0.0625 };
            mean.cost + (capped - mean.cost) * weight
        };
        class.judge(index);
    }

    /// The kernel cannot.
    pub(super) fn refused(&mut self, socket: &Socket, bytes: usize, way: Way) {
        let class = self
            .classes
            .entry((socket.route, class_of(bytes)))
            .or_default();
        class.means[index_of(way)].refused = true;
        class.current = 0;
    }

    pub(super) fn explain(&self) -> Vec<Explanation> {
        let mut all: Vec<_> = self
            .classes
            .iter()
            .map(|((route, size), class)| Explanation {
                route: route.name(),
                up_to_bytes: (2usize << size) - 1,
                way: WAYS[class.current],
                sends: class.sends,
                changes: class.changes,
                choices: WAYS
                    .iter()
                    .zip(&class.means)
                    .filter(|(_, mean)| mean.samples > 0 || mean.refused)
                    .map(|(way, mean)| Choice {
                        way: *way,
                        ns_per_kib: mean.cost,
                        samples: mean.samples,
                        refused: mean.refused,
                    })
                    .collect(),
            })
            .collect();
        all.sort_by_key(|row| (row.route, row.up_to_bytes));
        all
    }
}

impl Class {
    /// Before anything is known: what was cheapest for cold values where this was developed.
    fn new(bytes: usize) -> Class {
        let way = if bytes < LIKELY {
            Way::Copy
        } else {
            Way::Splice
        };
        Class {
            current: index_of(way),
            ..Class::default()
        }
    }

    /// After a sample of a way: is another the cheapest now, and when is this one tried again?
    fn judge(&mut self, sampled: usize) {
        let believed = |mean: &Mean| mean.samples >= ENOUGH && !mean.refused;
        let cheapest = (0..WAYS.len())
            .filter(|&index| believed(&self.means[index]))
            .min_by(|&a, &b| self.means[a].cost.total_cmp(&self.means[b].cost));
        if let Some(cheapest) = cheapest
            && cheapest != self.current
            && (!believed(&self.means[self.current])
                || self.means[cheapest].cost < self.means[self.current].cost * 0.95)
        {
            self.current = cheapest;
            self.changes += 1;
        }
        let best = self.means[self.current].cost;
        let mean = &mut self.means[sampled];
        if sampled != self.current && mean.samples >= ENOUGH && best > 0.0 {
            let ratio = mean.cost / best;
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between the two bounds"
            )]
            let next = (f64::from(PROBE) * (1.0 + 16.0 * (ratio - 1.0).max(0.0)))
                .clamp(f64::from(PROBE), f64::from(RAREST)) as u32;
            mean.next = next;
        }
    }
}

impl Route {
    fn name(self) -> &'static str {
        match self {
            Route::Unix => "unix",
            Route::Loopback => "loopback",
            Route::Remote => "remote",
            Route::Other => "other",
        }
    }
}
