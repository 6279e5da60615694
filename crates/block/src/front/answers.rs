//! Way by which a client is answered, also by the store's threads.

use crate::limits::MOST_ASKED;
use crate::transient::is_transient;
use crate::wire::{self, Say};
use crate::{Data, Fault};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tranship_core::{Buffer, Error, ErrorKind, Sender};

pub(super) struct Answers {
    out: Mutex<Out>,
    /// Number of questions that were not answered.
    asked: AtomicUsize,
}

struct Out {
    /// Sender of the answers, until the end.
    to: Option<Sender>,
    /// Answers for which there was no room, or for which something was missing here.
    late: VecDeque<Answer>,
}

/// A message: with the data that was read, or the words alone.
struct Answer {
    words: Vec<u8>,
    read: Option<Buffer>,
    word: u64,
}

impl Answers {
    pub(super) fn new(to: Sender) -> Answers {
        let to = Some(to);
        let late = VecDeque::new();
        Answers {
            out: Mutex::new(Out { to, late }),
            asked: AtomicUsize::new(0),
        }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a question came.
    pub(super) fn expect(&self) -> Result<(), Error> {
        // Ordering: relaxed; a count.
        match self.asked.fetch_add(1, Ordering::Relaxed) < MOST_ASKED {
            true => Ok(()),
            false => Err(wire::violation(
                "it",
                "more questions at a time than there may be",
            )),
        }
    }

    /// Answers with this many bytes of the read data, which are in the memory that was given for it.
    pub(super) fn give(
        &self,
        number: u64,
        mut result: Result<Vec<u32>, Fault>,
        lease: Option<u64>,
        read: Option<(Data, usize)>,
    ) {
        let (mut own, mut len) = (None, 0);
        match read {
            Some((Data::Own(buffer), all)) if result.is_ok() => (own, len) = (Some(buffer), all),
            Some((_, 1..)) => result = result.and(Err(Fault::Invalid)),
            _ => {}
        }
        let words = wire::encode(&Say::Done(result, lease));
        let read = own.and_then(|own| own.seal(len, &words).ok());
        let word = wire::word(number, len);
        let answer = Answer { words, read, word };
        let mut out = self.out();
        match out.late.is_empty() {
            true => drop(self.send(&mut out, answer)),
            false => out.late.push_back(answer),
        }
    }

    /// Sends the late answers; returns the reason why they still wait.
    pub(super) fn give_late(&self) -> Option<Error> {
        let mut out = self.out();
        while let Some(answer) = out.late.pop_front() {
            let lack = self.send(&mut out, answer);
            if lack.is_some() {
                return lack;
            }
        }
        None
    }

    /// Sends an answer. If it cannot be sent now it becomes the first late one; returns the reason.
    fn send(&self, out: &mut Out, mut answer: Answer) -> Option<Error> {
        let to = out.to.as_mut()?;
        // Counted before the answer is there: with an answer the client may ask again. Ordering: relaxed; a count.
        self.asked.fetch_sub(1, Ordering::Relaxed);
        let sent = match answer.read.take() {
            Some(read) => to.try_send((read, answer.word)).map_err(|refused| {
                answer.read = Some(refused.unsent.0);
                refused.error
            }),
            None => {
                let sent = to.try_send((&answer.words[..], answer.word));
                sent.map_err(|refused| refused.error)
            }
        };
        // Otherwise no client is there for it any more.
        let lack = sent.err().filter(|error| is_transient(error.kind()))?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        out.late.push_front(answer);
        Some(lack)
    }

    /// Runs outside of any request.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&mut Sender) -> Result<T, Error>,
    ) -> Result<T, Error> {
        act(self.out().to.as_mut().ok_or(ErrorKind::PeerGone)?)
    }

    /// Ends the answers: nothing is answered any more.
    pub(super) fn end(&self) {
        let mut out = self.out();
        let (to, late) = (out.to.take(), std::mem::take(&mut out.late));
        drop(out);
        drop(late);
        to.into_iter().for_each(Sender::abandon);
    }
}
