//! Choice of the cheapest way: learnt from the cost of each, by kind of socket and size.
//!
//! For each kind of socket and each doubling of the bytes that may go by reference, each way has a running mean of
//! nanoseconds a byte, of the thread's processor time. The waiting time of a blocking send says nothing about the way.
//! The cheapest way is used, and now and then another is tried.
//!
//! A try is three sends, of which only the last is measured. The first of them finds its data in no cache, unlike the
//! way in use, so a try costs more than it shows. Tries of a way that is much dearer are rarer. After several tries
//! that change nothing they become rarer still, until the cost of the way in use changes. A way takes over when it is
//! cheaper by a twentieth.

use super::route::Route;
use super::socket::Socket;
use super::way::{Way, Why};
use crate::tally::{Tally, layout};
use std::io;

const WAYS: [Way; 5] = Way::ALL;

/// Size below which copying always wins, and nothing else is tried (measured: a page's reference costs as much as
/// copying 2 KiB).
const SMALLEST: usize = 1024;
/// Size from which on references are likely to be cheaper.
const LIKELY: usize = 4096;
/// Sends between two tries of a way that costs about the same, and between two measurements of the one in use.
const PROBE: u64 = 64;
/// Most sends between two tries of any way.
const RAREST: u64 = 16384;
/// Tries that change nothing until there are half as many.
const FEW: u32 = 4;
/// Relative change after which the cost of the way in use counts as changed.
const DRIFT: f64 = 0.25;
/// Number of logarithms of a send's size.
const SIZES: usize = usize::BITS as usize;
/// Samples of a way before its mean is believed.
const ENOUGH: u32 = 4;
/// Sends of a try that are not measured.
const UNTIMED: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    /// Nanoseconds for 1024 bytes.
    cost: f64,
    samples: u32,
    refused: bool,
    /// Tries in a row that changed nothing.
    in_vain: u32,
    /// The number of the class's send that tries it again.
    due: u64,
}

#[derive(Debug, Default)]
struct Class {
    means: [Mean; WAYS.len()],
    current: usize,
    /// Cost of the way in use when tries began to become rarer; 0: another way was in use.
    cost: f64,
    /// No way is due before this send.
    nearest: u64,
    /// A try that has begun: the way, and its sends that are left.
    trying: Option<(usize, u32)>,
    sends: u64,
    changes: u32,
}

/// The state of a decision, for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Kind of socket: `unix`, `loopback` and `remote` (TCP), `udp-local`, `udp`.
    pub route: &'static str,
    /// Largest size of the class, in bytes.
    pub up_to_bytes: usize,
    /// The way that is used now.
    pub way: Way,
    /// Sends so far.
    pub sends: u64,
    /// Number of changes of the way.
    pub changes: u32,
    /// Cost of each way that was tried, or the note that it was refused.
    pub choices: Vec<Choice>,
}

/// Cost of a way.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// The way.
    pub way: Way,
    /// Nanoseconds for 1024 bytes; 0 if never tried.
    pub ns_per_kib: f64,
    /// Number of sends that were measured.
    pub samples: u32,
    /// The kernel refused it.
    pub refused: bool,
}

#[derive(Debug)]
pub(super) struct Chooser {
    /// Classes for each kind of socket, by the logarithm of the bytes.
    classes: [[Option<Box<Class>>; SIZES]; Route::ALL.len()],
    /// Route of the last stream for which a way was chosen.
    last: Option<Route>,
    /// Page where other processes see it.
    pub(super) tally: Tally,
}

/// Way that was chosen for a send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) way: Way,
    pub(super) why: Why,
    /// The time of the send is to be told to [`Chooser::learn`].
    pub(super) timed: bool,
}

fn class_of(bytes: usize) -> u32 {
    bytes.max(1).ilog2()
}

fn index_of(way: Way) -> usize {
    way.index()
}

impl Chooser {
    pub(super) fn new() -> Chooser {
        Chooser {
            classes: std::array::from_fn(|_| std::array::from_fn(|_| None)),
            last: None,
            tally: Tally::claim(),
        }
    }

    /// Chooses the way for the next send, and whether to measure it.
    pub(super) fn choose(&mut self, socket: &Socket, route: Route, bytes: usize) -> Chosen {
        if bytes < SMALLEST {
            return Chosen {
                way: Way::Copy,
                why: Why::Small,
                timed: false,
            };
        }
        if route.is_stream() {
            self.last = Some(route);
        }
        let number = class_of(bytes);
        let class = self.classes[route.index()][number as usize]
            .get_or_insert_with(|| Box::new(Class::new(route, bytes)));
        class.sends += 1;
        if !socket.allows(route, WAYS[class.current]) {
            class.current = 0;
        }
        let at = layout::size(route.index(), number);
        self.tally.add(at, 1);
        class.publish_use(&self.tally, at);
        let current = class.current;
        let known = class.means[current].samples >= ENOUGH;
        let chosen = |index: usize, timed| Chosen {
            way: WAYS[index],
            why: match (index == current, known) {
                (true, true) => Why::Cheapest,
                (true, false) => Why::Guess,
                (false, _) => Why::Probe,
            },
            timed,
        };
        if let Some((index, left)) = class.trying.take()
            && socket.allows(route, WAYS[index])
        {
            class.trying = left.checked_sub(1).map(|left| (index, left));
            return chosen(index, left == 0);
        }
        if class.sends < class.nearest {
            return chosen(current, false);
        }
        match class.due(|way| socket.allows(route, way)) {
            Some(index) if index == current || class.means[index].samples < ENOUGH => {
                chosen(index, true)
            }
            Some(index) => {
                class.trying = Some((index, UNTIMED - 1));
                chosen(index, false)
            }
            None => chosen(current, false),
        }
    }

    /// Returns whether the next send of so many bytes would be copied, and not measured, whatever stream it is for.
    /// Counts it, as for one of the last one's kind.
    pub(super) fn copies(&mut self, bytes: usize) -> bool {
        if bytes < SMALLEST {
            return true;
        }
        let number = class_of(bytes) as usize;
        let Some(last) = self.last else {
            return false;
        };
        let streams = Route::ALL.iter().filter(|route| route.is_stream());
        let mut known = streams.filter_map(|route| self.classes[route.index()][number].as_ref());
        if !known.all(|class| class.copies_next()) {
            return false;
        }
        let Some(class) = self.classes[last.index()][number].as_mut() else {
            return false;
        };
        class.sends += 1;
        let at = layout::size(last.index(), class_of(bytes));
        self.tally.add(at, 1);
        true
    }

    /// Returns whether a way is known to cost twice as much as the one in use.
    pub(super) fn rules_out(&self, route: Route, bytes: usize, way: Way) -> bool {
        let class = self.classes[route.index()][class_of(bytes) as usize].as_ref();
        class.is_some_and(|class| {
            let (mean, best) = (&class.means[index_of(way)], &class.means[class.current]);
            mean.refused || (mean.samples >= ENOUGH && mean.cost > 2.0 * best.cost)
        })
    }

    /// Notes the time of a send.
    pub(super) fn learn(&mut self, route: Route, bytes: usize, way: Way, ns: u128, sent: usize) {
        let number = class_of(bytes);
        let Some(class) = &mut self.classes[route.index()][number as usize] else {
            return;
        };
        #[allow(clippy::cast_precision_loss, reason = "a mean")]
        // A clock that is too coarse would make a way cost nothing, for ever.
        let cost = ns.max(1) as f64 * 1024.0 / sent.max(1) as f64;
        let index = index_of(way);
        let mean = &mut class.means[index];
        mean.samples = mean.samples.saturating_add(1);
        mean.cost = if mean.samples == 1 {
            cost
        } else {
            // An interrupt or a sleeping peer says nothing about the way.
            let capped = cost.min(mean.cost * 4.0);
            // A sample far below was not disturbed, and the mean was: by the first sends of a process, above all.
            let weight = match mean.samples {
                _ if capped < mean.cost * 0.5 => 0.5,
                ..=8 => 0.25,
                _ => 0.0625,
            };
            mean.cost + (capped - mean.cost) * weight
        };
        class.judge(index);
        class.publish(&self.tally, layout::size(route.index(), number));
    }

    /// Notes that the kernel cannot, or not now: it may have the missing resource later.
    pub(super) fn refused(&mut self, route: Route, bytes: usize, way: Way, error: &io::Error) {
        let number = class_of(bytes);
        let class = self.classes[route.index()][number as usize].get_or_insert_default();
        let later = class.sends + RAREST;
        let mean = &mut class.means[index_of(way)];
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EMSGSIZE) => {
                (mean.samples, mean.due) = (0, later);
            }
            _ => mean.refused = true,
        }
        (class.current, class.trying) = (0, None);
        class.publish(&self.tally, layout::size(route.index(), number));
    }

    pub(super) fn explain(&self) -> Vec<Explanation> {
        let known = Route::ALL
            .iter()
            .zip(&self.classes)
            .flat_map(|(route, sizes)| {
                let sizes = sizes.iter().enumerate();
                sizes.filter_map(move |(size, class)| Some((route, size, class.as_ref()?)))
            });
        let mut all: Vec<_> = known
            .map(|(route, size, class)| Explanation {
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
    /// Creates a class before anything is known: with the way that was cheapest for cold values where this was
    /// developed.
    fn new(route: Route, bytes: usize) -> Class {
        let way = if bytes < LIKELY || !route.is_stream() {
            Way::Copy
        } else {
            Way::Splice
        };
        Class {
            current: index_of(way),
            ..Class::default()
        }
    }

    /// Returns the way whose turn it is, the one in use first; its next turn is settled with it.
    fn due(&mut self, allows: impl Fn(Way) -> bool) -> Option<usize> {
        let mut found = None;
        let others = (0..WAYS.len()).filter(|index| *index != self.current);
        self.nearest = u64::MAX;
        for index in std::iter::once(self.current).chain(others) {
            let mean = &mut self.means[index];
            if mean.refused {
                continue;
            }
            if !allows(WAYS[index]) {
                // Another socket may have the resource.
                mean.due = mean.due.max(self.sends + PROBE);
            } else if found.is_none() && mean.due <= self.sends {
                found = Some(index);
                let next = if mean.samples < ENOUGH { 1 } else { PROBE };
                mean.due = self.sends + next;
            }
            self.nearest = self.nearest.min(mean.due);
        }
        found
    }

    /// Returns whether the next send is copied, and neither a measurement nor a try.
    fn copies_next(&self) -> bool {
        WAYS[self.current] == Way::Copy && self.trying.is_none() && self.sends + 1 < self.nearest
    }

    fn publish_use(&self, tally: &Tally, at: usize) {
        tally.set(
            at + 1,
            self.current as u64 | u64::from(self.changes) << layout::CHANGES_SHIFT,
        );
    }

    fn publish(&self, tally: &Tally, at: usize) {
        self.publish_use(tally, at);
        let tried = |mean: &Mean| mean.samples > 0 || mean.refused;
        for (index, mean) in self
            .means
            .iter()
            .enumerate()
            .filter(|(_, mean)| tried(mean))
        {
            let at = at + 2 + 2 * index;
            tally.set(at, mean.cost.to_bits());
            let refused = if mean.refused { layout::REFUSED } else { 0 };
            tally.set(at + 1, u64::from(mean.samples) | refused);
        }
    }

    /// Judges after a sample of a way: whether another is the cheapest now, and when this one is tried again.
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
            self.cost = 0.0;
        }
        let best = self.means[self.current].cost;
        if (best - self.cost).abs() > DRIFT * self.cost {
            self.cost = best;
            let soon = self.sends + PROBE;
            for mean in &mut self.means {
                (mean.in_vain, mean.due) = (0, mean.due.min(soon));
            }
            self.nearest = self.nearest.min(soon);
        }
        let mean = &mut self.means[sampled];
        if sampled != self.current && mean.samples >= ENOUGH && best > 0.0 {
            mean.in_vain = mean.in_vain.saturating_add(1);
            mean.due = self.sends + pause(mean.cost / best, mean.in_vain);
        }
    }
}

/// Returns the number of sends until a way is tried again that costs so many times more than the one in use, after so
/// many tries in vain.
fn pause(ratio: f64, in_vain: u32) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between the two bounds"
    )]
    let first = (PROBE as f64 * (1.0 + 16.0 * (ratio - 1.0).max(0.0))).min(RAREST as f64) as u64;
    (first << (in_vain / FEW).min(8)).min(RAREST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// Returns the socket record of a connection to this machine.
    fn loopback() -> Socket {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        Socket::new(&stream).expect("socket")
    }

    /// The memory that a way needs is in no cache when the way was not used for a while. Its cost then is higher; the
    /// chooser sees its cost in use.
    #[test]
    fn what_a_way_costs_is_what_it_costs_when_it_is_used() {
        let socket = loopback();
        let bytes = 2000;
        let mut chooser = Chooser::new();
        let (mut before, mut tries) = ([None; 2], 0);
        for _ in 0..20_000 {
            let chosen = chooser.choose(&socket, Route::Loopback, bytes);
            let way = Some(chosen.way);
            let warm = before.iter().all(|one| *one == way);
            let ns = match chosen.way {
                Way::Copy => 1000,
                Way::Splice if warm => 800,
                _ => 3000,
            };
            if chosen.timed {
                chooser.learn(Route::Loopback, bytes, chosen.way, ns, bytes);
            }
            tries += u32::from(chosen.why == Why::Probe);
            before = [before[1], way];
        }
        let all = chooser.explain();
        let splice = all[0].choices.iter().find(|one| one.way == Way::Splice);
        assert_eq!(all[0].way, Way::Splice, "{all:?}");
        assert!(splice.expect("tried").ns_per_kib < 500.0, "{all:?}");
        assert!(tries < 400, "{tries} tries");
    }

    /// Plays that many sends with the costs of three ways. Returns how many of them were tries, and the way in the end.
    fn play(chooser: &mut Chooser, socket: &Socket, sends: u32, costs: [u128; 3]) -> (u32, Way) {
        let (bytes, mut tries, mut way) = (4096, 0, Way::Copy);
        for _ in 0..sends {
            let chosen = chooser.choose(socket, Route::Loopback, bytes);
            let ns = costs[chosen.way.index()];
            if chosen.timed {
                chooser.learn(Route::Loopback, bytes, chosen.way, ns, bytes);
            }
            if chosen.why == Why::Probe {
                tries += 1;
            } else {
                way = chosen.way;
            }
        }
        (tries, way)
    }

    /// Streams to here and to elsewhere in turn, by one thread.
    #[test]
    fn nothing_is_copied_unasked_that_another_kind_of_socket_would_not_copy() {
        let socket = loopback();
        let mut chooser = Chooser::new();
        play(&mut chooser, &socket, 4000, [1000, 1500, 1600]);
        assert!((0..100).any(|_| chooser.copies(4096)));
        chooser.choose(&socket, Route::Remote, 4096);
        play(&mut chooser, &socket, 100, [1000, 1500, 1600]);
        assert!(
            !(0..100).any(|_| chooser.copies(4096)),
            "by reference, as far as is known"
        );
    }

    /// A program that itself copies what is likely to be copied prevents no measurement and no try.
    #[test]
    fn what_is_copied_unasked_changes_nothing_of_what_is_learnt() {
        let socket = loopback();
        let mut chooser = Chooser::new();
        assert!(!chooser.copies(4096), "nothing is known yet");
        play(&mut chooser, &socket, 4000, [1000, 1500, 1600]);
        let mut unasked = |costs: [u128; 3], way| {
            let count = (0..40_000).filter(|_| {
                let copies = chooser.copies(4096);
                if !copies {
                    play(&mut chooser, &socket, 1, costs);
                }
                copies
            });
            let count = count.count();
            let now = chooser.explain();
            assert!(now[0].way == way, "{now:?}");
            (count, now[0].sends)
        };
        let (copies, sends) = unasked([1000, 1500, 1600], Way::Copy);
        assert!(copies > 36_000, "{copies} copied unasked");
        assert_eq!(sends, 44_000);
        let (copies, sends) = unasked([1400, 1070, 1600], Way::Splice);
        assert!(copies < 4000, "{copies} copied unasked");
        assert_eq!(sends, 84_000);
    }

    #[test]
    fn tries_become_rare_until_what_is_in_use_costs_something_else() {
        let socket = loopback();
        // Wherever the next try was to be.
        for sends in [100_000, 104_000, 108_000] {
            let mut chooser = Chooser::new();
            let (tries, way) = play(&mut chooser, &socket, sends, [1000, 1500, 1600]);
            assert_eq!(way, Way::Copy);
            assert!(tries < 250, "{tries} tries");
            let (_, way) = play(&mut chooser, &socket, 4000, [1400, 1070, 1600]);
            assert_eq!(way, Way::Splice, "{:?}", chooser.explain());
            let (tries, way) = play(&mut chooser, &socket, sends, [1400, 1070, 1600]);
            assert_eq!(way, Way::Splice);
            assert!(tries < 250, "{tries} tries");
            let (_, way) = play(&mut chooser, &socket, 4000, [1000, 2000, 1600]);
            assert_eq!(way, Way::Copy, "{:?}", chooser.explain());
        }
    }
}
