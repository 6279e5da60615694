//! Listening: each client introduces itself on a thread of its own, so that no client makes others wait.

use crate::begin::begin;
use crate::meet;
use crate::thread;
use crate::wire::Wire;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tranship_core::carrier::Ends;
use tranship_core::{Error, ErrorKind};
use tranship_sys::epoll::wait_any_readable;
use tranship_sys::eventfd;
use tranship_transport::{Listener, Transport};

/// Most connections that have not introduced themselves yet, and most of one owner, where the owner is known.
const MOST: usize = 256;
const MOST_OF_ONE: usize = 64;
/// Time between two checks, whatever happens.
const ROUND: Duration = Duration::from_secs(1);
/// Pause before the next attempt when a connection cannot be accepted now.
const PAUSE: Duration = Duration::from_millis(50);

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    pub(crate) fn start(listener: Box<dyn Listener>, ends: Ends) -> Result<Listening, Error> {
        let stop = Arc::new(eventfd::create().map_err(Error::system("eventfd"))?);
        let own = Arc::clone(&stop);
        let thread = thread::spawn("tranship-listen", move || run(listener, &ends, &own))?;
        let thread = Some(thread);
        Ok(Listening { stop, thread })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // This fails only if the doorbell is rung already.
        let _ = eventfd::signal(&self.stop);
        // The address is thus free once this is gone.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Place of a connection that has not introduced itself yet.
struct Place {
    taken: Taken,
    owner: String,
}

/// Number of connections that each owner has.
type Taken = Arc<Mutex<HashMap<String, usize>>>;

impl Place {
    fn take(taken: &Taken, owner: String) -> Option<Place> {
        let mut all = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let most = match owner.is_empty() {
            true => MOST,
            false => MOST_OF_ONE,
        };
        let of_one = all.get(&owner).copied().unwrap_or(0);
        if all.values().sum::<usize>() >= MOST || of_one >= most {
            return None;
        }
        all.insert(owner.clone(), of_one + 1);
        let taken = Arc::clone(taken);
        Some(Place { taken, owner })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let left = all.get(&self.owner).map_or(0, |count| count - 1);
        match left {
            0 => all.remove(&self.owner),
            left => all.insert(self.owner.clone(), left),
        };
    }
}

fn run(mut listener: Box<dyn Listener>, ends: &Ends, stop: &OwnedFd) {
    let taken = Taken::default();
    // The descriptor is readable once the listener is to end, and stays so.
    while !wait_any_readable(&[stop.as_fd()], Some(Duration::ZERO)).unwrap_or(true) {
        let pause = match listener.accept() {
            Ok(Some(transport)) => {
                welcome(transport, ends, &taken);
                continue;
            }
            Ok(None) => ROUND,
            Err(error) => {
                tracing::debug!(address = ends.address(), %error, "accept");
                PAUSE
            }
        };
        let waiter = listener.waiter();
        if !waiter.arm() {
            continue;
        }
        // Whatever the kernel returns, both are checked.
        let _ = match waiter.descriptor() {
            Some(fd) if pause == ROUND => wait_any_readable(&[fd, stop.as_fd()], Some(pause)),
            _ => wait_any_readable(&[stop.as_fd()], Some(PAUSE)),
        };
    }
}

fn welcome(transport: Box<dyn Transport>, ends: &Ends, taken: &Taken) {
    let mut wire = Wire::new(transport);
    let Some(place) = Place::take(taken, wire.owner()) else {
        return meet::refuse(
            &mut wire,
            ErrorKind::Limit,
            "too many are about to connect: try again",
        );
    };
    let (ends, address) = (ends.clone(), ends.address().to_owned());
    let started = thread::spawn("tranship-greet", move || {
        let from = wire.place.clone();
        if let Err(error) = greet(wire, &ends) {
            tracing::warn!(address = ends.address(), from, %error, "a channel was not made");
        }
        drop(place);
    });
    if let Err(error) = started {
        tracing::warn!(address, %error, "a channel was not made");
    }
}

fn greet(mut wire: Wire, ends: &Ends) -> Result<(), Error> {
    // Before the introduction nothing is made for the client.
    let theirs = meet::hear(&mut wire, ends.sends())?;
    let made = meet::introduction(ends);
    let (ours, pool) =
        made.inspect_err(|error| meet::refuse(&mut wire, error.kind(), &error.to_string()))?;
    meet::say(&mut wire, ours);
    let handed = begin(wire, ends, ours, theirs, pool)?;
    ends.hand_out(handed)
}
