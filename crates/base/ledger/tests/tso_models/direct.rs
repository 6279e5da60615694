//! The verdict of one pass over an aggregate, list and piece together, under total store order: every interleaving of
//! the product's own functions, with store buffers. The collector fills a dead buffer anew: a later reader reads
//! something else.
//!
//! Seen failing, besides what is kept as tests: the fence of `are_dead`, or its last look at the epoch, left out.

use tranship_ledger::{
    Batch, NoWords, ReaderSet, Sent, Source, Words, hold, pass_back, raise, receive_all, release,
    send_again, send_all, still_names,
};
use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tranship_tso::Model;

/// The list, and its piece.
const PARTS: [usize; 2] = [LIST, PIECES[0]];
const LIST: usize = 0;
const PIECES: [usize; 1] = [1];

/// One word for each part.
type Parts = [AtomicU32; 2];

/// A writer A, its reader B, and C, to which B may get a queue.
#[derive(Default)]
struct System {
    bytes: Parts,
    table: Parts,
    sent: [Parts; 2],
    rcvd: [Parts; 2],
    refs: [Parts; 2],
    /// The generation of the ids that are on their way, or 0.
    ring: [AtomicU32; 2],
    epoch: AtomicU64,
}

struct View<'a>(&'a Parts);

impl Words for View<'_> {
    fn load(&self, slot: u32) -> u32 {
        self.0[slot as usize].load(Ordering::Acquire)
    }
}

/// Variant that is tried instead of the product's rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    CountedPieces,
    Epoch,
    CollectorsFence,
}

impl System {
    /// A has sent it to B.
    fn sent() -> System {
        let system = System::default();
        system.send(&PIECES);
        system
    }

    /// B has received it.
    fn received() -> System {
        let system = System::sent();
        system.receive(&PIECES);
        system
    }

    fn send(&self, pieces: &[usize]) {
        for part in PARTS {
            // Those that are not counted are opened all the same.
            let generation = if pieces.contains(&part) { 1 } else { 2 };
            self.table[part].store(generation, Ordering::Relaxed);
            self.bytes[part].store(1, Ordering::Relaxed);
        }
        self.send_on_queue(0, pieces, || {});
    }

    /// The list and the pieces that are to be counted, as one message.
    fn send_on_queue(&self, queue: usize, pieces: &[usize], release: impl FnOnce()) {
        let publish = || self.ring[queue].store(2, Ordering::Release);
        let mut sender = self;
        send_all(
            &mut sender,
            pieces,
            |system, part| Some(system.words(queue, *part)),
            |system| send_again(system.words(queue, LIST), publish, || {}, |_| {}),
            |_| release(),
            |_| {},
        );
    }

    fn words(&self, queue: usize, part: usize) -> Sent<'_> {
        Sent {
            generation: (queue == 0).then_some(&self.table[part]),
            sent: &self.sent[queue][part],
        }
    }

    /// Holds a part, checked by the id that names it, if one does.
    fn hold(&self, reader: usize, part: usize, named: Option<u32>) -> Result<(), ()> {
        let refs = &self.refs[reader][part];
        let raise = || {
            raise(refs);
            Ok(())
        };
        let generation = || self.table[part].load(Ordering::Relaxed);
        let check = named.map(|named| move || still_names(named, generation).map_err(|_| ()));
        hold(raise, check, || _ = release(refs), |_| {})
    }

    /// Whether the list, which is held, and the pieces could be had.
    fn receive_pieces(&self, reader: usize, pieces: &[usize], named: Option<u32>) -> bool {
        let rcvd = &self.rcvd[reader];
        let pieces = pieces.iter().map(|&part| {
            self.hold(reader, part, named)?;
            Ok::<_, ()>(((), &rcvd[part]))
        });
        receive_all(pieces, &rcvd[LIST], |_| {}).is_ok()
    }

    fn receive(&self, pieces: &[usize]) {
        self.hold(0, LIST, None).unwrap();
        assert!(self.receive_pieces(0, pieces, None));
    }

    fn look(&self, part: usize) {
        let seen = self.bytes[part].load(Ordering::Relaxed);
        assert_eq!(seen, 1, "another buffer than was sent");
    }

    /// The list goes as soon as it is read.
    fn read(&self, pieces: &[usize]) {
        for part in PARTS {
            self.look(part);
            if part == LIST || pieces.contains(&part) {
                release(&self.refs[0][part]);
            }
        }
    }

    /// A looks once, and fills both anew if they are dead. C is not on its reader set, as it is not when the verdict begins.
    fn collect(&self, without: Without) -> bool {
        let mut reader_set = ReaderSet::new(0);
        reader_set.add_reader(1, View(&self.refs[0])).unwrap();
        let (sent, rcvd) = (View(&self.sent[0]), View(&self.rcvd[0]));
        reader_set.add_queue(1, Source::Writer, sent, rcvd).unwrap();
        let epoch = || match without {
            Without::Epoch => 0,
            _ => self.epoch.load(Ordering::Acquire),
        };
        let are_dead = if without == Without::CollectorsFence {
            // The library's steps without the fence.
            !reader_set.is_alive(0) && !reader_set.is_alive(1) && epoch() == 0 && {
                for generation in &self.table {
                    generation.store(3, Ordering::Relaxed);
                }
                epoch() == 0
            }
        } else {
            reader_set.are_dead(&[0, 1], &NoWords, &self.table[..], epoch)
        };
        if are_dead {
            for bytes in &self.bytes {
                bytes.store(2, Ordering::Relaxed);
            }
        }
        are_dead
    }

    /// The same where B's queue to C is there already: in two passes.
    fn collect_from_both(&self) {
        let mut reader_set = ReaderSet::new(0);
        for (n, source) in [Source::Writer, Source::Other].into_iter().enumerate() {
            let (sent, rcvd) = (View(&self.sent[n]), View(&self.rcvd[n]));
            let number = n as u64;
            reader_set.add_queue(number, source, sent, rcvd).unwrap();
            reader_set.add_reader(number, View(&self.refs[n])).unwrap();
        }
        let mut batch = Batch::default();
        let verdict = reader_set.collect(&[0, 1], &NoWords, &self.table[..], || 0, &mut batch);
        assert_eq!(verdict, Ok(()));
        for slot in batch.dead {
            self.bytes[slot as usize].store(2, Ordering::Relaxed);
        }
    }

    /// B gets a queue to C, and publishes both buffers there.
    fn send_on(&self) {
        self.epoch.store(1, Ordering::Release);
        self.send_on_queue(1, &PIECES, || self.read(&PIECES));
    }

    /// B publishes both buffers to C, and counts nothing.
    fn lie(&self) {
        self.epoch.store(1, Ordering::Release);
        self.ring[1].store(2, Ordering::Release);
    }

    /// C takes what comes, checks each part, and reads what it holds. Whether anything was refused.
    fn take_forwarded(&self) -> bool {
        let named = self.ring[1].load(Ordering::Acquire);
        if named == 0 {
            return false;
        }
        if self.hold(1, LIST, Some(named)).is_err() {
            return true;
        }
        self.look(LIST);
        let whole = self.receive_pieces(1, &PIECES, Some(named));
        release(&self.refs[1][LIST]);
        if whole {
            self.look(PIECES[0]);
            release(&self.refs[1][PIECES[0]]);
        }
        !whole
    }
}

fn early(system: &Model<System>, name: &str) {
    let why = system.breaks(name);
    let early = ["another buffer", "was refused", "on its way"];
    assert!(early.iter().any(|text| why.contains(text)), "{why}");
}

/// B reads while A collects.
fn reads(without: Without) -> Model<System> {
    let counted = match without {
        Without::CountedPieces => &[][..],
        _ => &PIECES,
    };
    Model::new(move || {
        let system = System::default();
        system.send(counted);
        system
    })
    .thread("B", |s: &System| {
        s.receive(counted);
        s.read(counted);
    })
    .thread("A", move |s| _ = s.collect(without))
}

#[test]
fn an_aggregate_is_read() {
    reads(Without::Nothing).holds("an aggregate is read");
    early(&reads(Without::CountedPieces), "the list alone is counted");
}

/// B holds it, gets a queue to C while A collects, and sends on; honestly, or as a liar that has let it go.
fn sends_on(without: Without, is_liar: bool) -> Model<System> {
    let let_go = || {
        let system = System::received();
        system.read(&PIECES);
        system
    };
    let model = Model::new(if is_liar { let_go } else { System::received });
    let model = model.thread("B", move |s: &System| match is_liar {
        true => s.lie(),
        false => s.send_on(),
    });
    let model = model.thread("C", move |s| {
        let refused = s.take_forwarded();
        assert!(is_liar || !refused, "an honest reference was refused");
    });
    model.thread("A", move |s| _ = s.collect(without))
}

#[test]
fn an_aggregate_goes_on_over_a_new_queue() {
    sends_on(Without::Nothing, false).holds("an aggregate over a new queue");
    early(&sends_on(Without::Epoch, false), "no look at the epoch");
}

#[test]
fn a_liar_gets_a_queue_for_an_aggregate() {
    sends_on(Without::Nothing, true).holds("a liar, and a new queue");
    early(
        &sends_on(Without::Epoch, true),
        "a liar, no look at the epoch",
    );
    let fence = Without::CollectorsFence;
    early(&sends_on(fence, true), "a liar, no fence");
}

/// B holds it and sends it on to C, which is a reader already, while A collects.
fn goes_on(release_first: bool) -> Model<System> {
    Model::new(System::received)
        .thread("B", move |s: &System| match release_first {
            true => {
                s.read(&PIECES);
                s.send_on_queue(1, &PIECES, || {});
            }
            false => s.send_on_queue(1, &PIECES, || s.read(&PIECES)),
        })
        .thread("C", |s| {
            assert!(!s.take_forwarded(), "an honest reference was refused");
        })
        .thread("A", |s| s.collect_from_both())
}

#[test]
fn an_aggregate_goes_on() {
    goes_on(false).holds("an aggregate goes on");
    early(&goes_on(true), "let go of, and then sent on");
}

/// B passes both back, the list first; A, which collects meanwhile, has not taken them yet.
#[test]
fn an_aggregate_is_passed_back() {
    let model = |receipt_first: bool| {
        Model::new(System::received)
            .thread("B", move |s: &System| {
                PARTS.iter().for_each(|&part| s.look(part));
                if !receipt_first {
                    s.refs[0].iter().for_each(|refs| _ = release(refs));
                }
                for (rcvd, refs) in s.rcvd[0].iter().zip(&s.refs[0]) {
                    let publish = || s.ring[1].store(2, Ordering::Release);
                    let go = || {
                        if receipt_first {
                            release(refs);
                        }
                    };
                    pass_back(rcvd, publish, go, |_| {});
                }
            })
            .thread("A", |s| {
                assert!(
                    !s.collect(Without::Nothing),
                    "it is collected on its way back"
                );
            })
    };
    model(true).holds("an aggregate is passed back");
    early(&model(false), "the reference goes first");
}
