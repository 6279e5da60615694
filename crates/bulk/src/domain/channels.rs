//! A domain's ends of channels, by number: numbers are given from 0, and an end stays where it is.

use super::Channel;

#[derive(Default)]
pub(crate) struct Channels(Vec<(u64, Channel)>);

impl Channels {
    /// Adds the one whose number is the next.
    pub(crate) fn push(&mut self, id: u64, channel: Channel) {
        self.0.push((id, channel));
    }

    #[inline]
    pub(crate) fn get(&self, id: &u64) -> Option<&Channel> {
        let at = usize::try_from(*id).ok()?;
        self.0.get(at).map(|(_, channel)| channel)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: &u64) -> Option<&mut Channel> {
        let at = usize::try_from(*id).ok()?;
        self.0.get_mut(at).map(|(_, channel)| channel)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&u64, &Channel)> {
        self.0.iter().map(|(id, channel)| (id, channel))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Channel> {
        self.0.iter().map(|(_, channel)| channel)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.0.iter_mut().map(|(_, channel)| channel)
    }
}
