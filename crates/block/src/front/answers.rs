//! Way by which a client is answered, also by the store's threads.

use crate::data::{Own, pass_on};
use crate::limits::MOST_ASKED;
use crate::transient::{is_barred, is_transient};
use crate::wire::{self, Say};
use crate::{Data, Fault};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tranship_core::{Buffer, Error, ErrorKind, Pool, Sender};

pub(super) struct Answers {
    out: Mutex<Out>,
    /// Pool of what is sent from here.
    pool: Pool,
    /// Number of questions that were not answered.
    asked: AtomicUsize,
}

struct Out {
    /// Sender of the answers, until the end.
    to: Option<Sender>,
    /// Answers for which there was no room, or for which something was missing here.
    late: VecDeque<Answer>,
    /// Data of a server elsewhere is copied before the client gets it.
    copies: bool,
}

/// A message: with the data that was read, or the words alone.
struct Answer {
    words: Vec<u8>,
    read: Read,
    word: u64,
}

/// Data that was read.
enum Read {
    None,
    /// With the words behind it.
    Own(Buffer),
    /// As it came from a server elsewhere.
    Came(Buffer),
}

impl Answer {
    fn send(&mut self, to: &mut Sender, pool: &Pool, copies: bool) -> Result<(), Error> {
        if let Read::Came(came) = &self.read
            && copies
        {
            let wrong = |_: Fault| Error::from(ErrorKind::BadArgument);
            let len = came.len();
            let mut copy = Data::Own(Own::new(pool, len, Duration::ZERO)?);
            let from = Data::Shared(came.clone());
            copy.copy_from(&from, len).map_err(wrong)?;
            if let Data::Own(own) = copy {
                self.read = Read::Own(own.seal(len, &self.words).map_err(wrong)?);
            }
        }
        match std::mem::replace(&mut self.read, Read::None) {
            Read::Own(read) => to.try_send((read, self.word)).map(drop).map_err(|refused| {
                self.read = Read::Own(refused.unsent.0);
                refused.error
            }),
            Read::Came(came) => {
                let both = pass_on(&came, &self.words, pool);
                self.read = Read::Came(came);
                let sent = to.try_send((both?, self.word));
                sent.map(drop).map_err(|refused| refused.error)
            }
            Read::None => {
                let sent = to.try_send((&self.words[..], self.word));
                sent.map(drop).map_err(|refused| refused.error)
            }
        }
    }
}

impl Answers {
    pub(super) fn new(to: Sender, pool: &Pool) -> Answers {
        let to = Some(to);
        let late = VecDeque::new();
        let copies = false;
        Answers {
            out: Mutex::new(Out { to, late, copies }),
            pool: pool.clone(),
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
        let (mut data, mut len) = (Data::None, 0);
        match read {
            Some((read @ (Data::Own(_) | Data::Shared(_)), all)) if result.is_ok() => {
                (data, len) = (read, all);
            }
            Some((_, 1..)) => result = result.and(Err(Fault::Invalid)),
            _ => {}
        }
        let words = wire::encode(&Say::Done(result, lease));
        let read = match data {
            Data::Own(own) => own.seal(len, &words).map_or(Read::None, Read::Own),
            Data::Shared(came) => Read::Came(came.slice(..len)),
            _ => Read::None,
        };
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
        let Out { to, copies, late } = out;
        let to = to.as_mut()?;
        // Counted before the answer is there: with an answer the client may ask again. Ordering: relaxed; a count.
        self.asked.fetch_sub(1, Ordering::Relaxed);
        let mut sent = answer.send(to, &self.pool, *copies);
        if !*copies
            && let Read::Came(_) = answer.read
            && let Err(error) = &sent
            && is_barred(error.kind())
            && !to.status().peer_gone
        {
            *copies = true;
            sent = answer.send(to, &self.pool, true);
        }
        // Otherwise no client is there for it any more.
        let lack = sent.err().filter(|error| is_transient(error.kind()))?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        late.push_front(answer);
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
