//! The transmission phase: requests become jobs of the store, many at a time.

use super::handshake::Agreed;
use super::incoming::Incoming;
use super::replies::{Replies, Reply};
use super::stream::Stream;
use super::wire::{self, Command, MAX_BYTES, REQUEST_BYTES};
use crate::memory::Heap;
use crate::{Data, Done, Fault, Info, Job, Op, Request, Store, sum};
use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How often bytes that were damaged on their way are read again.
const ATTEMPTS: u32 = 3;

/// One client.
pub(super) struct Client {
    pub store: Arc<dyn Store>,
    pub info: Info,
    pub agreed: Agreed,
    pub replies: Arc<Replies>,
}

/// A request that may be several jobs: answered when the last is done.
struct Whole {
    replies: Arc<Replies>,
    cookie: u64,
    charged: usize,
    left: AtomicUsize,
    fault: Mutex<Option<Fault>>,
    form: Form,
    /// What was read and goes out with the answer.
    parts: Mutex<Vec<(u64, Part)>>,
}

/// Bytes as they are sent: the first so many of this memory, which nobody else can write.
type Part = (Heap, usize);

/// How it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// With a result, and with all bytes of a read behind it.
    Simple,
    /// With chunks, as they come.
    Chunks,
}

impl Client {
    /// Serves until the client goes; an error is a client that broke the protocol, or its connection.
    pub(super) fn serve(&self, stream: Stream) -> io::Result<()> {
        let mut from = Incoming::new(stream);
        loop {
            while from.here() < REQUEST_BYTES {
                self.before_waiting();
                if !from.wait()? {
                    return Ok(());
                }
            }
            let mut bytes = [0; REQUEST_BYTES];
            from.read_exact(&mut bytes)?;
            let request = wire::Request::decode(&bytes);
            let request = request.ok_or_else(|| broken("no request"))?;
            if request.command == Command::Disconnect {
                self.store.kick();
                return Ok(());
            }
            // Where others follow, the answers go together. What goes on to another process is not answered here.
            let bytes = if request.command == Command::Write {
                request.len
            } else {
                0
            };
            match from.here() > bytes as usize && !self.store.is_checked() {
                true => self.replies.hold(),
                false => self.before_waiting(),
            }
            self.one(&request, &mut from)?;
        }
    }

    /// Nothing that is ready or that was asked for waits with this thread.
    fn before_waiting(&self) {
        self.replies.release();
        self.store.kick();
    }

    fn one(&self, request: &wire::Request, from: &mut impl Read) -> io::Result<()> {
        let with_bytes = matches!(request.command, Command::Read | Command::Write);
        let charged = if with_bytes { request.len as usize } else { 0 };
        if request.command == Command::Write && request.len > MAX_BYTES {
            return Err(broken("a write that is too long"));
        }
        if !self.replies.begin(charged, || self.before_waiting()) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let form = match request.command == Command::Read && self.agreed.structured {
            true => Form::Chunks,
            false => Form::Simple,
        };
        let whole = Arc::new(Whole {
            replies: Arc::clone(&self.replies),
            cookie: request.cookie,
            charged,
            // This function's own part.
            left: AtomicUsize::new(1),
            fault: Mutex::new(None),
            form,
            parts: Mutex::default(),
        });
        let begun = match self.check(request) {
            Ok(op) => self.begin(&whole, request, op, from),
            Err(fault) if request.command == Command::Write => {
                skip(from, request.len as usize).map(|()| Err(fault))
            }
            Err(fault) => Ok(Err(fault)),
        };
        // Also of a connection that broke: what is under way is answered into the void.
        whole.part(*begun.as_ref().unwrap_or(&Err(Fault::Gone)));
        begun.map(drop)
    }

    fn check(&self, request: &wire::Request) -> Result<Op, Fault> {
        let op = match request.command {
            Command::Read => Op::Read,
            Command::Write => Op::Write,
            Command::Flush => Op::Flush,
            Command::Trim => Op::Trim,
            Command::Zero => Op::Zero {
                punch: !request.keep_space,
            },
            Command::Disconnect | Command::Other(_) => return Err(Fault::Invalid),
        };
        if request.strange || op == Op::Read && request.len > MAX_BYTES {
            return Err(Fault::Invalid);
        }
        if op == Op::Flush && (request.offset, request.len) != (0, 0) {
            return Err(Fault::Invalid);
        }
        Request::new(op, request.offset, request.len).check(&self.info)?;
        Ok(op)
    }

    /// Begins all jobs of a request. An error of the outer kind is one of the connection.
    fn begin(
        &self,
        whole: &Arc<Whole>,
        asked: &wire::Request,
        op: Op,
        from: &mut impl Read,
    ) -> io::Result<Result<(), Fault>> {
        let mut request = Request::new(op, asked.offset, asked.len);
        request.durable = asked.durable;
        if !matches!(op, Op::Read | Op::Write) {
            self.submit(whole, request, Data::None);
            return Ok(Ok(()));
        }
        let len = asked.len as usize;
        let mut at = 0;
        while at < len {
            let piece = self.store.piece(len - at);
            let mut data = match self.store.data(op, piece) {
                Ok(data) => data,
                Err(fault) => {
                    if op == Op::Write {
                        skip(from, len - at)?;
                    }
                    return Ok(Err(fault));
                }
            };
            let mut part = request.clone();
            part.offset += at as u64;
            part.len = u32::try_from(piece).unwrap_or(0);
            if op == Op::Write {
                data.fill_from(from, piece)?;
                if self.store.is_checked() {
                    match sum::sums_of(part.offset, &data, piece) {
                        Ok(sums) => part.sums = sums,
                        Err(fault) => {
                            skip(from, len - at - piece)?;
                            return Ok(Err(fault));
                        }
                    }
                }
            }
            match op {
                Op::Read => read(
                    Arc::clone(&self.store),
                    Arc::clone(whole),
                    part,
                    data,
                    ATTEMPTS,
                ),
                _ => self.submit(whole, part, data),
            }
            at += piece;
        }
        Ok(Ok(()))
    }

    fn submit(&self, whole: &Arc<Whole>, request: Request, data: Data) {
        whole.left.fetch_add(1, Ordering::AcqRel);
        let whole = Arc::clone(whole);
        let done: Done = Box::new(move |data, result| {
            drop(data);
            whole.part(result.map(drop));
        });
        self.store.submit(Job {
            request,
            data,
            done,
        });
    }
}

/// Reads a part of a request, and again if it was damaged.
fn read(store: Arc<dyn Store>, whole: Arc<Whole>, request: Request, data: Data, attempts: u32) {
    whole.left.fetch_add(1, Ordering::AcqRel);
    let asked = request.clone();
    let own = Arc::clone(&store);
    let done: Done = Box::new(move |data, result| {
        let checked = own.is_checked();
        let taken = match result {
            Ok(sums) => whole.take(&asked, data, checked.then_some(&sums)),
            Err(fault) => Err((fault, data)),
        };
        let result = match taken {
            Err((Fault::Corrupt(_), data)) if attempts > 1 => {
                read(
                    Arc::clone(&own),
                    Arc::clone(&whole),
                    asked,
                    data,
                    attempts - 1,
                );
                own.kick();
                Ok(())
            }
            Err((fault, _)) => Err(fault),
            Ok(()) => Ok(()),
        };
        whole.part(result);
    });
    store.submit(Job {
        request,
        data,
        done,
    });
}

impl Whole {
    /// Takes what was read, as it will be sent, and looks at just that. Gives the memory back with a fault.
    fn take(&self, asked: &Request, data: Data, sums: Option<&[u32]>) -> Result<(), (Fault, Data)> {
        let len = asked.len as usize;
        let part = own(data, len, |bytes| match sums {
            Some(sums) => sum::check(asked.offset, bytes, sums),
            None => Ok(()),
        })?;
        // An answer of one chunk needs no other that says that it was the last.
        if self.form == Form::Chunks && len < self.charged {
            let head = wire::data_head(self.cookie, false, asked.offset, len);
            self.replies.give(Reply::new(head, vec![(part, len)]));
        } else {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.push((asked.offset, (part, len)));
        }
        Ok(())
    }

    /// A part is done; with the last of them the request is.
    fn part(&self, result: Result<(), Fault>) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        *fault = fault.or(result.err());
        let result = fault.map_or(Ok(()), Err);
        drop(fault);
        // Ordering: acquire and release: the last sees what the others left.
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = std::mem::take(&mut *parts);
        parts.sort_by_key(|(offset, _)| *offset);
        if result.is_err() {
            parts.clear();
        }
        let head = match (self.form, parts.first()) {
            (Form::Simple, _) => wire::simple(self.cookie, result),
            (Form::Chunks, Some((offset, (_, len)))) => {
                wire::data_head(self.cookie, true, *offset, *len)
            }
            (Form::Chunks, None) => wire::end_chunk(self.cookie, result),
        };
        let parts = parts.into_iter().map(|(_, part)| part).collect();
        self.replies.end(Reply::new(head, parts), self.charged);
    }
}

/// The first bytes of `data` as memory that nobody else can write: as it is where it is that, and a copy otherwise, so
/// that a pool's buffer does not wait for a slow client. Looked at as it will be sent.
fn own(
    data: Data,
    len: usize,
    check: impl FnOnce(&[u8]) -> Result<(), Fault>,
) -> Result<Heap, (Fault, Data)> {
    if let Data::Heap(heap) = data {
        return match check(&heap.bytes()[..len]) {
            Ok(()) => Ok(heap),
            Err(fault) => Err((fault, Data::Heap(heap))),
        };
    }
    let mut heap = Heap::used(len);
    let read = data.read(0, heap.bytes_mut());
    match read.and_then(|()| check(heap.bytes())) {
        Ok(()) => Ok(heap),
        Err(fault) => Err((fault, data)),
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn skip(from: &mut impl Read, len: usize) -> io::Result<()> {
    let gone = io::copy(&mut from.take(len as u64), &mut io::sink())?;
    match gone == len as u64 {
        true => Ok(()),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}
