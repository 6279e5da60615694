//! The work of a turn: takes the manager's news, then does the work that they ask for, and work that is due.

use super::conn::Conn;
use super::register::Chore;
use super::residents::{Gone, LinkMember};
use super::state::DomainCore;
use crate::base::{lock, retired};
use crate::error::{Error, ErrorKind};
use std::sync::Arc;
use tranship_proto::Request;
use tranship_sys::futex;

impl DomainCore {
    /// Takes all of the manager's messages, then does the work that they ask for. Rejoins a manager that came back.
    pub(super) fn work(&self) -> Result<(), Error> {
        self.check_fork()?;
        if self.is_closed() {
            return Ok(());
        }
        let outcome = self.take_events();
        for chore in self.register.take_chores() {
            match chore {
                Chore::Shrink(pool, target_bytes) => {
                    if let Some(pool) = self.register.own(pool) {
                        pool.set_shrink_target(target_bytes);
                    }
                }
                Chore::Traced(pool, on) => self.set_traced(pool, on),
                Chore::Quota(pool, quota_bytes) => {
                    if let Some(pool) = self.register.own(pool) {
                        pool.lift_shrink_target(quota_bytes);
                    }
                }
            }
        }
        self.look_for_deaths();
        self.tend_pools();
        self.tend_heaps();
        self.tasks.tell_news();
        outcome
    }

    /// Says whether there is work of which there may be no news, such as a manager that is away: a waiting thread looks
    /// now and then.
    pub fn has_left_overs(&self) -> bool {
        // The holder of the lock looks by itself.
        let is_away = || self.conn.try_lock().is_ok_and(|conn| !conn.is_up());
        self.register.is_to_be_looked_at() || is_away()
    }

    /// Looks for deaths that no manager reports.
    fn look_for_deaths(&self) {
        if !self.register.takes_look() {
            return;
        }
        let links = self.register.all_links();
        for link in links.iter().filter(|l| !l.watch().is_watched()) {
            link.look_for_death();
            // A link that this domain left while there was no manager is closed here if its peer cannot come back to
            // it.
            let over =
                link.gone() != Gone::No && (!link.watch().is_leaving() || self.closes(&**link));
            if !over {
                self.register.look_again();
            }
        }
        if self.give_up_foreign() {
            self.register.look_again();
        }
        for pool in self.register.all_own() {
            if pool.reap_dead_readers() {
                self.register.look_again();
            }
        }
    }

    /// Gives up pools of others if no link brings their buffers any more, nothing of them is held, and the present
    /// manager has not mentioned them: perhaps their writer never came back to it. Returns true if there are others.
    // Crash: the pools are forgotten only at the manager's answer (`PoolGone`), which comes when this domain has left
    // the writer's reader set. If the manager dies before, they are claimed from the next one. A domain that forgot its
    // counters could not prove that it is the one on the reader set, and the buffers left in its queues would stay for
    // ever.
    fn give_up_foreign(&self) -> bool {
        let mut unspoken = false;
        let mut over = Vec::new();
        self.register.with_foreign(|all| {
            for (pool, foreign) in all.iter() {
                if foreign.is_spoken_of() {
                    continue;
                }
                // The register's own handle is the last one: no link has one, so no new buffer can come.
                if Arc::strong_count(foreign) > 1 || !foreign.nothing_held() {
                    unspoken = true;
                } else if foreign.give_up() {
                    over.push((*pool, foreign.mapped()));
                    foreign.detach_all();
                }
            }
        });
        for (pool, mapped) in over {
            // This also covers a pool of which nothing is mapped: the claim is then all that ends.
            let mapped = if mapped.is_empty() {
                vec![(0, 0)]
            } else {
                mapped
            };
            for (index, serial) in mapped {
                let request = Request::Unmapped {
                    pool,
                    index,
                    serial,
                };
                let _ = self.tell(&request, &[]);
            }
        }
        unspoken
    }

    /// Tells the manager that a link is closed and forgets it; returns false while there is no manager to tell.
    fn closes(&self, link: &dyn LinkMember) -> bool {
        let channel = link.channel();
        let told = self.tell(&Request::CloseChannel { channel }, &[]).is_ok();
        if told {
            self.register.remove_link(channel);
        }
        told
    }

    fn take_events(&self) -> Result<(), Error> {
        let mut conn = lock(&self.conn);
        if !conn.is_up() {
            return self.come_back(&mut conn);
        }
        let before = self.seen();
        loop {
            conn.flush();
            // Ordering: Acquire pairs with the manager's Release of `wake` after the datagram went into this domain's
            // socket: the loop below finds all news up to here.
            let wake = self.wake();
            loop {
                match conn.receive() {
                    Ok(Some(came)) => {
                        let Some((event, fds)) = conn.keep_early(came) else {
                            continue;
                        };
                        let handled = self.handle(&mut conn, event, fds);
                        self.tasks.has_news();
                        match handled {
                            // An answer could not be sent; the other news must be taken anyway.
                            Err(error) if error != ErrorKind::ManagerAway => return Err(error),
                            _ => {}
                        }
                    }
                    Ok(None) => break,
                    Err(error) if error == ErrorKind::ManagerAway => {
                        self.manager_left();
                        return self.come_back(&mut conn);
                    }
                    Err(error) => {
                        if conn.is_up() {
                            // The answer waits for room: a thread that sleeps until there is news must not find it
                            // meanwhile.
                            self.control_pages.skip(wake);
                        } else {
                            self.manager_left();
                        }
                        return Err(error);
                    }
                }
            }
            self.control_pages.took(wake);
            if self.wake() == wake {
                // The manager wakes some of the threads that sleep on its word, and this one has taken the news for all
                // of them.
                if wake != before {
                    let _ = futex::wake(self.wake_word(), u32::MAX);
                }
                return Ok(());
            }
        }
    }

    /// Tries to reach a manager again. The last manager's news have been taken or will never come, so a thread that
    /// sleeps until there is news must not find any meanwhile.
    fn come_back(&self, conn: &mut Conn) -> Result<(), Error> {
        self.control_pages.skip(self.wake());
        if conn.take_ended() {
            let own = self.register.all_own();
            own.iter().for_each(|pool| pool.stand_alone());
            let heaps = self.register.all_heaps();
            heaps.iter().for_each(|heap| heap.stand_alone());
            self.register.look_again();
        }
        self.rejoin(conn)
    }

    /// Does due work on pools: gives back chunks, forgets pools whose handles are all gone.
    pub(super) fn tend_pools(&self) {
        for pool in self.register.all_own() {
            pool.tend();
        }
        retired::reclaim();
    }

    /// Makes the owners of heaps give back the memory that the manager wants.
    fn tend_heaps(&self) {
        for heap in self.register.all_heaps() {
            heap.tend();
        }
    }
}
