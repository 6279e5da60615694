//! Door of a name: new connections go in to the listener's function, a limited number of them at a time.

use crate::{Met, Transport};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tranship_sys::{epoll, eventfd, signals, stream};

/// Most connections that [`Met`] has not done with yet, and most of one owner: a user of this machine, or a host.
pub(crate) const MOST: usize = 256;
pub(crate) const MOST_OF_ONE: usize = 64;

pub(crate) struct Door {
    met: Met,
    /// Number of places that each owner has.
    taken: Mutex<HashMap<String, usize>>,
}

/// A place for one connection. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Admission {
    door: Arc<Door>,
    owner: String,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

impl Door {
    pub(crate) fn new(met: Met) -> Arc<Door> {
        let taken = Mutex::default();
        Arc::new(Door { met, taken })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, before the client is told that it is welcome; none if too many have one.
    pub(crate) fn place(self: &Arc<Self>, owner: String) -> Option<Admission> {
        let mut taken = self.lock();
        let of_one = taken.get(&owner).copied().unwrap_or(0);
        if taken.values().sum::<usize>() >= MOST || of_one >= MOST_OF_ONE {
            return None;
        }
        taken.insert(owner.clone(), of_one + 1);
        let door = Arc::clone(self);
        Some(Admission { door, owner })
    }
}

impl Admission {
    /// Gives the connection to the listener, and waits until it has done with it.
    pub(crate) fn go_in(self, end: Box<dyn Transport>) {
        (self.door.met)(end);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut taken = self.door.lock();
        let left = taken.get(&self.owner).map_or(0, |count| count - 1);
        match left {
            0 => taken.remove(&self.owner),
            left => taken.insert(std::mem::take(&mut self.owner), left),
        };
    }
}

/// The thread of a listening socket. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Listens {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listens {
    /// Starts the thread. `accept` takes one connection from the socket, which does not block.
    pub(crate) fn start<L: AsFd + Send + 'static>(
        name: &str,
        listener: L,
        mut accept: impl FnMut(&L) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Listens> {
        let stop = Arc::new(eventfd::create()?);
        let own = Arc::clone(&stop);
        let thread = thread(name, move || {
            // The descriptor is readable once the thread is to end, and stays so.
            let stops = |within| epoll::wait_readable(&*own, Some(within)).unwrap_or(true);
            while !stops(Duration::ZERO) {
                match accept(&listener) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        // Whatever the kernel returns, both are checked.
                        let hour = Duration::from_secs(3600);
                        let _ = stream::wait(Some(&listener), false, Some(&*own), hour);
                    }
                    // No descriptors, or no memory: connections wait in the kernel's queue meanwhile.
                    Err(_) => _ = stops(Duration::from_millis(50)),
                }
            }
        })?;
        let thread = Some(thread);
        Ok(Listens { stop, thread })
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        // This fails only if the doorbell is rung already.
        let _ = eventfd::signal(&self.stop);
        // The address is thus free once this is gone. The thread itself may drop this, with the last of a port.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Starts a thread that no signal disturbs.
pub(crate) fn thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    signals::thread(name, 256 << 10, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_given_up_is_free() {
        let door = Door::new(Arc::new(|_| {}));
        let places = |owner: &str, count| {
            let place = || door.place(owner.to_owned()).expect("a place");
            (0..count).map(|_| place()).collect::<Vec<_>>()
        };
        let mut one = places("one", MOST_OF_ONE);
        assert!(door.place("one".to_owned()).is_none());
        drop(one.pop());
        one.extend(places("one", 1));
        assert!(door.place("one".to_owned()).is_none());
        let others = ["two", "three", "four"].map(|owner| places(owner, MOST_OF_ONE));
        assert!(door.place("five".to_owned()).is_none());
        drop(others);
        let _five = places("five", MOST_OF_ONE);
    }
}
