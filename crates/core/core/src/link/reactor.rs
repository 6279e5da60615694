//! The thread that wakes tasks. A domain has it from the first task that has to wait until none has waited for a while.
//!
//! It sleeps on the doorbells of the channels that are awaited, on the manager's socket, and until the first task's
//! time has come. Four times a second it looks by itself, as every sleeping thread does: whether the peers live,
//! whether the manager is back, and whether a peer failed to ring.

use super::shared::{Gone, LinkShared};
use super::sleep::LOOK;
use crate::base::thread;
use crate::domain::{DomainCore, Key, Woken};
use crate::error::{self, Error};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;
use tranship_proto::{ChannelId, Role};

/// Puts a task to sleep until a wake-up by that key, or by the manager's news. The caller looks again after it.
pub(crate) fn put(domain: &DomainCore, key: Key, waker: &Waker) -> Result<(), Error> {
    let put = domain.tasks.put(key, waker, domain.pollable());
    if put.map_err(error::system("an epoll instance for tasks"))? {
        let core = domain.clone();
        let started = thread("tranship-tasks", move || run(&core));
        if let Err(error) = started {
            domain.tasks.ended();
            return Err(error::system("starting the thread that wakes tasks")(error));
        }
    }
    Ok(())
}

fn run(domain: &DomainCore) {
    let tasks = &domain.tasks;
    let mut look = Instant::now() + LOOK;
    let mut woken = Vec::new();
    loop {
        if tasks.sleep(look, &mut woken).is_err() {
            domain.idle();
        }
        if domain.is_closed() {
            return tasks.ended();
        }
        for why in &woken {
            match *why {
                Woken::Kick => {}
                Woken::News => domain.turn_quietly(),
                Woken::Doorbell { channel, hung_up } => {
                    if let Some(link) = link(domain, channel) {
                        link.rung(hung_up);
                    }
                    tasks.wake(channel);
                }
            }
        }
        let now = Instant::now();
        tasks.wake_due(now);
        if now >= look {
            look = now + LOOK;
            if tasks.ends() {
                return;
            }
            look_around(domain);
        }
        tasks.tell_news();
    }
}

fn link(domain: &DomainCore, channel: Key) -> Option<Arc<LinkShared>> {
    LinkShared::of(domain, ChannelId(u32::try_from(channel).ok()?))
}

/// Looks for events that woke no task.
fn look_around(domain: &DomainCore) {
    domain.turn_quietly();
    for channel in domain.tasks.channels() {
        let Some(link) = link(domain, channel) else {
            continue;
        };
        link.look_for_death();
        let may_go_on = match link.role {
            Role::Sink => link.ring.has_line() || link.their_closed(),
            // Only the cursor knows what was taken already.
            Role::Source => true,
        };
        if may_go_on || link.gone() != Gone::No {
            domain.tasks.wake(channel);
        }
    }
}
