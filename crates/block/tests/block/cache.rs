//! Blocks that a cache keeps when reads and writes of a block are under way at the same time: none that may be old.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use tranship_block::{Cache, Cached, Data, Fault, Info, Job, Lease, Op, Request, Store, sums};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 16;

/// A store whose jobs end when the test says so.
#[derive(Debug, Default)]
struct Held(Mutex<Vec<Job>>);

impl Store for Held {
    fn info(&self) -> Result<Info, Fault> {
        Ok(Info {
            size: BLOCKS * BLOCK as u64,
            read_only: false,
            boot: 0,
        })
    }
    fn is_checked(&self) -> bool {
        false
    }
    fn lease(&self) -> Lease {
        Lease::forever()
    }
    fn data(&self, _: Op, len: usize) -> Result<Data, Fault> {
        Ok(Data::heap(len))
    }
    fn piece(&self, len: usize) -> usize {
        len
    }
    fn submit(&self, job: Job) {
        self.0.lock().expect("no panic").push(job);
    }
    fn kick(&self) {}
}

struct World {
    held: Arc<Held>,
    store: Cached<Arc<Held>>,
}

/// Request under way below the cache.
#[must_use]
struct UnderWay(Job);

impl UnderWay {
    /// A read finds this byte everywhere.
    fn finds(self, byte: u8) {
        let Job {
            request,
            mut data,
            done,
        } = self.0;
        let bytes = vec![byte; request.len as usize];
        data.write(0, &bytes).expect("in bounds");
        done(data, Ok(Vec::new()));
    }

    fn ends(self) {
        (self.0.done)(self.0.data, Ok(Vec::new()));
    }

    fn fails(self) {
        (self.0.done)(self.0.data, Err(Fault::Gone));
    }
}

impl World {
    fn new() -> World {
        let held = Arc::new(Held::default());
        let store = Cached::new(&Cache::new(1 << 20), Arc::clone(&held));
        World { held, store }
    }

    /// Asks a request; returns it and the receiver of its end. All bytes are this one.
    fn ask(&self, request: Request, byte: u8) -> (Option<UnderWay>, Receiver<Option<u8>>) {
        let (tell, told) = channel();
        let mut data = Data::heap(request.len as usize);
        data.write(0, &vec![byte; request.len as usize])
            .expect("in bounds");
        let done = Box::new(move |data: Data, result: Result<Vec<u32>, Fault>| {
            let mut bytes = vec![0; data.len()];
            data.read(0, &mut bytes).expect("in bounds");
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            let _ = tell.send(result.ok().map(|_| bytes[0]));
        });
        self.store.submit(Job {
            request,
            data,
            done,
        });
        let job = self.held.0.lock().expect("no panic").pop();
        (job.map(UnderWay), told)
    }

    fn read(&self, block: u64) -> UnderWay {
        let request = Request::new(Op::Read, block * BLOCK as u64, 4096);
        self.ask(request, 0).0.expect("it is not known")
    }

    fn write(&self, block: u64, byte: u8) -> UnderWay {
        let mut request = Request::new(Op::Write, block * BLOCK as u64, 4096);
        request.sums = sums(request.offset, &[byte; BLOCK]);
        self.ask(request, byte).0.expect("writes go through")
    }

    /// Returns the byte that the cache has; None: the cache does not have the block.
    fn known(&self, block: u64) -> Option<u8> {
        let request = Request::new(Op::Read, block * BLOCK as u64, 4096);
        let (job, told) = self.ask(request, 0);
        match job {
            Some(job) => {
                job.fails();
                None
            }
            None => told.recv().expect("an answer"),
        }
    }
}

#[test]
fn what_was_read_and_what_was_written_alone_is_known() {
    let world = World::new();
    assert_eq!(world.known(0), None);
    world.read(0).finds(7);
    assert_eq!(world.known(0), Some(7));
    let write = world.write(0, 8);
    assert_eq!(world.known(0), None, "a write is under way");
    write.ends();
    assert_eq!(world.known(0), Some(8));
    world.write(0, 9).fails();
    assert_eq!(world.known(0), None, "nobody knows whether it was done");
    world.read(0).finds(9);
    assert_eq!(world.known(0), Some(9));
}

#[test]
fn what_a_read_has_found_is_not_known_after_a_write_that_it_may_have_missed() {
    // The write begins and ends while the read is under way.
    let world = World::new();
    let read = world.read(0);
    world.write(0, 8).fails();
    read.finds(7);
    assert_eq!(world.known(0), None);
    // The write begins before the read, and ends before it.
    let world = World::new();
    let write = world.write(0, 8);
    let read = world.read(0);
    write.fails();
    read.finds(7);
    assert_eq!(world.known(0), None);
    // The write begins after the read, and ends after it.
    let world = World::new();
    let read = world.read(0);
    let write = world.write(0, 8);
    read.finds(7);
    assert_eq!(world.known(0), None);
    write.ends();
    // All of the read is in the write: another read may have found the new bytes, and none after it the old.
    let world = World::new();
    let write = world.write(0, 8);
    world.read(0).finds(7);
    assert_eq!(world.known(0), None);
    write.ends();
    assert_eq!(world.known(0), Some(8));
}

#[test]
fn of_writes_that_overlap_none_is_known() {
    for order in [[0, 1], [1, 0]] {
        let world = World::new();
        let mut writes = [Some(world.write(0, 8)), Some(world.write(0, 9))];
        for which in order {
            writes[which].take().expect("once").ends();
            assert_eq!(world.known(0), None);
        }
        // The next one is.
        world.read(0).finds(9);
        assert_eq!(world.known(0), Some(9));
    }
    // A write that ends before the other begins, in another block of the group.
    let world = World::new();
    world.write(1, 8).ends();
    world.write(1, 9).ends();
    assert_eq!(world.known(1), Some(9));
}

#[test]
fn a_zeroed_range_is_forgotten_when_it_begins_and_when_it_ends() {
    let world = World::new();
    (0..BLOCKS).for_each(|block| world.read(block).finds(7));
    for op in [Op::Trim, Op::Zero { punch: true }] {
        let request = Request::new(op, BLOCK as u64 + 1, 3 * 4096);
        let (job, _) = world.ask(request, 0);
        let job = job.expect("it goes through");
        for block in 0..BLOCKS {
            let known = !(1..5).contains(&block);
            assert_eq!(world.known(block), known.then_some(7), "{op:?}: {block}");
        }
        // A read that finds the old bytes.
        world.read(1).finds(7);
        job.ends();
        assert_eq!(world.known(1), None);
        (1..5).for_each(|block| world.read(block).finds(7));
    }
}

/// The length of a request is a client's word.
#[test]
fn no_memory_is_taken_for_bytes_that_are_not_there() {
    let world = World::new();
    for op in [Op::Trim, Op::Zero { punch: false }, Op::Write, Op::Read] {
        let mut request = Request::new(op, 0, u32::MAX - 4095);
        request.sums = vec![0; 64];
        world.store.submit(Job {
            request,
            data: Data::heap(BLOCK),
            done: Box::new(|_, _| ()),
        });
        let below = world.held.0.lock().expect("no panic").pop();
        UnderWay(below.expect("it is for below to refuse")).ends();
    }
    // The largest allocation of this thread, which is the test's own: the counters of the groups are the largest.
    let largest = crate::largest::of_this_thread();
    assert!(largest <= 1 << 20, "{largest} bytes at once");
}
