//! `local:`: domains that are threads of one process; a frame is handed over as it is.

use super::{Backend, Bytes, Frame, Listener, RecvError, Transport, Wait};
use crate::{Error, Kind};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tranship_sys::eventfd;

/// Frames that may wait in one direction.
const DEPTH: usize = 1024;

/// The backend of names inside this process.
#[derive(Debug, Default)]
pub struct Local;

#[derive(Debug, Default)]
struct Direction {
    frames: VecDeque<Frame>,
    taken: u64,
    /// How many of `taken` the sender has been told.
    told: u64,
}

#[derive(Debug, Default)]
struct Pipe {
    /// What goes to each end.
    to: [Direction; 2],
    gone: [bool; 2],
    news: u64,
    sleepers: usize,
    /// Whose descriptor is to be told.
    armed: [bool; 2],
    /// Whose has been, and was not seen to.
    rung: [bool; 2],
}

#[derive(Debug, Default)]
struct Shared {
    pipe: Mutex<Pipe>,
    changed: Condvar,
    /// Made when somebody first waits with it.
    bells: [OnceLock<OwnedFd>; 2],
}

impl Shared {
    /// What the bell told has been seen to.
    fn quiet(&self, pipe: &mut Pipe, side: usize) {
        if let (Some(bell), true) = (self.bells[side].get(), pipe.rung[side]) {
            pipe.rung[side] = false;
            let _ = eventfd::drain(bell);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pipe> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut pipe: MutexGuard<'_, Pipe>) {
        pipe.news += 1;
        let wakes = pipe.sleepers > 0;
        let armed = std::mem::take(&mut pipe.armed);
        for (rung, armed) in pipe.rung.iter_mut().zip(armed) {
            *rung |= armed;
        }
        drop(pipe);
        for (bell, armed) in self.bells.iter().zip(armed) {
            if let (Some(bell), true) = (bell.get(), armed) {
                // It fails only if it is no bell.
                let _ = eventfd::signal(bell);
            }
        }
        // Costs a system call, whether somebody waits or not.
        if wakes {
            self.changed.notify_all();
        }
    }
}

#[derive(Debug)]
struct End {
    shared: Arc<Shared>,
    side: usize,
    /// The news up to which all has been looked at.
    seen: u64,
}

#[derive(Debug)]
struct Waiting {
    shared: Arc<Shared>,
    side: usize,
    seen: Mutex<u64>,
}

/// Where those who connect leave the pipe.
#[derive(Debug, Default)]
struct Door {
    /// The newest connection; another one is let in when its listening end has let go of it.
    pipe: Mutex<Option<Arc<Shared>>>,
    /// Rung at each connection.
    bell: Arc<Shared>,
}

#[derive(Debug)]
struct Name {
    name: String,
    door: Arc<Door>,
    accepted: Option<Arc<Shared>>,
    seen: u64,
}

static NAMES: Mutex<Option<HashMap<String, Arc<Door>>>> = Mutex::new(None);

fn names<T>(with: impl FnOnce(&mut HashMap<String, Arc<Door>>) -> T) -> T {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    with(names.get_or_insert_default())
}

fn waiting(shared: &Arc<Shared>, side: usize, seen: u64) -> Arc<dyn Wait> {
    Arc::new(Waiting {
        shared: Arc::clone(shared),
        side,
        seen: Mutex::new(seen),
    })
}

impl Backend for Local {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        let door = Arc::new(Door::default());
        let free = names(|names| match names.contains_key(name) {
            true => false,
            false => names.insert(name.to_owned(), Arc::clone(&door)).is_none(),
        });
        match free {
            true => Ok(Box::new(Name {
                name: name.to_owned(),
                door,
                accepted: None,
                seen: 0,
            })),
            false => Err(Kind::InvalidEndpoint.into()),
        }
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        let door = names(|names| names.get(name).cloned()).ok_or(Kind::InvalidEndpoint)?;
        let mut pipe = door.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if pipe.as_ref().is_some_and(|old| !old.lock().gone[0]) {
            return Err(Kind::InvalidEndpoint.into());
        }
        let shared = Arc::new(Shared::default());
        *pipe = Some(Arc::clone(&shared));
        drop(pipe);
        door.bell.tell(door.bell.lock());
        Ok(Box::new(End {
            shared,
            side: 1,
            seen: 0,
        }))
    }

    fn bytes(&self) -> Bytes {
        Bytes::Shared
    }
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error> {
        // Before the look: what comes after it is news.
        self.seen = self.door.bell.lock().news;
        let pipe = self
            .door
            .pipe
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(shared) = pipe.clone() else {
            return Ok(None);
        };
        if self
            .accepted
            .as_ref()
            .is_some_and(|old| Arc::ptr_eq(old, &shared))
        {
            return Ok(None);
        }
        self.accepted = Some(Arc::clone(&shared));
        Ok(Some(Box::new(End {
            shared,
            side: 0,
            seen: 0,
        })))
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        waiting(&self.door.bell, 0, self.seen)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        names(|names| names.remove(&self.name));
        let pipe = self
            .door
            .pipe
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Whoever connected and was never accepted learns that nobody is there.
        if let Some(shared) = &*pipe
            && !self
                .accepted
                .as_ref()
                .is_some_and(|old| Arc::ptr_eq(old, shared))
        {
            let mut pipe = shared.lock();
            pipe.gone[0] = true;
            shared.tell(pipe);
        }
    }
}

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        let mut pipe = self.shared.lock();
        if pipe.gone[1 - self.side] {
            return Err(Kind::PeerGone.into());
        }
        if pipe.to[1 - self.side].frames.len() >= DEPTH {
            return Err(Kind::Full.into());
        }
        pipe.to[1 - self.side].frames.push_back(frame.clone());
        self.shared.tell(pipe);
        Ok(())
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        let mut pipe = self.shared.lock();
        let gone = pipe.gone[1 - self.side];
        let own = &mut pipe.to[self.side];
        match own.frames.pop_front() {
            Some(frame) => {
                own.taken += 1;
                self.shared.tell(pipe);
                Ok(Some(frame))
            }
            None if gone => Err(Kind::PeerGone.into()),
            None => Ok(None),
        }
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        let mut pipe = self.shared.lock();
        // The frames are looked at after it.
        if self.seen != pipe.news {
            self.seen = pipe.news;
            self.shared.quiet(&mut pipe, self.side);
        }
        let there = &mut pipe.to[1 - self.side];
        numbers.extend(there.told..there.taken);
        there.told = there.taken;
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        waiting(&self.shared, self.side, self.seen)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut pipe = self.shared.lock();
        pipe.gone[self.side] = true;
        // Whatever was shown in a frame that nobody takes is let go.
        pipe.to[self.side].frames.clear();
        self.shared.tell(pipe);
    }
}

impl Wait for Waiting {
    fn wait(&self, limit: Duration) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pipe = self.shared.lock();
        pipe.sleepers += 1;
        let waited = self
            .shared
            .changed
            .wait_timeout_while(pipe, limit, |pipe| pipe.news == *seen);
        let (mut pipe, _) = waited.unwrap_or_else(PoisonError::into_inner);
        pipe.sleepers -= 1;
        *seen = pipe.news;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let bell = &self.shared.bells[self.side];
        if bell.get().is_none() {
            // Without descriptors left there is none.
            let _ = bell.set(eventfd::create().ok()?);
        }
        bell.get().map(AsFd::as_fd)
    }

    fn arm(&self) -> bool {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pipe = self.shared.lock();
        pipe.armed[self.side] = pipe.news == seen;
        pipe.armed[self.side]
    }

    fn disarm(&self) {
        let mut pipe = self.shared.lock();
        pipe.armed[self.side] = false;
        self.shared.quiet(&mut pipe, self.side);
    }
}
