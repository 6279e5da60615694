//! Clients that ask and take nothing: the memory that they cost, and the cost to the others.

#[path = "block/kit.rs"]
#[allow(dead_code)]
mod kit;
#[path = "block/nbd.rs"]
mod nbd;

use nbd::{Client, READ, WRITE};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use tranship_block::Access;
use tranship_block::nbd::{Address, Export};

/// Allocator that counts the bytes that the process has, and the most that it had.
struct Counting;

static HAS: AtomicUsize = AtomicUsize::new(0);
static HAD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let has = HAS.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        HAD.fetch_max(has, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HAS.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MIB: usize = 1 << 20;
const SIZE: usize = 64 * MIB;

/// Fills in the bytes that lie at a place.
fn fill(offset: u64, bytes: &mut [u8]) {
    for (number, word) in (offset / 8..).zip(bytes.as_chunks_mut::<8>().0) {
        *word = number.to_le_bytes();
    }
}

fn right(offset: u64, bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<8>();
    (offset / 8..)
        .zip(words)
        .all(|(number, word)| *word == number.to_le_bytes())
}

#[test]
fn who_takes_no_replies_costs_so_much_in_all_and_holds_nobody_up() {
    const HOGS: usize = 16;
    const EACH: usize = 60;
    let _dog = kit::watchdog();
    let file = kit::file();
    let disk = kit::disk(&file, SIZE as u64, Access::Buffered, false);
    let path = file.path.with_extension("sock");
    let _export = Export::start(&Address::Unix(path.clone()), "", disk).expect("an export");
    let mut honest = Client::connect(&path).expect("connecting");
    let mut bytes = vec![0; 32 * MIB];
    for offset in [0, 32 << 20] {
        fill(offset, &mut bytes);
        let len = u32::try_from(bytes.len()).expect("small");
        assert_eq!(honest.ask(WRITE, offset, len, &bytes).expect("a write"), 0);
    }
    let before = HAS.load(Ordering::Relaxed);
    let mut hogs = Vec::new();
    for _ in 0..HOGS {
        let mut hog = Client::connect(&path).expect("connecting");
        for number in 0..EACH as u64 {
            hog.send(READ, 0, (number % 48) << 20, 1 << 20, &[])
                .expect("sent");
        }
        hogs.push(hog);
    }
    // The requests are in the way.
    while HAS.load(Ordering::Relaxed) - before < 250 * MIB {
        std::thread::yield_now();
    }
    // A client that takes its data gets all of it, also more than there is room for at once, in both forms.
    let mut chunks = Client::connect_with_chunks(&path).expect("connecting");
    for round in 0..4 {
        let offset = round << 23;
        bytes.fill(0);
        assert_eq!(honest.read(offset, &mut bytes).expect("a read"), 0);
        assert!(right(offset, &bytes), "round {round}");
        bytes.fill(0);
        assert_eq!(chunks.read_chunks(offset, &mut bytes).expect("a read"), 0);
        assert!(right(offset, &bytes), "round {round}, in chunks");
    }
    // There is no room for the whole answer. When the rest cannot be read, some of it is gone already: the server hangs
    // up, at a piece's end.
    let disk = std::fs::File::options().write(true).open(&file.path);
    disk.and_then(|disk| disk.set_len(50 << 20)).expect("cut");
    assert_eq!(honest.read(63 << 20, &mut bytes[..MIB]).expect("a read"), 5);
    honest.send(READ, 0, 40 << 20, 20 << 20, &[]).expect("sent");
    assert_eq!(honest.reply().expect("a reply").0, 0);
    bytes.clear();
    honest.stream.read_to_end(&mut bytes).expect("the end");
    assert!(bytes.len() == 10 * MIB && right(40 << 20, &bytes));
    bytes.resize(MIB, 0);
    // The clients that did not get theirs get them at last.
    for hog in &mut hogs {
        for _ in 0..EACH {
            let (error, cookie) = hog.reply().expect("a reply");
            assert_eq!(error, 0);
            let bytes = &mut bytes[..MIB];
            hog.stream.read_exact(bytes).expect("the bytes");
            assert!(right(((cookie - 1) % 48) << 20, bytes));
        }
    }
    let most = HAD.load(Ordering::Relaxed) - before;
    assert!(most < 400 * MIB, "{} MiB", most / MIB);
}
