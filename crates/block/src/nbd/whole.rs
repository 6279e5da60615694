//! A request that may be several jobs: answered when the last of them is done.

use super::replies::{Replies, Reply};
use super::wire::{self, Of};
use crate::memory::Heap;
use crate::{Data, Done, Fault, Job, Request, Store, sum};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of times that bytes that were damaged on their way are read again.
const ATTEMPTS: u32 = 3;

/// Form of the answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// One simple reply: its result, with all bytes of a read behind it. The number is the charge for these bytes.
    Simple(usize),
    /// Chunks, as they come. Each is charged by itself. The number is the bytes of all together.
    Chunks(usize),
}

pub(super) struct Whole {
    pub(super) replies: Arc<Replies>,
    of: Of,
    form: Form,
    left: AtomicUsize,
    fault: Mutex<Option<Fault>>,
    /// Data that was read and goes out with the answer: its place, and how many bytes of this memory, which nobody else
    /// can write.
    parts: Mutex<Vec<(u64, (Heap, usize))>>,
}

impl Whole {
    /// Creates a request with one part, which its creator holds: see [`Whole::part`].
    pub(super) fn new(replies: &Arc<Replies>, of: Of, form: Form) -> Arc<Whole> {
        Arc::new(Whole {
            replies: Arc::clone(replies),
            of,
            form,
            left: AtomicUsize::new(1),
            fault: Mutex::new(None),
            parts: Mutex::default(),
        })
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Adds one part more.
    pub(super) fn expect(&self) {
        // Ordering: as in `part`.
        self.left.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a part that was read.
    pub(super) fn read(&self, asked: &Request, read: Result<Heap, Fault>) {
        let len = asked.len as usize;
        let result = match (read, self.form) {
            // An answer of one chunk needs no other that says that it was the last.
            (Ok(heap), Form::Chunks(all)) if len < all => {
                let head = wire::data_head(self.of, false, asked.offset, len);
                self.replies.give(Reply::new(head, vec![(heap, len)], len));
                Ok(())
            }
            (Ok(heap), _) => {
                let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
                parts.push((asked.offset, (heap, len)));
                Ok(())
            }
            (Err(fault), Form::Chunks(_)) => {
                self.replies.give_back(len);
                Err(fault)
            }
            (Err(fault), Form::Simple(_)) => Err(fault),
        };
        self.part(result);
    }

    /// Ends a part; the last one ends the request.
    pub(super) fn part(&self, result: Result<(), Fault>) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        *fault = fault.or(result.err());
        let result = fault.map_or(Ok(()), Err);
        drop(fault);
        // Ordering: acquire and release: the last part sees the stores of the others.
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = std::mem::take(&mut *parts);
        parts.sort_by_key(|(offset, _)| *offset);
        let charged = match self.form {
            Form::Simple(charged) => charged,
            Form::Chunks(_) => parts.iter().map(|(_, (_, len))| *len).sum(),
        };
        if result.is_err() {
            parts.clear();
        }
        let head = match (self.form, parts.first()) {
            (Form::Simple(_), _) => wire::simple(self.of.cookie, result),
            (Form::Chunks(_), Some((offset, (_, len)))) => {
                wire::data_head(self.of, true, *offset, *len)
            }
            (Form::Chunks(_), None) => wire::end_chunk(self.of, result),
        };
        let parts = parts.into_iter().map(|(_, part)| part).collect();
        self.replies.end(Reply::new(head, parts, charged));
    }
}

/// Reads a part of a request, and again if it was damaged; returns it in the form in which it is sent.
pub(super) fn read(
    store: Arc<dyn Store>,
    request: Request,
    data: Data,
    then: impl FnOnce(Result<Heap, Fault>) + Send + 'static,
) {
    read_again(store, request, data, ATTEMPTS, then);
}

fn read_again(
    store: Arc<dyn Store>,
    request: Request,
    data: Data,
    attempts: u32,
    then: impl FnOnce(Result<Heap, Fault>) + Send + 'static,
) {
    let (asked, own) = (request.clone(), Arc::clone(&store));
    let done: Done = Box::new(move |data, result| {
        let checked = own.is_checked();
        let taken = match result {
            Ok(sums) => take(&asked, data, checked.then_some(&sums)),
            Err(fault) => Err((fault, data)),
        };
        match taken {
            Err((Fault::Corrupt(_), data)) if attempts > 1 => {
                read_again(Arc::clone(&own), asked, data, attempts - 1, then);
                own.kick();
            }
            other => then(other.map_err(|(fault, _)| fault)),
        }
    });
    store.submit(Job {
        request,
        data,
        done,
    });
}

/// Returns read data as memory that nobody else can write. Memory that already is such is used as it is, other memory
/// is copied, so that a pool's buffer does not wait for a slow client. Exactly this memory is compared with the
/// checksums. Returns the memory with a fault.
fn take(asked: &Request, data: Data, sums: Option<&[u32]>) -> Result<Heap, (Fault, Data)> {
    let len = asked.len as usize;
    let check = |bytes: &[u8]| match sums {
        Some(sums) => sum::check(asked.offset, bytes, sums),
        None => Ok(()),
    };
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
