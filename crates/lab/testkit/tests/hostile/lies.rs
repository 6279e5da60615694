//! Through a ring, as a source: lines, lists, ids, generations, flags that are wrong, or change while they are read.

use std::sync::atomic::{AtomicBool, Ordering};

use tranship_proto::{BufferId, PoolId, Role, Trust};
use tranship_testkit::{Control, Random, child};

use crate::cast::{Answer, Ask};
use crate::stage::Stage;
use tranship_testkit::hostile::raw::{Bait, CHUNK, Channel, LINES, Prey, Raw, SLOTS};

/// A lie, and words of the reason that the victim must give for closing the channel.
struct Lie {
    name: &'static str,
    reason: &'static str,
    tell: fn(&mut Liar, &mut Channel),
}

struct Liar {
    raw: Raw,
    bait: Bait,
    /// Pools that all write, of level `half` and `full`.
    shared: [Bait; 2],
    /// Channel that frames come from, and how many were taken.
    feed: Channel,
    fed: u64,
    random: Random,
}

const INLINE: u64 = 1;
const BUFFER: u64 = 2;
const AGGREGATE: u64 = 3;
const MOVED: u64 = 4;
const GONE: &str = "has closed it, and everything it sent was taken";
const NOT_ASSIGNED: &str = "is not assigned to this channel";
const OUTSIDE: &str = "are outside the pool's";
const ELSEWHERE: &str = "are not those of buffer";
const NO_CHUNK: &str = "does not exist";
const NO_LIST: &str = "an aggregate";
const DEAD: &str = "is not alive";

fn line(operation: u64, id: BufferId, offset: u64, length: u64, serial: u64) -> [u64; 8] {
    [operation << 32, 0, id.0, offset, length, serial, 0, 0]
}

fn inline(len: u64) -> [u64; 8] {
    [INLINE << 32 | len << 40, 1, 2, 3, 4, 5, 6, 0]
}

impl Liar {
    fn id(&self, slot: u32) -> BufferId {
        BufferId::new(self.bait.id, slot, 2)
    }

    /// A line that is as it should be, of the attacker's own pool.
    fn good(&self) -> [u64; 8] {
        line(BUFFER, self.id(0), 0, 256, 1)
    }

    fn prey(&self) -> &Prey {
        self.raw.prey.as_ref().unwrap()
    }

    /// Writes a list at 4096 in the own chunk, and the line that names it.
    fn list(&self, words: &[u64], length: u64) -> [u64; 8] {
        for (i, word) in words.iter().enumerate() {
            self.bait.word(4096 + 8 * i).store(*word, Ordering::SeqCst);
        }
        line(AGGREGATE, self.id(1), 4096, length, 1)
    }

    /// A list of pieces as (id, offset, length, serial).
    fn pieces(&self, pieces: &[(BufferId, u64, u64, u64)]) -> [u64; 8] {
        let mut words = vec![pieces.len() as u64];
        for (id, offset, length, serial) in pieces {
            words.extend([id.0, *offset, *length, *serial]);
        }
        self.list(&words, 8 * words.len() as u64)
    }

    /// The next frame of the writer, counted as an honest reader does.
    fn frame(&mut self) -> [u64; 8] {
        let words = self.feed.take(self.fed, self.raw.prey.as_ref().unwrap());
        self.fed += 1;
        let mut line = words;
        line[0] = BUFFER << 32;
        line[1] = 0;
        line
    }

    /// Lets a channel carry the writer's frames.
    fn may_forward(&mut self, channel: &mut Channel) {
        let (pool, slots) = (self.prey().pool, self.prey().slots);
        self.raw.assign(channel, pool, slots);
        // The counters that `Channel::count` counts.
        channel.counts.swap(0, 1);
    }

    /// The receiver gets the same buffer shared and moved, in turns, and writes it whenever it may.
    fn moves_what_it_shares(&mut self, channel: &mut Channel, which: usize) {
        let pool = self.shared[which].id;
        self.raw.assign(channel, pool, SLOTS);
        let slot = self.shared[which].table.slot(0).unwrap();
        slot.offset.store(8192, Ordering::SeqCst);
        slot.length.store(4096, Ordering::SeqCst);
        for operation in [BUFFER, MOVED, MOVED, BUFFER, MOVED].repeat(4) {
            let id = BufferId::new(pool, 0, 2);
            self.push_all(channel, [line(operation, id, 8192, 64, 1)]);
        }
    }

    fn push_all(&mut self, channel: &mut Channel, lines: impl IntoIterator<Item = [u64; 8]>) {
        for line in lines {
            if !self.raw.room(channel) {
                return;
            }
            channel.push(line);
        }
    }
}

/// Says that nothing more comes.
fn close(channel: &Channel) {
    channel.own.closed().store(1, Ordering::SeqCst);
    channel.wake();
}

macro_rules! lies {
    ($($name:ident: $reason:expr, |$liar:ident, $channel:ident| $tell:expr;)*) => {
        const LIES: &[Lie] = &[$(Lie {
            name: stringify!($name),
            reason: $reason,
            tell: { fn tell($liar: &mut Liar, $channel: &mut Channel) { $tell; } tell },
        }),*];
    };
}

// "Off:" names the check without which the lie got through: with that check switched off the victim waited for ever
// without a reason, or panicked.
lies! {
    // Operations and inline lengths. Off: the length in `descriptor::parse`.
    no_operation: "operation 0 does not exist", |_l, c| c.push([0; 8]);
    operation_7: "operation 7 does not exist", |_l, c| c.push([7 << 32, 0, 0, 0, 0, 0, 0, 0]);
    operation_255: "operation 255 does not exist", |_l, c| c.push([u64::MAX << 32; 8]);
    inline_41: "41 inline bytes", |_l, c| c.push(inline(41));
    inline_255: "255 inline bytes", |_l, c| c.push(inline(255));
    // Ids.
    pool_known_but_not_assigned: NOT_ASSIGNED, |l, c| {
        let id = BufferId::new(l.prey().pool, 0, 2);
        c.push(line(BUFFER, id, 0, 64, 1));
    };
    pool_0: NOT_ASSIGNED, |_l, c| c.push(line(BUFFER, BufferId(0), 0, 64, 1));
    pool_max: NOT_ASSIGNED, |_l, c| c.push(line(BUFFER, BufferId::new(PoolId::MAX, 0, 2), 0, 64, 1));
    list_of_another_pool: NOT_ASSIGNED, |l, c| {
        let id = BufferId::new(l.prey().pool, 0, 2);
        c.push(line(AGGREGATE, id, 0, 64, 1));
    };
    slot_just_beyond: "slot 64 of 64", |l, c| c.push(line(BUFFER, l.id(SLOTS), 0, 64, 1));
    slot_max: "slot 1048575 of 64", |l, c| c.push(line(BUFFER, l.id(u32::MAX), 0, 64, 1));
    // Offsets and lengths. Off: the range in `ForeignPool::check`.
    offset_at_the_end: OUTSIDE, |l, c| c.push(line(BUFFER, l.id(0), 4 * CHUNK, 1, 1));
    offset_max: OUTSIDE, |l, c| c.push(line(BUFFER, l.id(0), u64::MAX, 1, 1));
    length_max: OUTSIDE, |l, c| c.push(line(BUFFER, l.id(0), 0, u64::MAX, 1));
    length_wraps: OUTSIDE, |l, c| c.push(line(BUFFER, l.id(0), 64, u64::MAX - 63, 1));
    length_one_too_long: OUTSIDE, |l, c| c.push(line(BUFFER, l.id(0), 0, 4 * CHUNK + 1, 1));
    // A moved buffer is checked like a shared one.
    moves_out_of_a_known_pool_that_is_not_assigned: NOT_ASSIGNED, |l, c| {
        let id = BufferId::new(l.prey().pool, 0, 2);
        c.push(line(MOVED, id, 0, 64, 1));
    };
    moves_a_slot_just_beyond: "slot 64 of 64", |l, c| c.push(line(MOVED, l.id(SLOTS), 0, 64, 1));
    moves_more_than_there_is: OUTSIDE, |l, c| c.push(line(MOVED, l.id(0), 64, u64::MAX - 63, 1));
    moves_out_of_no_chunk: NO_CHUNK, |l, c| c.push(line(MOVED, l.id(0), 2 * CHUNK, 64, 9));
    // Chunks.
    chunk_never_shown: NO_CHUNK, |l, c| c.push(line(BUFFER, l.id(0), 2 * CHUNK, 64, 9));
    serial_of_no_chunk: NO_CHUNK, |l, c| c.push(line(BUFFER, l.id(0), 0, 64, 7));
    serial_0: NO_CHUNK, |l, c| c.push(line(BUFFER, l.id(0), CHUNK, 64, 0));
    runs_into_a_chunk_never_shown: NO_CHUNK, |l, c| c.push(line(BUFFER, l.id(0), CHUNK - 16, 64, 1));
    // Lists.
    list_of_4_billion: NO_LIST, |l, c| c.push(l.list(&[0xffff_ffff], 4096));
    list_of_4097: NO_LIST, |l, c| c.push(l.list(&[4097], 32768));
    list_shorter_than_it_says: NO_LIST, |l, c| c.push(l.list(&[3], 8 + 2 * 32));
    list_of_4_bytes: NO_LIST, |l, c| c.push(l.list(&[0], 4));
    list_of_0_bytes: NO_LIST, |l, c| c.push(l.list(&[1], 0));
    list_with_something_in_the_zero: NO_LIST, |l, c| c.push(l.list(&[1 << 32], 64));
    piece_of_another_pool: NOT_ASSIGNED, |l, c| {
        let id = BufferId::new(l.prey().pool, 0, 2);
        c.push(l.pieces(&[(l.id(0), 0, 64, 1), (id, 0, 64, 1)]));
    };
    piece_outside: OUTSIDE, |l, c| c.push(l.pieces(&[(l.id(0), 0, 64, 1), (l.id(2), u64::MAX, 2, 1)]));
    piece_of_a_wild_slot: "slot 99 of 64", |l, c| c.push(l.pieces(&[(l.id(0), 0, 64, 1), (l.id(99), 0, 64, 1)]));
    piece_in_no_chunk: NO_CHUNK, |l, c| c.push(l.pieces(&[(l.id(0), 0, 64, 1), (l.id(2), CHUNK, 64, 3)]));
    list_that_is_its_own_piece: GONE, |l, c| {
        c.push(l.pieces(&[(l.id(1), 4096, 40, 1), (l.id(1), 4096, 40, 1), (l.id(0), 0, 64, 1)]));
        close(c);
    };
    // Flags, words, sequences.
    closes_with_lines_in_the_ring: GONE, |l, c| { c.push(l.good()); c.push(inline(40)); close(c) };
    asleep_is_garbage: GONE, |l, c| {
        for flag in [3, u32::MAX, 2, 0x8000_0000, 1] {
            c.own.asleep().store(flag, Ordering::SeqCst);
            l.push_all(c, [l.good(), inline(1)]);
        }
        close(c)
    };
    sequence_of_the_future: GONE, |l, c| {
        c.own.lines()[0].words[0].store(2 << 32 | 9, Ordering::SeqCst);
        c.own.lines()[1].words[0].store(2 << 32 | 7, Ordering::SeqCst);
        c.wake();
        l.push_all(c, [inline(1)]);
        close(c)
    };
    control_cursor_past_the_end: "control: its ring cursor went to 18446744073709551615", |l, c| {
        c.own.head().store(u64::MAX, Ordering::SeqCst);
        l.push_all(c, [inline(1); 40]);
    };
    the_same_buffer_again_and_again: GONE, |l, c| { l.push_all(c, [l.good(); 100]); close(c) };
    moves_what_it_shares_and_moves_it_again: GONE, |l, c| {
        let mut moved = l.good();
        moved[0] = MOVED << 32;
        l.push_all(c, [l.good(), moved, moved, l.good(), moved, moved]);
        close(c)
    };
    moves_what_it_shares_at_half: GONE, |l, c| { l.moves_what_it_shares(c, 0); close(c) };
    moves_what_it_shares_at_full: GONE, |l, c| { l.moves_what_it_shares(c, 1); close(c) };
    moves_pages_that_overlap_at_half: ELSEWHERE, |l, c| {
        l.moves_what_it_shares(c, 0);
        let slot = l.shared[0].table.slot(1).unwrap();
        slot.offset.store(4096, Ordering::SeqCst);
        slot.length.store(8192, Ordering::SeqCst);
        let id = |slot| BufferId::new(l.shared[0].id, slot, 2);
        l.push_all(c, [line(MOVED, id(0), 8192, 64, 1), line(MOVED, id(1), 4096, 64, 1)]);
    };
    own_table_changes_all_the_time: GONE, |l, c| {
        for i in 0..200u32 {
            let slot = l.bait.table.slot(i % 3).unwrap();
            slot.generation.store(i, Ordering::SeqCst);
            slot.offset.store(u64::MAX - u64::from(i), Ordering::SeqCst);
            slot.length.store(u64::MAX, Ordering::SeqCst);
            slot.serial.store(i, Ordering::SeqCst);
            l.bait.table.relinquish().store(i, Ordering::SeqCst);
            l.push_all(c, [l.good()]);
        }
        l.bait.table.relinquish().store(0, Ordering::SeqCst);
        close(c)
    };
    // Frames of the writer, forwarded.
    forwards_as_it_should: GONE, |l, c| {
        l.may_forward(c);
        for _ in 0..40 {
            let frame = l.frame();
            if l.raw.room(c) {
                c.count(BufferId(frame[2]));
                c.push(frame);
            }
            l.prey().release(BufferId(frame[2]));
        }
        close(c)
    };
    // The frames are shared with it, and it says that they are the receiver's alone.
    moves_frames_that_it_was_only_shown: GONE, |l, c| {
        l.may_forward(c);
        for _ in 0..40 {
            let mut frame = l.frame();
            let id = BufferId(frame[2]);
            if l.raw.room(c) {
                c.count(id);
                frame[0] = MOVED << 32;
                c.push(frame);
            }
            l.prey().release(id);
        }
        close(c)
    };
    moves_frames_to_two_and_keeps_them: GONE, |l, c| {
        l.may_forward(c);
        for _ in 0..10 {
            let mut frame = l.frame();
            let id = BufferId(frame[2]);
            for operation in [MOVED, BUFFER, MOVED] {
                if l.raw.room(c) {
                    c.count(id);
                    frame[0] = operation << 32;
                    c.push(frame);
                }
            }
            l.prey().release(id);
        }
        close(c)
    };
    moves_what_was_reused: DEAD, |l, c| {
        l.may_forward(c);
        let mut old = l.frame();
        let id = BufferId(old[2]);
        l.prey().release(id);
        while l.prey().generation(id) == id.generation() {
            let next = l.frame();
            l.prey().release(BufferId(next[2]));
        }
        old[0] = MOVED << 32;
        c.push(old)
    };
    moves_another_s_bytes_under_a_living_id: ELSEWHERE, |l, c| {
        l.may_forward(c);
        let (mut one, other) = (l.frame(), l.frame());
        one[3..6].copy_from_slice(&other[3..6]);
        one[0] = MOVED << 32;
        l.prey().release(BufferId(other[2]));
        c.push(one)
    };
    // Off: the generation in `hold` of `receiver/take.rs`.
    forwards_what_was_reused: DEAD, |l, c| {
        l.may_forward(c);
        let old = l.frame();
        let id = BufferId(old[2]);
        l.prey().release(id);
        while l.prey().generation(id) == id.generation() {
            let next = l.frame();
            l.prey().release(BufferId(next[2]));
        }
        c.push(old)
    };
    guesses_the_next_life: DEAD, |l, c| {
        l.may_forward(c);
        let mut frame = l.frame();
        let id = BufferId(frame[2]);
        frame[2] = BufferId::new(id.pool(), id.slot(), id.generation() + 2).0;
        c.push(frame);
        l.prey().release(id)
    };
    names_a_buffer_being_filled: DEAD, |l, c| {
        l.may_forward(c);
        let frame = l.frame();
        let id = BufferId(frame[2]);
        let free = (0..l.prey().slots).map(|slot| BufferId::new(id.pool(), slot, 1));
        let free = free.map(|id| BufferId::new(id.pool(), id.slot(), l.prey().generation(id)));
        let odd = free.rev().find(|id| id.generation() % 2 == 1);
        c.push(line(BUFFER, odd.unwrap(), frame[3], 64, frame[5]));
        l.prey().release(id)
    };
    // Off: `owns` in `hold` of `receiver/take.rs`: bytes of a buffer that nobody counted, under a living id.
    a_living_id_with_another_s_bytes: ELSEWHERE, |l, c| {
        l.may_forward(c);
        let (mut one, other) = (l.frame(), l.frame());
        one[3..6].copy_from_slice(&other[3..6]);
        l.prey().release(BufferId(other[2]));
        c.push(one)
    };
    a_living_id_and_more_bytes_than_it_has: ELSEWHERE, |l, c| {
        l.may_forward(c);
        let mut frame = l.frame();
        // The last buffer of a chunk has all that is left of the chunk.
        while l.prey().capacity(BufferId(frame[2])) == CHUNK - frame[3] % CHUNK {
            l.prey().release(BufferId(frame[2]));
            frame = l.frame();
        }
        frame[4] = CHUNK - frame[3] % CHUNK;
        c.push(frame)
    };
    a_piece_with_another_s_bytes: ELSEWHERE, |l, c| {
        l.may_forward(c);
        let (one, other) = (l.frame(), l.frame());
        c.push(l.pieces(&[(BufferId(one[2]), other[3], other[4], other[5])]));
        l.prey().release(BufferId(other[2]))
    };
    forwards_without_counting: "", |l, c| {
        l.may_forward(c);
        for _ in 0..300 {
            let frame = l.frame();
            let room = l.raw.room(c);
            if room {
                c.push(frame);
            }
            l.prey().release(BufferId(frame[2]));
            if !room {
                return;
            }
        }
        close(c)
    };
    forwards_after_releasing: "", |l, c| {
        l.may_forward(c);
        for _ in 0..300 {
            let frame = l.frame();
            l.prey().release(BufferId(frame[2]));
            if !l.raw.room(c) {
                return;
            }
            c.push(frame);
        }
        close(c)
    };
    counts_what_it_never_sent: GONE, |l, c| {
        l.may_forward(c);
        // Taken before: no slot with such a count is reused until the channel has left.
        let frames: Vec<_> = (0..8).map(|_| l.frame()).collect();
        for word in c.counts[0].1.counts() {
            word.store(l.random.next() as u32, Ordering::SeqCst);
        }
        for frame in frames {
            l.push_all(c, [frame]);
            l.prey().release(BufferId(frame[2]));
        }
        close(c)
    };
    // Memory that changes between any two reads.
    lines_change_while_they_are_read: "", |l, c| {
        flip(l, c, |l, c, n| {
            let line = &c.own.lines()[n as usize % LINES as usize];
            let wild = [l.good()[2], l.id(SLOTS).0, 0, 64, u64::MAX, 1, CHUNK - 8, n];
            line.words[1 + n as usize % 7].store(wild[(n >> 8) as usize % 8], Ordering::Relaxed);
            let word = line.words[0].load(Ordering::Relaxed) & 0xffff_ffff;
            line.words[0].store(word | ((n >> 3) % 5) << 32 | (n & 63) << 40, Ordering::Relaxed);
        }, |l| l.good())
    };
    lists_change_while_they_are_read: "", |l, c| {
        l.pieces(&[(l.id(0), 0, 64, 1), (l.id(2), 64, 64, 1), (l.id(3), 128, 64, 1)]);
        flip(l, c, |l, _, n| {
            let counts = [3, 2, 3, 1, 3, 4096, 3, 0xffff_ffff];
            l.bait.word(4096).store(counts[n as usize % 8], Ordering::Relaxed);
            let at = 4096 + 8 * (1 + (n >> 3) as usize % 12);
            let kept = l.bait.word(at).load(Ordering::Relaxed);
            l.bait.word(at).store(n << 20 | n, Ordering::Relaxed);
            l.bait.word(at).store(kept, Ordering::Relaxed);
        }, |l| line(AGGREGATE, l.id(1), 4096, 8 + 3 * 32, 1))
    };
    flags_change_all_the_time: "", |l, c| {
        flip(l, c, |_, c, n| {
            c.own.asleep().store(n as u32, Ordering::Relaxed);
            c.own.wake().store(n as u32, Ordering::Relaxed);
            c.own.head().store(n % 3, Ordering::Relaxed);
        }, |l| l.good())
    };
}

/// Sends lines while another thread changes memory, until the other side has had enough, or of 5000.
fn flip(
    l: &mut Liar,
    c: &mut Channel,
    change: fn(&Liar, &Channel, u64),
    what: fn(&Liar) -> [u64; 8],
) {
    let done = AtomicBool::new(false);
    let (mut sent, mut gone) = (0, false);
    while sent < 5000 && !gone {
        // In turns, for lines are pushed through `&mut`: a burst of lines, then changes while they are taken.
        for _ in 0..LINES {
            if !l.raw.room(c) {
                gone = true;
                break;
            }
            c.push(what(l));
            sent += 1;
            std::thread::scope(|scope| {
                let (l, c, done) = (&*l, &*c, &done);
                let seed = sent;
                scope.spawn(move || {
                    for n in 0..400u64 {
                        change(l, c, n.wrapping_mul(0x9e37_79b9).wrapping_add(seed));
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            });
        }
    }
    done.store(true, Ordering::Relaxed);
    close(c);
}

child!(
    fn liar(ctl: Control) {
        let mut raw = Raw::join("liar");
        let bait = raw.create_pool("bait");
        let shared = [Trust::Half, Trust::Full].map(|trust| raw.create_pool_at("shared", trust));
        let mut feed = raw.connect("feed", Role::Sink);
        raw.take_offer(&mut feed);
        let random = Random::printed("liar");
        let mut liar = Liar {
            raw,
            bait,
            shared,
            feed,
            fed: 0,
            random,
        };
        while let Some(index) = ctl.recv::<usize>().unwrap() {
            let mut channel = liar.raw.connect("sink", Role::Source);
            let bait = liar.bait.id;
            liar.raw.assign(&mut channel, bait, SLOTS);
            (LIES[index].tell)(&mut liar, &mut channel);
            ctl.send(&()).unwrap();
            // Until the victim has said why the channel ended.
            let Some(()) = ctl.recv().unwrap() else {
                return;
            };
            liar.raw.close(channel);
        }
    }
);

pub fn play(stage: &Stage) {
    let liar = stage.attacker(liar());
    for (index, lie) in LIES.iter().enumerate() {
        liar.send(&index).unwrap();
        let Answer::End(reason) = stage.third.ask(&Ask::End) else {
            panic!("{}", lie.name)
        };
        eprintln!("{:40} {reason}", lie.name);
        assert!(
            reason.contains(lie.reason),
            "{}: {reason:?} instead of {:?}\n{}",
            lie.name,
            lie.reason,
            liar.stderr()
        );
        assert!(!reason.is_empty());
        liar.expect::<()>();
        liar.send(&()).unwrap();
        stage.still_serving(lie.name);
    }
}
