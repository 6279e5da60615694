//! The reader set: the domains and queues with counters for a pool, and the epoch for which that is true.

use crate::scratch::Scratch;
use crate::words::Words;

/// The sender on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The pool's writer, to somebody else.
    Writer,
    /// A domain that may have the buffer from another one, or that sends to itself.
    Other,
}

/// A channel to which the pool is assigned: one `sent` and one `rcvd` per slot.
#[derive(Debug)]
pub struct Queue<C> {
    /// The channel's id.
    pub channel: u64,
    /// The sender on the queue.
    pub source: Source,
    /// Written by the source.
    pub sent: C,
    /// Written by the sink.
    pub rcvd: C,
}

/// A domain that reads the pool: one `ref` per slot.
#[derive(Debug)]
pub struct Reader<R> {
    /// The domain's id.
    pub domain: u64,
    /// Written by that domain.
    pub refs: R,
}

/// An edit that does not fit the reader set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderSetError {
    /// The queue of this channel is there already.
    #[error("Channel {0} is on the reader set already")]
    QueueTaken(u64),
    /// The reader is there already.
    #[error("Reader {0} is on the reader set already")]
    ReaderTaken(u64),
    /// No queue of this channel.
    #[error("Channel {0} is not on the reader set")]
    NoQueue(u64),
    /// No such reader.
    #[error("Reader {0} is not on the reader set")]
    NoReader(u64),
    /// Epochs only rise.
    #[error("Epoch {0} is older than the reader set's, {1}")]
    OldEpoch(u64, u64),
}

/// All counters that count for the buffers of one pool.
///
/// It belongs to the pool's writer (or, for an orphan, to the manager) and to one thread at a time: collecting
/// takes `&mut self`, because two collectors would hand the same buffer out twice. Collect and edit under one lock.
#[derive(Debug)]
pub struct ReaderSet<R, C> {
    pub(crate) queues: Vec<Queue<C>>,
    pub(crate) readers: Vec<Reader<R>>,
    /// How many queues have another source than the writer.
    pub(crate) others: usize,
    pub(crate) epoch: u64,
    pub(crate) scratch: Scratch,
}

impl<R, C> Default for ReaderSet<R, C> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<R, C> ReaderSet<R, C> {
    /// A pool that nobody else reads, at the epoch that its control page shows.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self {
            queues: Vec::new(),
            readers: Vec::new(),
            others: 0,
            epoch,
            scratch: Scratch::default(),
        }
    }

    /// The epoch for which this reader set is complete.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch was raised by a change that is now applied, or that does not concern the counters.
    ///
    /// # Errors
    /// [`ReaderSetError::OldEpoch`] when it would go back.
    pub fn set_epoch(&mut self, epoch: u64) -> Result<(), ReaderSetError> {
        if epoch < self.epoch {
            return Err(ReaderSetError::OldEpoch(epoch, self.epoch));
        }
        self.epoch = epoch;
        Ok(())
    }

    /// A new manager counts epochs from its own start: whatever its control page shows now is where this reader set stands.
    /// Only for the moment after the claims, before any of the new manager's events.
    pub fn reset_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// The pool was assigned to a channel.
    ///
    /// # Errors
    /// [`ReaderSetError::QueueTaken`]; the reader set is unchanged.
    pub fn add_queue(
        &mut self,
        channel: u64,
        source: Source,
        sent: C,
        rcvd: C,
    ) -> Result<(), ReaderSetError> {
        if self.has_queue(channel) {
            return Err(ReaderSetError::QueueTaken(channel));
        }
        self.others += usize::from(source == Source::Other);
        self.queues.push(Queue {
            channel,
            source,
            sent,
            rcvd,
        });
        Ok(())
    }

    /// The queue leaves, both counters together: its sink took the last message, or is gone.
    ///
    /// # Errors
    /// [`ReaderSetError::NoQueue`]; the reader set is unchanged.
    pub fn remove_queue(&mut self, channel: u64) -> Result<Queue<C>, ReaderSetError> {
        let at = self
            .queues
            .iter()
            .position(|q| q.channel == channel)
            .ok_or(ReaderSetError::NoQueue(channel))?;
        let queue = self.queues.swap_remove(at);
        self.others -= usize::from(queue.source == Source::Other);
        Ok(queue)
    }

    /// A domain may read the pool from now on.
    ///
    /// # Errors
    /// [`ReaderSetError::ReaderTaken`]; the reader set is unchanged.
    pub fn add_reader(&mut self, domain: u64, refs: R) -> Result<(), ReaderSetError> {
        if self.has_reader(domain) {
            return Err(ReaderSetError::ReaderTaken(domain));
        }
        self.readers.push(Reader { domain, refs });
        Ok(())
    }

    /// The domain is dead, or has unmapped the whole pool.
    ///
    /// # Errors
    /// [`ReaderSetError::NoReader`]; the reader set is unchanged.
    pub fn remove_reader(&mut self, domain: u64) -> Result<Reader<R>, ReaderSetError> {
        let at = self
            .readers
            .iter()
            .position(|r| r.domain == domain)
            .ok_or(ReaderSetError::NoReader(domain))?;
        Ok(self.readers.swap_remove(at))
    }

    /// Whether the channel's queue is on the reader set.
    #[must_use]
    pub fn has_queue(&self, channel: u64) -> bool {
        self.queues.iter().any(|q| q.channel == channel)
    }

    /// Whether the reader is on the reader set.
    #[must_use]
    pub fn has_reader(&self, domain: u64) -> bool {
        self.readers.iter().any(|r| r.domain == domain)
    }

    /// The queues, in no particular order.
    #[must_use]
    pub fn queues(&self) -> &[Queue<C>] {
        &self.queues
    }

    /// The readers, in no particular order.
    #[must_use]
    pub fn readers(&self) -> &[Reader<R>] {
        &self.readers
    }
}

impl<R: Words, C: Words> ReaderSet<R, C> {
    /// Readers that hold the slot now, with their counts: for statistics, not a verdict.
    pub fn holders(&self, slot: u32) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.readers
            .iter()
            .map(move |r| (r.domain, r.refs.load(slot)))
            .filter(|&(_, refs)| refs > 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
