//! Kind 10: the statistics page, a file that the manager writes and tools map read-only.
//!
//! ```text
//! header | turn, instance, pid, area, moved | state of area 0 | state of area 1 | ... | area 0 | area 1
//! ```
//! Two areas take turns. The area that `turn` names is complete. The other is being written, or will be written next. A
//! manager that is killed during a write therefore leaves its last publication. A reader has to repeat its copy only if
//! two publications happen during the copy.

use super::header::Kind;
use super::{OpenError, Says};
use crate::{RoMapping, RwMapping};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const FRONT: usize = 64;
const AREAS: usize = 4096;
/// Most words of an area: 32 MiB.
pub const MAX_WORDS: u32 = 4 << 20;
/// How often a reader repeats a copy that publications have overtaken.
const TRIES: u32 = 64;

/// One area's.
#[derive(Debug)]
#[repr(C, align(64))]
struct Area {
    /// Odd while the area is being written.
    sequence: AtomicU64,
    /// The time of the publication (`CLOCK_MONOTONIC`), ns.
    at_ns: AtomicU64,
    /// The number of words.
    words: AtomicU64,
    /// Records without room.
    left_out: AtomicU64,
}

#[derive(Debug)]
#[repr(C)]
struct Front {
    /// Publications, modulo 2^32; the lowest bit names the area. Readers sleep on it.
    turn: AtomicU32,
    /// Non-zero once another file has taken this one's place.
    moved: AtomicU32,
    instance: AtomicU64,
    pid: AtomicU64,
    pad: [u64; 5],
    areas: [Area; 2],
}

const _: () = {
    assert!(std::mem::offset_of!(Front, instance) == 8);
    assert!(std::mem::offset_of!(Front, areas) == 64);
    assert!(size_of::<Area>() == 64);
    assert!(FRONT + size_of::<Front>() <= AREAS);
};

fn says(words: u32) -> Says {
    Says {
        kind: Kind::Page,
        count: words,
        extra: [0; 2],
    }
}

/// Returns the length of the file, bytes; `words` of each area.
pub fn len(words: u32) -> usize {
    AREAS + 2 * 8 * words as usize
}

/// The manager's side.
#[derive(Debug)]
pub struct PageRw {
    front: NonNull<Front>,
    areas: [NonNull<AtomicU64>; 2],
    words: u32,
    map: RwMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for PageRw {}
// SAFETY: as for Send.
unsafe impl Sync for PageRw {}

impl PageRw {
    /// Lays a statistics page into a new file. The file is [`len`] bytes long, all 0, and not yet shown to any other
    /// process.
    pub fn create(fd: impl AsFd, words: u32, instance: u64, pid: u32) -> io::Result<PageRw> {
        let map = RwMapping::map(fd, len(words))?;
        says(words).write(&map);
        let page = PageRw {
            front: map.at(FRONT),
            areas: [0, 1].map(|i| map.array(AREAS + i * 8 * words as usize, words as usize)),
            words,
            map,
        };
        page.front().instance.store(instance, Ordering::Relaxed);
        page.front().pid.store(pid.into(), Ordering::Relaxed);
        Ok(page)
    }

    fn front(&self) -> &Front {
        // SAFETY: atomics in the mapping; `pad` is never written.
        unsafe { self.front.as_ref() }
    }

    /// Returns the number of words that an area has.
    pub fn capacity(&self) -> usize {
        self.words as usize
    }

    /// Publishes these words; words without room are cut off.
    // Crash: until `turn` is stored, readers use the other area, which is complete.
    pub fn publish(&self, words: &[u64], at_ns: u64, left_out: u64) {
        let front = self.front();
        // Ordering: relaxed, here and below; this process's own words.
        let turn = front.turn.load(Ordering::Relaxed).wrapping_add(1);
        let (area, lines) = match turn & 1 {
            0 => (&front.areas[0], self.areas[0]),
            _ => (&front.areas[1], self.areas[1]),
        };
        let count = words.len().min(self.words as usize);
        let sequence = area.sequence.load(Ordering::Relaxed) | 1;
        area.sequence.store(sequence, Ordering::Relaxed);
        // Ordering: release; a reader that finds any of the stores below also finds the odd number (partner: the second
        // load in `read`).
        fence(Ordering::Release);
        area.at_ns.store(at_ns, Ordering::Relaxed);
        area.words.store(count as u64, Ordering::Relaxed);
        area.left_out.store(left_out, Ordering::Relaxed);
        for (i, word) in words[..count].iter().enumerate() {
            // SAFETY: below the count that was checked against the length; an atomic; mapped as long as `self`.
            unsafe { lines.add(i).as_ref() }.store(*word, Ordering::Relaxed);
        }
        // Ordering: release; partner: the first load of the sequence in `read`.
        area.sequence
            .store(sequence.wrapping_add(1), Ordering::Release);
        // Ordering: release; partner: the load of `turn` in `read`.
        front.turn.store(turn, Ordering::Release);
        self.wake_readers();
    }

    /// Says that another file has taken this one's place.
    pub fn has_moved(&self) {
        self.front().moved.store(1, Ordering::Release);
        self.wake_readers();
    }

    /// Wakes a few readers only. Every user of the machine can read the page and queue any number of waiters before the
    /// others. Readers therefore also look again by themselves.
    fn wake_readers(&self) {
        let _ = tranship_sys::futex::wake_some(&self.front().turn);
    }

    /// Returns the memory.
    pub fn mapping(&self) -> &RwMapping {
        &self.map
    }
}

/// The last publication.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Published {
    /// The number of the publication.
    pub turn: u32,
    /// The time of the publication (`CLOCK_MONOTONIC`), ns.
    pub at_ns: u64,
    /// Records without room.
    pub left_out: u64,
    /// The published words.
    pub words: Vec<u64>,
}

/// A tool's side.
#[derive(Debug)]
pub struct PageRo {
    front: NonNull<Front>,
    areas: [NonNull<AtomicU64>; 2],
    words: u32,
    /// Kept mapped.
    _map: RoMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for PageRo {}
// SAFETY: as for Send.
unsafe impl Sync for PageRo {}

impl PageRo {
    /// Maps a statistics page from a file of `bytes` bytes. A process that may write the file can shorten it, and so
    /// end this process (SIGBUS).
    pub fn open(fd: impl AsFd, bytes: u64) -> Result<PageRo, OpenError> {
        let whole = usize::try_from(bytes).unwrap_or(usize::MAX);
        let wrong = |field, found, expected| OpenError::Header {
            field,
            found,
            expected,
        };
        if whole < AREAS || whole > len(MAX_WORDS) {
            return Err(wrong("the file's length", bytes, AREAS as u64));
        }
        let map = RoMapping::map(fd, whole).map_err(|source| OpenError::Map {
            len_bytes: whole,
            source,
        })?;
        // Trust: the file's writer; checked against the length before it is used.
        let count = map.view().read::<u32>(16).unwrap_or(0);
        says(count).check(&map)?;
        if count > MAX_WORDS || len(count) > whole {
            return Err(wrong("the file's length", bytes, len(count) as u64));
        }
        Ok(PageRo {
            front: map.at(FRONT),
            areas: [0, 1].map(|i| map.array(AREAS + i * 8 * count as usize, count as usize)),
            words: count,
            _map: map,
        })
    }

    fn front(&self) -> &Front {
        // SAFETY: atomics in the mapping, which this process only loads; `pad` is never written.
        unsafe { self.front.as_ref() }
    }

    /// Returns the random number of the manager that made the file.
    pub fn instance(&self) -> u64 {
        self.front().instance.load(Ordering::Relaxed)
    }

    /// Returns the manager's process number.
    pub fn pid(&self) -> u32 {
        u32::try_from(self.front().pid.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the number of the last publication; 0: there was none.
    pub fn turn(&self) -> u32 {
        self.front().turn.load(Ordering::Relaxed)
    }

    /// Returns the word to sleep on until the next publication, for a bounded time. Other users' processes sleep on it
    /// too, and may take the wake-up. The word is mapped read-only.
    pub fn turn_ptr(&self) -> *const AtomicU32 {
        &raw const self.front().turn
    }

    /// Says whether another file has taken this one's place.
    pub fn has_moved(&self) -> bool {
        self.front().moved.load(Ordering::Relaxed) != 0
    }

    /// Copies the last publication. Returns `None` if there is none, or if each copy was overtaken by two publications.
    pub fn read(&self) -> Option<Published> {
        let front = self.front();
        for _ in 0..TRIES {
            // On a read-only mapping Rust defines relaxed loads only. The fences therefore give the order.
            let turn = front.turn.load(Ordering::Relaxed);
            // Ordering: acquire; partner: the release of `turn` in `publish`.
            fence(Ordering::Acquire);
            if turn == 0 {
                return None;
            }
            let (area, lines) = match turn & 1 {
                0 => (&front.areas[0], self.areas[0]),
                _ => (&front.areas[1], self.areas[1]),
            };
            let sequence = area.sequence.load(Ordering::Relaxed);
            // Ordering: acquire; partner: the release of the even number in `publish`.
            fence(Ordering::Acquire);
            if sequence & 1 != 0 {
                continue;
            }
            // Trust: the writer's word; bounded by the mapping's length.
            let count = area.words.load(Ordering::Relaxed);
            let count = count.min(self.words.into());
            let mut published = Published {
                turn,
                at_ns: area.at_ns.load(Ordering::Relaxed),
                left_out: area.left_out.load(Ordering::Relaxed),
                words: Vec::new(),
            };
            let count = usize::try_from(count).unwrap_or(0);
            // SAFETY: below the count that was checked against the length; atomics; mapped as long as `self`.
            let word = |i: usize| unsafe { lines.add(i).as_ref() }.load(Ordering::Relaxed);
            published.words.extend((0..count).map(word));
            // Ordering: acquire; the loads above come before the second load of the sequence (partner: the fence in
            // `publish`).
            fence(Ordering::Acquire);
            if area.sequence.load(Ordering::Relaxed) == sequence {
                return Some(published);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::atomic::AtomicBool;

    const WORDS: u32 = 1 << 12;

    fn made(words: u32) -> (File, PageRw) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(len(words) as u64).expect("a length");
        let page = PageRw::create(&file, words, 7, 9).expect("a page");
        (file, page)
    }

    fn opened(file: &File) -> PageRo {
        let bytes = file.metadata().expect("it").len();
        PageRo::open(file, bytes).expect("a page")
    }

    /// Makes words that all follow from the first.
    fn of(n: u64) -> Vec<u64> {
        let count = 1 + n % (u64::from(WORDS) - 1);
        (0..count)
            .map(|i| n.wrapping_mul(0x9e37).wrapping_add(i))
            .collect()
    }

    #[test]
    fn what_is_published_is_read() {
        let (file, page) = made(WORDS);
        let reader = opened(&file);
        assert_eq!((reader.instance(), reader.pid()), (7, 9));
        assert!(reader.read().is_none());
        for n in 1..5u32 {
            page.publish(&of(n.into()), 100 + u64::from(n), 3);
            let found = reader.read().expect("it");
            assert_eq!(
                (found.turn, found.at_ns, found.left_out),
                (n, 100 + u64::from(n), 3)
            );
            assert_eq!(found.words, of(n.into()));
        }
        page.publish(&vec![1; WORDS as usize + 5], 0, 0);
        assert_eq!(reader.read().expect("it").words.len(), WORDS as usize);
        page.has_moved();
        assert!(reader.has_moved());
    }

    /// Any user can have thousands of waiters before the others.
    #[test]
    fn a_publication_walks_no_crowd() {
        use tranship_testkit::hostile::Hoard;
        let _dog = tranship_testkit::Watchdog::new();
        let (file, page) = made(WORDS);
        let reader = opened(&file);
        let crowd = Hoard::new().and_then(|mut crowd| {
            crowd.wait_on(reader.turn_ptr(), 0, 20_000)?;
            Ok(crowd)
        });
        let mut crowd = match crowd {
            Ok(crowd) => crowd,
            Err(error) => return tranship_testkit::skipped(format!("io_uring: {error}")),
        };
        page.publish(&of(1), 1, 0);
        page.has_moved();
        let woken = crowd.woken().expect("io_uring");
        assert!(
            (2..=32).contains(&woken),
            "two wake-ups reached {woken} waiters"
        );
    }

    #[test]
    fn no_reader_sees_half_of_two() {
        let _dog = tranship_testkit::Watchdog::new();
        let (file, page) = made(WORDS);
        page.publish(&of(1), 1, 0);
        let done = AtomicBool::new(false);
        let seen = std::thread::scope(|s| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    s.spawn(|| {
                        let reader = opened(&file);
                        let mut last = 0;
                        let mut seen = 0u64;
                        while !done.load(Ordering::Relaxed) {
                            let Some(found) = reader.read() else { continue };
                            assert_eq!(found.words, of(found.at_ns), "torn");
                            assert!(found.at_ns >= last, "went back");
                            seen += u64::from(found.at_ns > last);
                            last = found.at_ns;
                        }
                        seen
                    })
                })
                .collect();
            for n in 2..20_000 {
                page.publish(&of(n), n, 0);
            }
            done.store(true, Ordering::Relaxed);
            let seen = readers.into_iter().map(|r| r.join().expect("no panic"));
            seen.sum::<u64>()
        });
        assert!(seen > 0);
    }

    /// A process that is killed at any moment of continuous publishing leaves a complete page.
    #[test]
    fn who_dies_in_the_middle_leaves_the_last_one_whole() {
        let _dog = tranship_testkit::Watchdog::new();
        for _ in 0..50 {
            let (file, page) = made(WORDS);
            let reader = opened(&file);
            // A child would inherit no mapping.
            drop(page);
            // SAFETY: the child allocates, which is fine after a fork in glibc, writes its own mapping, and never
            // returns.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                if let Ok(page) = PageRw::create(&file, WORDS, 7, 9) {
                    for n in 1.. {
                        page.publish(&of(n), n, 0);
                    }
                }
                // SAFETY: ends the child.
                unsafe { libc::_exit(1) };
            }
            while reader.turn() < 20 {
                std::thread::yield_now();
            }
            // SAFETY: our own child.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            let pid = rustix::process::Pid::from_raw(pid);
            rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).expect("its end");
            let found = reader.read().expect("something whole");
            assert_eq!(found.words, of(found.at_ns));
        }
    }

    #[test]
    fn who_may_only_read_cannot_map_it_to_write() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("page");
        let file = File::create_new(&path).expect("a file");
        file.set_len(len(64) as u64).expect("a length");
        let file = File::options().read(true).write(true).open(&path);
        let page = PageRw::create(file.expect("it"), 64, 7, 9).expect("a page");
        page.publish(&[1, 2], 3, 0);
        let file = File::open(&path).expect("it");
        assert!(RwMapping::map(&file, len(64)).is_err());
        assert_eq!(opened(&file).read().expect("it").words, [1, 2]);
    }

    #[test]
    fn a_file_that_is_no_page_is_refused() {
        let (file, _page) = made(64);
        let bytes = len(64) as u64;
        for wrong in [0, 4095, bytes - 1, u64::MAX] {
            assert!(PageRo::open(&file, wrong).is_err(), "{wrong}");
        }
        assert!(PageRo::open(&file, bytes).is_ok());
        let other = tempfile::tempfile().expect("a file");
        other.set_len(bytes).expect("a length");
        assert!(PageRo::open(&other, bytes).is_err());
    }
}
