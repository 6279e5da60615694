//! Interface of every store of blocks.

use crate::{Data, Fault, Lease};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::sync::Arc;

/// Properties of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Info {
    /// Length in bytes.
    pub size: u64,
    /// All writes are refused.
    pub read_only: bool,
    /// Number of the kernel's run that holds data that was written and not flushed.
    #[serde(with = "postcard::fixint::le")]
    pub boot: u128,
}

/// A piece of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// No disk space is in use: all bytes are zero.
    pub hole: bool,
}

/// Operation on a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Fills the data.
    Read,
    /// Stores the data.
    Write,
    /// Everything that was written and acknowledged before is on the disk when this is acknowledged.
    Flush,
    /// The bytes are not needed any more; their later content is not specified.
    Trim,
    /// The bytes are zero afterwards; with `punch` the space may be given up.
    Zero {
        /// The space may be given up.
        punch: bool,
    },
}

impl Op {
    /// Returns whether it may change bytes.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Op::Read | Op::Flush)
    }
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Operation.
    pub op: Op,
    /// Position in bytes from the beginning; 0 for a flush.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub len: u32,
    /// The data is on the disk when the request is acknowledged.
    pub durable: bool,
    /// Checksums of a write's pieces, or none where data goes through no other process.
    pub sums: Vec<u32>,
}

impl Request {
    /// Creates a request without checksums that is not durable by itself.
    #[must_use]
    pub fn new(op: Op, offset: u64, len: u32) -> Request {
        Request {
            op,
            offset,
            len,
            durable: false,
            sums: Vec::new(),
        }
    }

    /// Checks whether it may be done on such a store.
    ///
    /// # Errors
    /// `Bounds` beyond the store's end; `ReadOnly` for a request that would change it.
    pub fn check(&self, info: &Info) -> Result<(), Fault> {
        let (offset, len, size) = (self.offset, u64::from(self.len), info.size);
        match self.offset.checked_add(len) {
            Some(end) if end <= size => {}
            _ => return Err(Fault::Bounds { offset, len, size }),
        }
        match self.op.writes() && info.read_only {
            true => Err(Fault::ReadOnly),
            false => Ok(()),
        }
    }
}

/// Function that is called once, on any thread, with the data that came with the job. After a read that brought only
/// [`Data::Room`], it gets memory. After a read from a store that is checked, it gets the checksums. It must not block.
pub type Done = Box<dyn FnOnce(Data, Result<Vec<u32>, Fault>) + Send>;

/// A request with its memory and its continuation.
///
/// ```
/// # mod tranship { pub use tranship_block as block; }
/// use std::sync::mpsc;
/// use tranship::block::{Disk, DiskOptions, Job, Op, Request, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("disk");
/// # let new = DiskOptions { size: Some(1 << 20), ..DiskOptions::default() };
/// let disk = Disk::open(&path, &new)?;
/// let mut data = disk.data(Op::Write, 4096)?;
/// data.write(0, &[7; 4096])?;
/// let (tell, told) = mpsc::channel();
/// disk.submit(Job {
///     request: Request::new(Op::Write, 8192, 4096),
///     data,
///     done: Box::new(move |data, result| drop(tell.send((data, result)))),
/// });
/// disk.kick(); // after as many jobs as are to begin together
/// let (_data, result) = told.recv()?; // the memory comes back
/// result?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Job {
    /// Request to do.
    pub request: Request,
    /// Memory of a read or a write: room for at least `len` bytes.
    pub data: Data,
    /// Function that is called when it is done.
    pub done: Done,
}

impl Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({:?})", self.request)
    }
}

/// Store of blocks. Jobs run at the same time and end in any order; writes that overlap leave one of them.
///
/// ```
/// # mod tranship { pub use tranship_block as block; }
/// use std::sync::Mutex;
/// use tranship::block::{Blocking, Data, Fault, Info, Job, Lease, Op, Store};
///
/// /// A disk in memory, for a test.
/// #[derive(Debug)]
/// struct Memory(Mutex<Vec<u8>>);
///
/// impl Store for Memory {
///     fn info(&self) -> Result<Info, Fault> {
///         let size = self.0.lock().unwrap().len() as u64;
///         Ok(Info { size, read_only: false, boot: 0 })
///     }
///     fn is_checked(&self) -> bool {
///         false // nothing is on its way through other processes
///     }
///     fn lease(&self) -> Lease {
///         Lease::forever() // nobody else writes here
///     }
///     fn data(&self, _: Op, len: usize) -> Result<Data, Fault> {
///         Ok(Data::heap(len))
///     }
///     fn piece(&self, len: usize) -> usize {
///         len
///     }
///     fn submit(&self, Job { request, mut data, done }: Job) {
///         let allowed = self.info().and_then(|info| request.check(&info));
///         let result = allowed.and_then(|()| {
///             let mut bytes = self.0.lock().unwrap();
///             let bytes = &mut bytes[request.offset as usize..][..request.len as usize];
///             match request.op {
///                 Op::Read => data.write(0, bytes),
///                 Op::Write => data.read(0, bytes),
///                 Op::Trim | Op::Zero { .. } => Ok(bytes.fill(0)),
///                 Op::Flush => Ok(()),
///             }
///         });
///         done(data, result.map(|()| Vec::new()));
///     }
///     fn kick(&self) {}
/// }
///
/// let blocks = Blocking(Memory(Mutex::new(vec![0; 1 << 20])));
/// blocks.write_at(4096, b"hello", false)?;
/// let mut bytes = [0; 5];
/// blocks.read_at(4096, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: Send + Sync + Debug {
    /// Returns the properties of the store. Blocks until a server has been reached.
    ///
    /// # Errors
    /// `Gone` where a server was given up.
    fn info(&self) -> Result<Info, Fault>;
    /// Returns whether data is checked on its way. If it is, writers give checksums and readers compare them.
    fn is_checked(&self) -> bool;
    /// Returns the time during which read data may be used again.
    fn lease(&self) -> Lease;
    /// Returns memory, or room, for a read or a write of at most `len` bytes. Blocks while all is in use.
    ///
    /// # Errors
    /// `Gone` where a server was given up; `Invalid` for more than a request may have.
    fn data(&self, op: Op, len: usize) -> Result<Data, Fault>;
    /// Returns how many of `len` bytes go into one request best.
    fn piece(&self, len: usize) -> usize;
    /// Returns the next pieces from `offset` on, at most `most` of them and `len` bytes together: neighbours differ. A
    /// store that does not know its holes has one piece without a hole.
    fn extents(&self, _offset: u64, len: u64, _most: usize) -> Vec<Extent> {
        vec![Extent { len, hole: false }]
    }
    /// Begins a job. Does not wait for a disk or a server; the job may be done at once, or begin only with the next
    /// `kick`.
    fn submit(&self, job: Job);
    /// Begins the submitted jobs.
    fn kick(&self);
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn info(&self) -> Result<Info, Fault> {
        (**self).info()
    }
    fn is_checked(&self) -> bool {
        (**self).is_checked()
    }
    fn lease(&self) -> Lease {
        (**self).lease()
    }
    fn data(&self, op: Op, len: usize) -> Result<Data, Fault> {
        (**self).data(op, len)
    }
    fn piece(&self, len: usize) -> usize {
        (**self).piece(len)
    }
    fn extents(&self, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        (**self).extents(offset, len, most)
    }
    fn submit(&self, job: Job) {
        (**self).submit(job);
    }
    fn kick(&self) {
        (**self).kick();
    }
}
