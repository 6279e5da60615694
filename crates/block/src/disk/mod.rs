//! A file or a block device as a store: io_uring, without the page cache where the file system allows it.
//!
//! The disk reads and writes a buffer's memory directly. Only one kind of request is copied: a request that does not
//! begin and end at a block while the page cache is not used. Its blocks are read, changed and written as a whole.

mod at_once;
mod extents;
mod open;
mod options;
mod overlap;
mod step;
mod threads;
mod uring;

pub use open::OpenError;
pub use options::{Access, DiskOptions};

use crate::{Data, Done, Extent, Fault, Info, Job, Lease, Op, Request, Store, sum};
use at_once::AtOnce;
use options::ALIGN;
use overlap::Overlaps;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
pub(crate) use step::Action;
use step::{Step, Then};

/// A file or a block device. Safe to use from many threads. Dropping the last handle waits for the running requests.
///
/// ```
/// # mod tranship { pub use tranship_block as block; }
/// use tranship::block::{Blocking, Disk, DiskOptions, OpenError, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("disk");
/// let new = DiskOptions { size: Some(1 << 20), ..DiskOptions::default() };
/// let disk = Disk::open(&path, &new)?;
/// assert_eq!(disk.info()?.size, 1 << 20);
/// println!("{}", disk.describe()); // as "io_uring, without the page cache"
///
/// let blocks = Blocking(disk); // for callers that wait for each request
/// blocks.write_at(0, b"a superblock", true)?; // on the disk when it is done
/// let again = Disk::open(&path, &DiskOptions::default());
/// assert!(matches!(again, Err(OpenError::InUse(_)))); // it is one program's at a time
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Disk {
    info: Info,
    /// Fast path; only through the page cache.
    at_once: Option<AtOnce>,
    engine: Engine,
    file: Arc<File>,
    writes: Mutex<Overlaps<Job>>,
    /// A flush failed. The kernel has forgotten the data that it could not write, and no later flush may report that it
    /// is there.
    failed: AtomicBool,
    own: OnceLock<Weak<Disk>>,
}

#[derive(Debug)]
enum Engine {
    Ring(uring::Ring),
    Threads(threads::Threads),
}

impl Disk {
    /// Opens a file or a block device, alone unless it is read-only. Waits for a server that is just ending.
    ///
    /// # Errors
    /// The reason why it cannot be opened: in use, not a file or a device, a size that is no multiple of the block's,
    /// or the kernel's error.
    pub fn open(path: &Path, options: &DiskOptions) -> Result<Arc<Disk>, OpenError> {
        let system = |error| OpenError::System {
            path: path.to_owned(),
            error,
        };
        let opened = open::open(path, options)?;
        let file = Arc::new(opened.file);
        let engine = Engine::new(&file, options.threads).map_err(system)?;
        let disk = Arc::new(Disk {
            info: Info {
                size: opened.size,
                read_only: options.read_only,
                boot: boot(),
            },
            at_once: (!opened.direct).then(|| AtOnce::new(&file)),
            engine,
            file,
            writes: Mutex::default(),
            failed: AtomicBool::new(false),
            own: OnceLock::new(),
        });
        let _ = disk.own.set(Arc::downgrade(&disk));
        Ok(disk)
    }

    /// Returns in words how the disk is read and written, for the log.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match (&self.engine, self.is_direct()) {
            (Engine::Ring(_), true) => "io_uring, without the page cache",
            (Engine::Ring(_), false) => "io_uring, through the page cache",
            (Engine::Threads(_), true) => "threads, without the page cache",
            (Engine::Threads(_), false) => "threads, through the page cache",
        }
    }

    fn is_direct(&self) -> bool {
        self.at_once.is_none()
    }

    fn begin(self: &Arc<Self>, job: Job) {
        let Job {
            request,
            data,
            done,
        } = job;
        match request.op {
            Op::Read => self.read(request, data, done),
            Op::Write => self.write(request, data, done),
            Op::Flush => self.flush(data, done),
            Op::Trim => self.give_up(request, data, done, Action::Punch),
            Op::Zero { punch: true } => self.give_up(request, data, done, Action::Punch),
            Op::Zero { punch: false } => self.give_up(request, data, done, Action::Zero),
        }
    }

    /// Returns the whole blocks around a request, if it must be done in whole blocks and is not.
    fn around(&self, request: &Request) -> Option<Range<u64>> {
        let end = request.offset + u64::from(request.len);
        let aligned = request.offset.is_multiple_of(ALIGN) && end.is_multiple_of(ALIGN);
        let whole = request.offset / ALIGN * ALIGN..end.next_multiple_of(ALIGN);
        (self.is_direct() && !aligned).then_some(whole)
    }

    fn read(self: &Arc<Self>, request: Request, data: Data, done: Done) {
        let len = request.len as usize;
        let end = move |data: Data, result: Result<(), Fault>| {
            done(data, result.map(|()| Vec::new()));
        };
        let Some(whole) = self.around(&request) else {
            return self.whole(Action::Read, request.offset, len, data, Box::new(end));
        };
        self.read_around(&whole, move |scratch, result| {
            let mut data = data;
            let from = usize::try_from(request.offset - whole.start).unwrap_or(0);
            let copied = result.and_then(|()| {
                let bytes = scratch.slice().and_then(|b| b.get(from..from + len));
                data.write(0, bytes.ok_or(Fault::Invalid)?)
            });
            end(data, copied);
        });
    }

    fn read_around(
        self: &Arc<Self>,
        whole: &Range<u64>,
        then: impl FnOnce(Data, Result<(), Fault>) + Send + 'static,
    ) {
        let len = usize::try_from(whole.end - whole.start).unwrap_or(0);
        let scratch = Data::used(len);
        self.whole(Action::Read, whole.start, len, scratch, Box::new(then));
    }

    fn write(self: &Arc<Self>, request: Request, data: Data, done: Done) {
        let len = request.len as usize;
        let action = Action::Write {
            durable: request.durable,
        };
        let end = self.after_write(&request, done);
        let Some(whole) = self.around(&request) else {
            return self.whole(action, request.offset, len, data, Box::new(end));
        };
        let disk = Arc::clone(self);
        self.read_around(&whole.clone(), move |mut scratch, result| {
            let from = usize::try_from(request.offset - whole.start).unwrap_or(0);
            let mut bytes = vec![0; len];
            let changed = result
                .and_then(|()| data.read(0, &mut bytes))
                .and_then(|()| scratch.write(from, &bytes));
            if let Err(fault) = changed {
                return end(data, Err(fault));
            }
            let len = scratch.len();
            disk.whole(
                action,
                whole.start,
                len,
                scratch,
                Box::new(move |_, result| end(data, result)),
            );
        });
    }

    /// Begins the requests that waited for a write, after every write.
    fn after_write(
        self: &Arc<Self>,
        request: &Request,
        done: Done,
    ) -> impl FnOnce(Data, Result<(), Fault>) + Send + 'static {
        let (disk, blocks) = (Arc::clone(self), blocks(request));
        move |data, result| {
            let next = disk.lock().end(&blocks);
            for job in next {
                disk.begin(job);
            }
            disk.engine.kick();
            done(data, result.map(|()| Vec::new()));
        }
    }

    fn flush(self: &Arc<Self>, data: Data, done: Done) {
        let disk = Arc::clone(self);
        let then: Then = Box::new(move |_, result| {
            if let Err(error) = &result {
                tracing::error!("flushing failed, and all later flushes will: {error}");
                // Ordering: relaxed; the failure is told by the answers, this only repeats it.
                disk.failed.store(true, Ordering::Relaxed);
            }
            let failed = disk.failed.load(Ordering::Relaxed);
            let result = match (result, failed) {
                (Err(error), _) => Err(error.into()),
                (Ok(_), true) => Err(Fault::Io(libc::EIO)),
                (Ok(_), false) => Ok(Vec::new()),
            };
            done(data, result);
        });
        self.engine.submit(Step {
            action: Action::Sync,
            offset: 0,
            len: 0,
            at: 0,
            data: Data::None,
            then,
        });
    }

    /// Trims, or writes zeroes.
    fn give_up(self: &Arc<Self>, request: Request, data: Data, done: Done, action: Action) {
        let (disk, end) = (Arc::clone(self), self.after_write(&request, done));
        let (offset, len) = (request.offset, request.len as usize);
        let then: Then = Box::new(move |_, result| match result {
            Ok(_) if request.durable => {
                let flushed = Box::new(move |_: Data, result: Result<Vec<u32>, Fault>| {
                    end(data, result.map(drop));
                });
                disk.flush(Data::None, flushed);
            }
            Ok(_) => end(data, Ok(())),
            // A trim is a hint.
            Err(_) if request.op == Op::Trim => end(data, Ok(())),
            Err(error) => match Fault::from(error) {
                Fault::Unsupported => disk.write_zeroes(request, data, Box::new(end)),
                fault => end(data, Err(fault)),
            },
        });
        self.engine.submit(Step {
            action,
            offset,
            len,
            at: 0,
            data: Data::None,
            then,
        });
    }

    /// Writes zeros where the file system has no way to make them. On a thread, because it is long and rare.
    fn write_zeroes(self: &Arc<Self>, request: Request, data: Data, end: After) {
        let disk = Arc::clone(self);
        let thread = std::thread::Builder::new().name("block-zeroes".into());
        let work = move || {
            let result = disk.zeroes(&request);
            end(data, result);
        };
        if let Err(error) = thread.spawn(work) {
            tracing::error!("no thread to write zeroes: {error}");
        }
    }

    fn zeroes(self: &Arc<Self>, request: &Request) -> Result<(), Fault> {
        let end = request.offset + u64::from(request.len);
        let mut offset = request.offset;
        while offset < end {
            // Up to a block's end, then whole blocks, then the rest.
            let next = match offset.is_multiple_of(ALIGN) {
                true if end - offset >= ALIGN => {
                    (end / ALIGN * ALIGN).min(offset + crate::limits::MAX_DATA_BYTES as u64)
                }
                _ => end.min(offset / ALIGN * ALIGN + ALIGN),
            };
            let piece = Request {
                op: Op::Write,
                offset,
                len: u32::try_from(next - offset).unwrap_or(0),
                durable: request.durable,
                sums: Vec::new(),
            };
            self.zero_piece(piece)?;
            offset = next;
        }
        Ok(())
    }

    fn zero_piece(self: &Arc<Self>, request: Request) -> Result<(), Fault> {
        let (tell, told) = std::sync::mpsc::channel();
        let data = Data::heap(request.len as usize);
        // This thread has the request's blocks already, so it does not go through `submit`.
        let done: Done = Box::new(move |_, result| {
            let _ = tell.send(result.map(drop));
        });
        self.write(request, data, done);
        self.engine.kick();
        told.recv().unwrap_or(Err(Fault::Gone))
    }

    /// Does all of a read or a write, however the kernel cuts it.
    fn whole(self: &Arc<Self>, action: Action, offset: u64, len: usize, data: Data, end: After) {
        self.rest(action, offset, len, 0, data, end);
    }

    fn rest(
        self: &Arc<Self>,
        action: Action,
        offset: u64,
        len: usize,
        at: usize,
        data: Data,
        end: After,
    ) {
        let disk = Arc::clone(self);
        let then: Then = Box::new(move |data, result| {
            let result: io::Result<usize> = result;
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    disk.rest(action, offset, len, at, data, end);
                }
                Err(error) => end(data, Err(error.into())),
                // The file is shorter than it was.
                Ok(0) if at < len => end(data, Err(Fault::Io(libc::EIO))),
                Ok(more) if at + more < len => {
                    disk.rest(action, offset, len, at + more, data, end);
                }
                Ok(_) => end(data, Ok(())),
            }
        });
        self.engine.submit(Step {
            action,
            offset: offset + at as u64,
            len: len - at,
            at,
            data,
            then,
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Overlaps<Job>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Continuation for when all of a read or a write is done.
type After = Box<dyn FnOnce(Data, Result<(), Fault>) + Send>;

fn blocks(request: &Request) -> Range<u64> {
    let end = request.offset + u64::from(request.len);
    request.offset / ALIGN..end.div_ceil(ALIGN)
}

/// Returns the number of the kernel's run; a random number where the kernel gives none.
fn boot() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_else(|_| {
        let random = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
        u128::from(std::hash::Hasher::finish(&random))
    })
}

impl Engine {
    fn new(file: &Arc<File>, threads: bool) -> io::Result<Engine> {
        if !threads {
            match uring::Ring::new(Arc::clone(file)) {
                Ok(ring) => return Ok(Engine::Ring(ring)),
                Err(error) => tracing::info!("no io_uring ({error}): threads instead"),
            }
        }
        Ok(Engine::Threads(threads::Threads::new(file)?))
    }

    fn submit(&self, step: Step) {
        match self {
            Engine::Ring(ring) => ring.submit(step),
            Engine::Threads(threads) => threads.submit(step),
        }
    }

    fn kick(&self) {
        if let Engine::Ring(ring) = self {
            ring.kick();
        }
    }
}

impl Store for Disk {
    fn info(&self) -> Result<Info, Fault> {
        Ok(self.info)
    }

    fn is_checked(&self) -> bool {
        false
    }

    fn lease(&self) -> Lease {
        Lease::forever()
    }

    fn data(&self, _: Op, len: usize) -> Result<Data, Fault> {
        Ok(Data::used(len))
    }

    fn piece(&self, len: usize) -> usize {
        len.min(1 << 20)
    }

    fn extents(&self, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        extents::of(&self.file, offset, len, most)
    }

    fn submit(&self, mut job: Job) {
        let Some(own) = self.own.get().and_then(Weak::upgrade) else {
            return (job.done)(job.data, Err(Fault::Gone));
        };
        let request = &job.request;
        let (len, needs) = (
            request.len as usize,
            matches!(request.op, Op::Read | Op::Write),
        );
        let mut fine = request.check(&self.info);
        if needs && len > job.data.len() {
            fine = Err(Fault::Invalid);
        }
        if fine.is_ok() && request.op == Op::Write && !request.sums.is_empty() {
            fine = sum::check_data(request.offset, &job.data, len, &request.sums);
        }
        match (fine, request.op) {
            (Err(fault), _) => (job.done)(job.data, Err(fault)),
            (Ok(()), Op::Flush) => own.begin(job),
            // Nothing to do; the kernel would return an error for a length of zero.
            (Ok(()), _) if len == 0 => (job.done)(job.data, Ok(Vec::new())),
            (Ok(()), Op::Read) => match &self.at_once {
                Some(at_once) if at_once.read(&mut job) => (job.done)(job.data, Ok(Vec::new())),
                _ => own.begin(job),
            },
            (Ok(()), _) => {
                let begun = self.lock().begin(blocks(&job.request), job);
                let Some(mut job) = begun else { return };
                match &self.at_once {
                    Some(at_once) if at_once.write(&mut job) => {
                        own.after_write(&job.request, job.done)(job.data, Ok(()));
                    }
                    _ => own.begin(job),
                }
            }
        }
    }

    fn kick(&self) {
        self.engine.kick();
    }
}
