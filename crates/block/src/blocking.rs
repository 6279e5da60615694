//! A store for callers that wait: bytes in, bytes out, of any length at any place.

use crate::{Data, Done, Fault, Job, Op, Request, Store, sum};
use std::sync::mpsc;

/// Number of times that a request is asked again when its outcome is not known, or its bytes were damaged on the way.
const ATTEMPTS: usize = 100;
/// Requests of one call that are under way at once.
const DEPTH: usize = 16;

/// Blocking calls over a store.
///
/// ```
/// # mod tranship { pub use tranship_block as block; }
/// use tranship::block::{Blocking, Disk, DiskOptions};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("disk");
/// # std::fs::File::create(&path)?.set_len(1 << 20)?;
/// let disk = Blocking(Disk::open(&path, &DiskOptions::default())?);
/// disk.write_at(4096, &[7; 4096], true)?;
/// let mut block = [0; 4096];
/// disk.read_at(4096, &mut block)?;
/// assert_eq!(block, [7; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Blocking<S>(pub S);

struct Answer {
    offset: u64,
    data: Data,
    result: Result<Vec<u32>, Fault>,
}

impl<S: Store> Blocking<S> {
    /// Fills `to` with the bytes at `offset`. Compares them with the checksums that came with them.
    ///
    /// Waits as long as the store takes; for a server that is away for ever, unless its [`Endpoint`](crate::Endpoint)
    /// gives up.
    ///
    /// # Errors
    /// The store's fault; `Corrupt` if the bytes do not match their checksums several times.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault> {
        let store = &self.0;
        let checked = store.is_checked();
        let begin = |offset: u64, len: usize| {
            Ok((
                Request::new(Op::Read, offset, length(len)?),
                store.data(Op::Read, len)?,
            ))
        };
        self.all(offset, to.len(), begin, |answer, at, len| {
            let sums = answer.result?;
            let piece = to.get_mut(at..at + len).ok_or(Fault::Invalid)?;
            answer.data.read(0, piece)?;
            match checked {
                true => sum::check(answer.offset, piece, &sums),
                false => Ok(()),
            }
        })
    }

    /// Stores `bytes` at `offset`. If `durable`, they are on the disk when the call returns.
    ///
    /// # Errors
    /// The store's fault. It blocks as [`read_at`](Blocking::read_at).
    pub fn write_at(&self, offset: u64, bytes: &[u8], durable: bool) -> Result<(), Fault> {
        let store = &self.0;
        let begin = |place: u64, len: usize| {
            let at = usize::try_from(place - offset)
                .map_err(|_: std::num::TryFromIntError| Fault::Invalid)?;
            let piece = bytes.get(at..at + len).ok_or(Fault::Invalid)?;
            let mut data = store.data(Op::Write, len)?;
            data.write(0, piece)?;
            let mut request = Request::new(Op::Write, place, length(len)?);
            request.durable = durable;
            if store.is_checked() {
                request.sums = sum::sums(place, piece);
            }
            Ok((request, data))
        };
        self.all(offset, bytes.len(), begin, |answer, _, _| {
            answer.result.map(drop)
        })
    }

    /// Flushes: every write that was acknowledged before is on the disk afterwards.
    ///
    /// # Errors
    /// The store's fault. It blocks as [`read_at`](Blocking::read_at).
    pub fn flush(&self) -> Result<(), Fault> {
        self.one(Request::new(Op::Flush, 0, 0))
    }

    /// Trims: the bytes are not needed any more.
    ///
    /// # Errors
    /// The store's fault. It blocks as [`read_at`](Blocking::read_at).
    pub fn trim(&self, offset: u64, len: u32) -> Result<(), Fault> {
        self.one(Request::new(Op::Trim, offset, len))
    }

    /// Makes the bytes zero.
    ///
    /// # Errors
    /// The store's fault. It blocks as [`read_at`](Blocking::read_at).
    pub fn zero(&self, offset: u64, len: u32, punch: bool) -> Result<(), Fault> {
        self.one(Request::new(Op::Zero { punch }, offset, len))
    }

    fn one(&self, request: Request) -> Result<(), Fault> {
        let mut last = Fault::Gone;
        for _ in 0..ATTEMPTS {
            let (tell, told) = mpsc::channel();
            let done: Done = Box::new(move |_, result| drop(tell.send(result)));
            self.0.submit(Job {
                request: request.clone(),
                data: Data::None,
                done,
            });
            self.0.kick();
            match told.recv().unwrap_or(Err(Fault::Gone)) {
                Err(Fault::Gone) => last = Fault::Gone,
                other => return other.map(drop),
            }
        }
        Err(last)
    }

    /// Cuts a call into requests, several at a time.
    fn all(
        &self,
        offset: u64,
        len: usize,
        begin: impl Fn(u64, usize) -> Result<(Request, Data), Fault>,
        mut end: impl FnMut(Answer, usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let info = self.0.info()?;
        let whole = u64::try_from(len).map_err(|_: std::num::TryFromIntError| Fault::Invalid)?;
        if offset.checked_add(whole).is_none_or(|end| end > info.size) {
            return Err(Fault::Bounds {
                offset,
                len: whole,
                size: info.size,
            });
        }
        let (tell, told) = mpsc::channel();
        let start = |at: usize, len: usize| -> Result<(), Fault> {
            let place = offset + at as u64;
            let (request, data) = begin(place, len)?;
            let tell = tell.clone();
            let done: Done = Box::new(move |data, result| {
                let answer = Answer {
                    offset: place,
                    data,
                    result,
                };
                drop(tell.send((at, len, answer)));
            });
            self.0.submit(Job {
                request,
                data,
                done,
            });
            Ok(())
        };
        let (mut next, mut under_way, mut failed, mut attempts) = (0, 0, None, 0);
        loop {
            while next < len && under_way < DEPTH && failed.is_none() {
                let piece = self.0.piece(len - next);
                match start(next, piece) {
                    Ok(()) => under_way += 1,
                    Err(fault) => failed = Some(fault),
                }
                next += piece;
            }
            self.0.kick();
            if under_way == 0 {
                return failed.map_or(Ok(()), Err);
            }
            let (at, len, answer) = told
                .recv()
                .map_err(|_: std::sync::mpsc::RecvError| Fault::Gone)?;
            under_way -= 1;
            match end(answer, at, len) {
                Ok(()) => {}
                Err(Fault::Gone | Fault::Corrupt(_)) if attempts < ATTEMPTS && failed.is_none() => {
                    attempts += 1;
                    match start(at, len) {
                        Ok(()) => under_way += 1,
                        Err(fault) => failed = Some(fault),
                    }
                }
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
    }
}

fn length(len: usize) -> Result<u32, Fault> {
    u32::try_from(len).map_err(|_: std::num::TryFromIntError| Fault::Invalid)
}
