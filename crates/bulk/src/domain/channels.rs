//! A domain's ends of channels, by number. Numbers rise and are never given again, so that one that is over can be
//! forgotten, and its number is an error from then on.

use super::Channel;

#[derive(Default)]
pub(crate) struct Channels {
    /// By rising number.
    all: Vec<(u64, Box<Channel>)>,
    next: u64,
}

impl Channels {
    /// Adds one; gives its number.
    pub(crate) fn push(&mut self, channel: Channel) -> u64 {
        let id = self.next;
        self.next += 1;
        self.all.push((id, Box::new(channel)));
        id
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Box<Channel>> {
        let at = self.find(id)?;
        Some(self.all.remove(at).1)
    }

    /// Where it is: where it would be if nothing had gone, mostly.
    #[inline]
    fn find(&self, id: u64) -> Option<usize> {
        let guess = usize::try_from(id.checked_sub(self.all.first()?.0)?).ok()?;
        match self.all.get(guess) {
            Some((found, _)) if *found == id => Some(guess),
            _ => self.all.binary_search_by_key(&id, |(id, _)| *id).ok(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: &u64) -> Option<&Channel> {
        let at = self.find(*id)?;
        self.all.get(at).map(|(_, channel)| &**channel)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: &u64) -> Option<&mut Channel> {
        let at = self.find(*id)?;
        self.all.get_mut(at).map(|(_, channel)| &mut **channel)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&u64, &Channel)> {
        self.all.iter().map(|(id, channel)| (id, &**channel))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Channel> {
        self.all.iter().map(|(_, channel)| &**channel)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.all.iter_mut().map(|(_, channel)| &mut **channel)
    }
}
