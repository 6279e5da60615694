//! Promises about bytes that are damaged on their way, about a flush, and about requests that a lost server had not
//! answered.

use crate::kit;
use crate::nbd::Client;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use tranship_block::nbd::{Address, Export};
use tranship_block::{
    Access, Blocking, Cache, Cached, Data, Disk, DiskOptions, Done, Fault, Info, Job, Lease, Op,
    Request, Store, sums,
};
use tranship_core::Trust;
use tranship_testkit::skipped;

const SIZE: u64 = 1 << 20;

/// A disk behind a way on which the first so many reads are damaged, after their checksums were made.
#[derive(Debug)]
struct Damaging {
    disk: Arc<Disk>,
    left: Arc<AtomicU32>,
}

impl Damaging {
    fn new(file: &kit::File, reads: u32) -> Damaging {
        Damaging {
            disk: kit::disk(file, SIZE, Access::Auto, false),
            left: Arc::new(AtomicU32::new(reads)),
        }
    }
}

impl Store for Damaging {
    fn info(&self) -> Result<Info, Fault> {
        self.disk.info()
    }
    fn is_checked(&self) -> bool {
        true
    }
    fn lease(&self) -> Lease {
        Lease::forever()
    }
    fn data(&self, op: Op, len: usize) -> Result<Data, Fault> {
        self.disk.data(op, len)
    }
    fn piece(&self, len: usize) -> usize {
        self.disk.piece(len)
    }
    fn submit(&self, mut job: Job) {
        if job.request.op == Op::Read {
            let (offset, len) = (job.request.offset, job.request.len as usize);
            let (left, done) = (Arc::clone(&self.left), job.done);
            let damaged: Done = Box::new(move |mut data, result| {
                let result = result.and_then(|_| {
                    let mut bytes = vec![0; len];
                    data.read(0, &mut bytes)?;
                    let said = sums(offset, &bytes);
                    let one_less = |left: u32| left.checked_sub(1);
                    let relaxed = Ordering::Relaxed;
                    if left.fetch_update(relaxed, relaxed, one_less).is_ok() {
                        data.write(len / 2, &[!bytes[len / 2]])?;
                    }
                    Ok(said)
                });
                done(data, result);
            });
            job.done = damaged;
        }
        self.disk.submit(job);
    }
    fn kick(&self) {
        self.disk.kick();
    }
}

#[test]
fn an_nbd_client_gets_what_is_right_or_an_error() {
    let _dog = kit::watchdog();
    // Asked three times in all.
    for (reads, error) in [(0, 0), (2, 0), (3, 5)] {
        let file = kit::file();
        let path = file.path.with_extension("sock");
        let store = Arc::new(Damaging::new(&file, reads));
        let left = Arc::clone(&store.left);
        let at = Address::Unix(path.clone());
        let _export = Export::start(&at, "", store).expect("an export");
        let mut client = Client::connect(&path).expect("connecting");
        let mut read = [1; 8192];
        assert_eq!(client.read(4096, &mut read).expect("a reply"), error);
        assert_eq!(left.load(Ordering::Relaxed), 0);
        if error == 0 {
            assert!(read == [0; 8192], "{reads} damaged");
        }
        // The connection goes on.
        assert_eq!(client.read(0, &mut read).expect("a reply"), 0);
        assert!(read == [0; 8192]);
    }
}

#[test]
fn a_program_gets_what_is_right() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let store = Damaging::new(&file, 5);
    let left = Arc::clone(&store.left);
    let mut read = [1; 8192];
    Blocking(store).read_at(4096, &mut read).expect("reading");
    assert!(read == [0; 8192]);
    assert_eq!(left.load(Ordering::Relaxed), 0);
}

#[test]
fn a_cache_keeps_nothing_that_was_damaged() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let store = Blocking(Cached::new(&Cache::new(SIZE), Damaging::new(&file, 1)));
    let mut read = [1; 8192];
    // Read from below again, and once more from the cache.
    for _ in 0..2 {
        store.read_at(4096, &mut read).expect("reading");
        assert!(read == [0; 8192]);
    }
}

/// Pages of a file that are not on the disk; None where the kernel does not say (before Linux 6.5).
fn unwritten(file: &File) -> Option<u64> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let all = [0u64; 2];
    let mut says = [0u64; 5];
    // SAFETY: cachestat(2) reads two numbers and writes five.
    let done = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            all.as_ptr(),
            says.as_mut_ptr(),
            0,
        )
    };
    let [_, dirty, under_way, ..] = says;
    (done == 0).then_some(dirty + under_way)
}

/// Data that a write leaves in the page cache is on the disk when a flush, or the write itself, was reported as done.
fn flushes(store: Arc<dyn Store>, file: &kit::File, name: &str) {
    let seen = File::open(&file.path).expect("the file");
    let store = Blocking(store);
    let bytes = vec![0x5a; 1 << 20];
    for number in 0..8 {
        store
            .write_at(number << 20, &bytes, false)
            .expect("writing");
    }
    if unwritten(&seen).is_none_or(|pages| pages == 0) {
        // Another kernel, a file system without a cache, or a file system that has written it already.
        return skipped(format_args!(
            "{name}: what is not written cannot be seen here"
        ));
    }
    store.flush().expect("flushing");
    assert_eq!(unwritten(&seen), Some(0), "{name}: after a flush");
    for number in 0..8 {
        store.write_at(number << 20, &bytes, true).expect("writing");
        assert_eq!(unwritten(&seen), Some(0), "{name}: after a durable write");
    }
}

#[test]
fn what_was_flushed_is_on_the_disk() {
    let _dog = kit::watchdog();
    for threads in [false, true] {
        let file = kit::file();
        let disk = kit::disk(&file, 8 << 20, Access::Buffered, threads);
        flushes(disk.clone(), &file, &format!("threads: {threads}"));
        let at = kit::endpoint("shm", Trust::Full);
        let _front = kit::front(&at, disk);
        flushes(kit::connect(&at), &file, "over shared memory");
    }
}

/// Writes past the page cache leave nothing there that could be seen. Those of another user of the file do, and a flush
/// of a file is one of all of it.
#[test]
fn a_flush_past_the_page_cache_is_one_of_the_disk() {
    let _dog = kit::watchdog();
    for threads in [false, true] {
        let file = kit::file();
        drop(kit::disk(&file, SIZE, Access::Auto, false));
        let options = DiskOptions {
            access: Access::Direct,
            threads,
            ..DiskOptions::default()
        };
        let Ok(disk) = Disk::open(&file.path, &options) else {
            return skipped("no file here is read and written without the page cache");
        };
        let other = File::options()
            .write(true)
            .open(&file.path)
            .expect("the file");
        other.write_all_at(&[7; 1 << 20], 0).expect("writing");
        if unwritten(&other).is_none_or(|pages| pages == 0) {
            return skipped("what is not written cannot be seen here");
        }
        Blocking(disk).flush().expect("flushing");
        assert_eq!(unwritten(&other), Some(0), "threads: {threads}");
    }
}

/// A server that takes requests and answers none.
#[derive(Debug)]
struct Mute {
    info: Info,
    taken: Mutex<Vec<Job>>,
}

impl Store for Mute {
    fn info(&self) -> Result<Info, Fault> {
        Ok(self.info)
    }
    fn is_checked(&self) -> bool {
        false
    }
    fn lease(&self) -> Lease {
        Lease::forever()
    }
    fn data(&self, _: Op, _: usize) -> Result<Data, Fault> {
        Err(Fault::Invalid)
    }
    fn piece(&self, len: usize) -> usize {
        len
    }
    fn submit(&self, job: Job) {
        self.taken.lock().expect("no panic").push(job);
    }
    fn kick(&self) {}
}

#[test]
fn what_a_server_has_taken_and_not_answered_is_asked_again() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let disk = kit::disk(&file, SIZE, Access::Auto, false);
    let mute = Arc::new(Mute {
        info: disk.info().expect("it knows"),
        taken: Mutex::default(),
    });
    let at = kit::endpoint("shm", Trust::Full);
    let behind: Arc<dyn Store> = Arc::clone(&mute) as Arc<dyn Store>;
    let front = kit::front(&at, behind);
    let remote = kit::connect(&at);
    let (tell, told) = mpsc::channel();
    for number in 0..16u8 {
        let mut data = remote.data(Op::Write, 4096).expect("memory");
        data.write(0, &[number + 1; 4096]).expect("in bounds");
        let offset = u64::from(number) * 4096;
        let mut request = Request::new(Op::Write, offset, 4096);
        request.sums = sums(offset, &[number + 1; 4096]);
        let tell = tell.clone();
        remote.submit(Job {
            request,
            data,
            done: Box::new(move |_, result| tell.send((number, result)).expect("we wait")),
        });
    }
    while mute.taken.lock().expect("no panic").len() < 16 {
        std::thread::yield_now();
    }
    drop(front);
    assert!(told.try_recv().is_err(), "nobody has answered");
    let _front = kit::front(&at, disk);
    // Not even as a server that is gone: no client would ask again.
    let mut answered: Vec<_> = told.iter().take(16).collect();
    answered.sort_by_key(|(number, _)| *number);
    let wants: Vec<_> = (0..16).map(|number| (number, Ok(Vec::new()))).collect();
    assert_eq!(answered, wants);
    let mut all = vec![0; 16 * 4096];
    Blocking(remote).read_at(0, &mut all).expect("reading");
    for (number, block) in (1u8..).zip(all.chunks(4096)) {
        assert!(block.iter().all(|byte| *byte == number), "block {number}");
    }
}
