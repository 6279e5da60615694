//! How many of something by channel: few channels, mostly none, so without memory of its own.

use smallvec::SmallVec;

/// Channels and numbers above 0, by rising channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(SmallVec<[(u64, u32); 1]>);

impl Counts {
    fn find(&self, channel: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&channel, |(id, _)| *id)
    }

    /// One more.
    pub(crate) fn up(&mut self, channel: u64) {
        match self.find(channel) {
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(1),
            Err(at) => self.0.insert(at, (channel, 1)),
        }
    }

    /// One less, if there is one.
    pub(crate) fn down(&mut self, channel: u64) {
        let Ok(at) = self.find(channel) else {
            return;
        };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    pub(crate) fn of(&self, channel: u64) -> u32 {
        self.find(channel).map_or(0, |at| self.0[at].1)
    }

    pub(crate) fn total(&self) -> u32 {
        self.0.iter().map(|(_, n)| n).sum()
    }

    /// None are left of this channel.
    pub(crate) fn clear(&mut self, channel: u64) {
        if let Ok(at) = self.find(channel) {
            self.0.remove(at);
        }
    }

    /// The first channel that has some.
    pub(crate) fn first(&self) -> Option<u64> {
        self.0.first().map(|(channel, _)| *channel)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.0.iter().copied()
    }
}
