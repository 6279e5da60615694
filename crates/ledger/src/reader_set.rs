//! Whose counters count for a pool, and for which epoch that is true.

use crate::scratch::Scratch;
use crate::words::Words;

/// Who sends on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The pool's writer, to somebody else.
    Writer,
    /// Whoever may have it from somebody else, or who sends to itself.
    Other,
}

/// A channel to which the pool is assigned: one `sent` and one `rcvd` per slot.
#[derive(Debug)]
pub struct Queue<C> {
    /// The channel's id.
    pub channel: u64,
    /// Who that is.
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

/// An edit that does not fit the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// The queue of this channel is there already.
    #[error("Channel {0} is on the roster already")]
    QueueTaken(u64),
    /// The reader is there already.
    #[error("Reader {0} is on the roster already")]
    ReaderTaken(u64),
    /// No queue of this channel.
    #[error("Channel {0} is not on the roster")]
    NoQueue(u64),
    /// No such reader.
    #[error("Reader {0} is not on the roster")]
    NoReader(u64),
    /// Epochs only rise.
    #[error("Epoch {0} is older than the roster's, {1}")]
    OldEpoch(u64, u64),
}

/// All counters that count for the buffers of one pool.
///
/// It belongs to the pool's writer (or, for an orphan, to the manager) and to one thread at a time: collecting
/// takes `&mut self`, because two collectors would hand the same buffer out twice. Collect and edit under one lock.
#[derive(Debug)]
pub struct Roster<R, C> {
    pub(crate) queues: Vec<Queue<C>>,
    pub(crate) readers: Vec<Reader<R>>,
    /// How many queues have another source than the writer.
    pub(crate) others: usize,
    pub(crate) epoch: u64,
    pub(crate) scratch: Scratch,
}

impl<R, C> Default for Roster<R, C> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<R, C> Roster<R, C> {
    /// A pool that nobody else reads, at the epoch that its board shows.
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

    /// The epoch for which this roster is complete.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch was raised by a change that is now applied, or that does not concern the counters.
    ///
    /// # Errors
    /// [`RosterError::OldEpoch`] when it would go back.
    pub fn set_epoch(&mut self, epoch: u64) -> Result<(), RosterError> {
        if epoch < self.epoch {
            return Err(RosterError::OldEpoch(epoch, self.epoch));
        }
        self.epoch = epoch;
        Ok(())
    }

    /// A new manager counts epochs from its own start: whatever its board shows now is where this roster stands.
    /// Only for the moment after the claims, before any of the new manager's events.
    pub fn reset_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// The pool was assigned to a channel.
    ///
    /// # Errors
    /// [`RosterError::QueueTaken`]; the roster is unchanged.
    pub fn add_queue(
        &mut self,
        channel: u64,
        source: Source,
        sent: C,
        rcvd: C,
    ) -> Result<(), RosterError> {
        if self.has_queue(channel) {
            return Err(RosterError::QueueTaken(channel));
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
    /// [`RosterError::NoQueue`]; the roster is unchanged.
    pub fn remove_queue(&mut self, channel: u64) -> Result<Queue<C>, RosterError> {
        let at = self
            .queues
            .iter()
            .position(|q| q.channel == channel)
            .ok_or(RosterError::NoQueue(channel))?;
        let queue = self.queues.swap_remove(at);
        self.others -= usize::from(queue.source == Source::Other);
        Ok(queue)
    }

    /// A domain may read the pool from now on.
    ///
    /// # Errors
    /// [`RosterError::ReaderTaken`]; the roster is unchanged.
    pub fn add_reader(&mut self, domain: u64, refs: R) -> Result<(), RosterError> {
        if self.has_reader(domain) {
            return Err(RosterError::ReaderTaken(domain));
        }
        self.readers.push(Reader { domain, refs });
        Ok(())
    }

    /// The domain is dead, or has unmapped the whole pool.
    ///
    /// # Errors
    /// [`RosterError::NoReader`]; the roster is unchanged.
    pub fn remove_reader(&mut self, domain: u64) -> Result<Reader<R>, RosterError> {
        let at = self
            .readers
            .iter()
            .position(|r| r.domain == domain)
            .ok_or(RosterError::NoReader(domain))?;
        Ok(self.readers.swap_remove(at))
    }

    /// Whether the channel's queue is on the roster.
    #[must_use]
    pub fn has_queue(&self, channel: u64) -> bool {
        self.queues.iter().any(|q| q.channel == channel)
    }

    /// Whether the reader is on the roster.
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

impl<R: Words, C: Words> Roster<R, C> {
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
