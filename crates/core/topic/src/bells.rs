//! Waking subscribers. Each user has one word, in a page that only this user's subscribers map: whoever can map a word
//! can wait on it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use tranship_core::Error;
use tranship_ring::broadcast::BellRw;

/// One user's bell.
#[derive(Debug)]
struct Bell {
    uid: u32,
    fd: Arc<OwnedFd>,
    word: BellRw,
    /// The number of the user's subscribers. One wake-up call wakes at most this many.
    admitted: u32,
}

/// The bells of all users. A thread that accepts a subscriber makes the bell of its user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bells(Arc<Mutex<Vec<Bell>>>);

impl Bells {
    /// Returns the bell of a user. Makes it if the user has none.
    pub(crate) fn of(&self, uid: u32) -> Result<Arc<OwnedFd>, Error> {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = bells.iter().find(|bell| bell.uid == uid) {
            return Ok(Arc::clone(&bell.fd));
        }
        let (fd, word) = BellRw::create()?;
        let fd = Arc::new(fd);
        bells.push(Bell {
            uid,
            fd: Arc::clone(&fd),
            word,
            admitted: 0,
        });
        Ok(fd)
    }

    /// Notes that a user has one more subscriber, or one less.
    pub(crate) fn admit(&self, uid: u32, joins: bool) {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = bells.iter_mut().find(|bell| bell.uid == uid) {
            match joins {
                true => bell.admitted += 1,
                false => bell.admitted = bell.admitted.saturating_sub(1),
            }
        }
    }

    /// Wakes all subscribers that sleep: one system call for each user that has some.
    #[cold]
    pub(crate) fn ring(&self) {
        let bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for bell in bells.iter().filter(|bell| bell.admitted > 0) {
            bell.word.wake(bell.admitted);
        }
    }
}
