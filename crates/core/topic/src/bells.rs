//! Waking subscribers: one word for each user, in a page that is shown to that user's subscribers alone. A stranger can
//! wait on any word that it can map.

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
    /// Subscribers of the user: as many are woken at most.
    admitted: u32,
}

/// The bells of all users. The threads that accept subscribers make them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bells(Arc<Mutex<Vec<Bell>>>);

impl Bells {
    /// Returns the bell of a user, which is made if there is none.
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
