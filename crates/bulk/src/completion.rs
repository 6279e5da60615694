//! How an operation's end is learned: by callback, by looking, or by awaiting.
//!
//! The operations of a channel share one record of what has ended ([`Ends`]), so that one of them costs no memory of
//! its own: a completion is its number in there.

use crate::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

type Callback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Who wants to know of an end.
#[derive(Default)]
struct Asks {
    wakers: Vec<Waker>,
    callbacks: Vec<Callback>,
}

/// Somebody to be told, with no lock held.
pub(crate) struct Due(Asks, Result<(), Error>);

impl Due {
    pub(crate) fn tell(self) {
        self.0.wakers.into_iter().for_each(Waker::wake);
        for callback in self.0.callbacks {
            callback(self.1.clone());
        }
    }
}

#[derive(Default)]
struct Record {
    /// All numbers below it have ended well.
    upto: u64,
    /// And these.
    ahead: BTreeSet<u64>,
    /// How all others ended, if they have.
    over: Option<Result<(), Error>>,
    asks: BTreeMap<u64, Asks>,
}

impl Record {
    fn result(&self, number: u64) -> Option<Result<(), Error>> {
        match number < self.upto || self.ahead.contains(&number) {
            true => Some(Ok(())),
            false => self.over.clone(),
        }
    }
}

/// What has ended of operations that are numbered from 0.
#[derive(Clone, Default)]
pub(crate) struct Ends(Arc<Mutex<Record>>);

impl Ends {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of one.
    pub(crate) fn completion(&self, number: u64) -> Completion {
        Completion {
            ends: self.clone(),
            number,
        }
    }

    /// These have ended well; each once, in any order.
    pub(crate) fn finish(&self, numbers: &[u64], due: &mut Vec<Due>) {
        if numbers.is_empty() {
            return;
        }
        let mut record = self.lock();
        for number in numbers {
            if *number == record.upto {
                record.upto += 1;
            } else {
                record.ahead.insert(*number);
            }
            if let Some(asks) = record.asks.remove(number) {
                due.push(Due(asks, Ok(())));
            }
        }
        while record.ahead.first() == Some(&record.upto) {
            record.ahead.pop_first();
            record.upto += 1;
        }
    }

    /// None of the others will end any more, or all have ended like this.
    pub(crate) fn over(&self, result: Result<(), Error>, due: &mut Vec<Due>) {
        let mut record = self.lock();
        record.over.get_or_insert_with(|| result.clone());
        let asks = std::mem::take(&mut record.asks);
        due.extend(asks.into_values().map(|asks| Due(asks, result.clone())));
    }
}

/// The end of one operation: it has been taken (or answered) by the other end, or never will be.
///
/// Something has to turn the channel meanwhile ([`crate::Channel::turn`]): the program's loop, another thread, or
/// [`crate::Channel::block_on`]. Cloneable; dropping it forgets nothing but the news.
#[derive(Clone)]
pub struct Completion {
    ends: Ends,
    number: u64,
}

impl Default for Completion {
    /// One of its own.
    fn default() -> Completion {
        Ends::default().completion(0)
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Completion({:?})", self.result())
    }
}

impl Completion {
    /// How it ended, if it has.
    #[must_use]
    pub fn result(&self) -> Option<Result<(), Error>> {
        self.ends.lock().result(self.number)
    }

    /// Calls back when it has ended; at once if it has. On the thread that turns the channel, with no lock held.
    pub fn on_done(&self, callback: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let mut record = self.ends.lock();
        match record.result(self.number) {
            None => {
                let asks = record.asks.entry(self.number).or_default();
                asks.callbacks.push(Box::new(callback));
            }
            Some(result) => {
                drop(record);
                callback(result);
            }
        }
    }

    /// Ends one that has a record of its own.
    pub(crate) fn finish(&self, result: Result<(), Error>, due: &mut Vec<Due>) {
        self.ends.over(result, due);
    }
}

impl IntoFuture for Completion {
    type Output = Result<(), Error>;
    type IntoFuture = Ended;

    fn into_future(self) -> Ended {
        Ended(self)
    }
}

/// A [`Completion`] that is awaited.
#[derive(Clone, Debug)]
pub struct Ended(Completion);

impl Future for Ended {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut record = self.0.ends.lock();
        if let Some(result) = record.result(self.0.number) {
            return Poll::Ready(result);
        }
        let wakers = &mut record.asks.entry(self.0.number).or_default().wakers;
        if !wakers.iter().any(|w| w.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}
