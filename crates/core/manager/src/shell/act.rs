//! Execution of the state's actions.

use super::keep::Kept;
use super::out::{Outgoing, TURN};
use super::parts::Shell;
use super::party::Task;
use super::{counters, hog, idfile, look};
use crate::state::{Action, ClientId, FdToken, Input};
use std::collections::VecDeque;
use std::fs::File;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use tranship_proto::{Event, Refusal, encode};
use tranship_region::layout::ControlPageRw;
use tranship_sys::{crash, socket};

impl Shell {
    /// Gives the state one input, executes its actions, and the inputs that follow from them at once.
    pub(super) fn feed(&mut self, input: Input) {
        if !matches!(input, Input::Tick) {
            self.pages.changed();
        }
        self.answers.push_back(input);
        while let Some(input) = self.answers.pop_front() {
            let actions = self.state.step(self.started.elapsed(), input);
            // Crash: a restarted manager knows nothing of the actions that were not done. It is rebuilt from its
            // clients' descriptors, and a client without an answer asks again.
            for action in actions {
                crash::point("manager.before_action");
                self.act(action);
            }
        }
    }

    pub(super) fn queue(&mut self, client: ClientId, event: &Event, fds: &[FdToken]) {
        let fds: Vec<Rc<Kept>> = fds
            .iter()
            .filter_map(|t| self.fds.get(t).cloned())
            .collect();
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        fds.iter().for_each(|kept| kept.goes_out());
        conn.queue.push_back(Outgoing {
            bytes: encode(event),
            fds,
        });
        if let Event::Welcome { domain, .. } = event {
            conn.domain = Some(*domain);
            self.connected.insert(*domain, client);
        }
        self.plan_write(client);
    }

    /// Ends a connection, after one attempt to say why.
    pub(super) fn part(&mut self, client: ClientId, refusal: Option<Refusal>) {
        if let Some(conn) = self.conns.get_mut(&client) {
            let uid = conn.uid;
            let mut queue: VecDeque<Outgoing> = std::mem::take(&mut conn.queue);
            let mut room = 2 * TURN;
            while let Some(out) = queue.front()
                && room > 0
                && self.may_fly(uid, out.fds.len())
                && let Some(conn) = self.conns.get(&client)
                && out.send(&conn.fd).is_ok()
            {
                self.flies(client, out.fds.len());
                queue.pop_front();
                room -= 1;
            }
            let Some(conn) = self.conns.get(&client) else {
                return;
            };
            if let (Some(refusal), true) = (refusal, queue.is_empty()) {
                let last = encode(&Event::Expelled { refusal });
                let _ = socket::sendmsg(&conn.fd, &last, &[], true);
            }
        }
        self.drop_conn(client);
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Send { client, event, fds } => self.queue(client, &event, &fds),
            Action::Close(token) => {
                if self.watches.remove(&token).is_some() {
                    self.unwatch(token);
                }
                self.fds.remove(&token);
                self.control_pages.remove(&token);
                // The client's tables are freed in pieces, which may take longer than its connection.
                self.trim_soon();
            }
            Action::Disconnect { client, refusal } => self.part(client, refusal),
            Action::Watch { pidfd, domain } => {
                match self.watch(pidfd) {
                    Ok(()) => {
                        self.watches.insert(pidfd, domain);
                    }
                    Err(error) => {
                        // A process whose death the manager could not see is not served.
                        tracing::warn!(%error, %domain, "cannot watch a process");
                        self.answers.push_back(Input::ProcessDied { domain });
                    }
                }
            }
            Action::SetEntry {
                control_page,
                entry,
                pool,
                epoch,
                quota_bytes,
            } => {
                let Some(e) = self
                    .control_pages
                    .get(&control_page)
                    .and_then(|b| b.entry(entry))
                else {
                    return;
                };
                e.quota.store(quota_bytes, Ordering::Relaxed);
                crash::point("manager.between_words");
                // Ordering: Release; partner is the collector's acquire load: a writer that sees this epoch and has not
                // applied it does not collect. The source is told of its assignment only after that.
                e.epoch.store(epoch, Ordering::Release);
                e.pool
                    .store(pool.map_or(0, |p| u64::from(p.0)), Ordering::Release);
            }
            Action::ReadOrphan {
                pool,
                slots,
                chunk_bytes,
                windows,
                table,
                refs,
                queues,
            } => {
                let file = |t| self.fds.get(&t).map(|f| &***f);
                let orphan = counters::Orphan {
                    slots: slots.clone(),
                    chunk_bytes,
                    windows,
                    table: table.and_then(file),
                    refs: refs.into_iter().filter_map(file).collect(),
                    queues: queues
                        .into_iter()
                        .filter_map(|(s, r)| Some((file(s)?, file(r)?)))
                        .collect(),
                };
                let live = orphan.live_chunks();
                if let Err(error) = &live {
                    tracing::warn!(%error, %pool, "counters cannot be read");
                }
                let live = live.ok();
                self.answers
                    .push_back(Input::OrphanRead { pool, slots, live });
            }
            Action::Complete { client, records } => {
                let file = |token| self.fds.get(&token).map(|f| -> &File { f });
                let complete = |(mut record, look)| {
                    if let Some(look) = look {
                        look::complete(&mut record, look, &file);
                    }
                    record
                };
                let records = records.into_iter().map(complete).collect();
                self.answer_later(client, Input::Completed { client, records });
            }
            Action::ReadFigures { asker, pools } => {
                let read = |token| self.fds.get(&token).map(|f| counters::figures(f));
                let one = |(id, token)| (id, read(token).and_then(Result::ok));
                let figures = pools.into_iter().map(one).collect();
                let read = Input::FiguresRead { asker, figures };
                match asker {
                    Some((client, _)) => self.answer_later(client, read),
                    None => self.answers.push_back(read),
                }
            }
            Action::ReadHeld {
                pool,
                reader,
                table,
                refs,
                slots,
            } => {
                let files = (self.fds.get(&table), self.fds.get(&refs));
                let held = match files {
                    (Some(table), Some(refs)) => {
                        counters::held_slots(table, refs, &slots).unwrap_or_default()
                    }
                    _ => Vec::new(),
                };
                self.answers.push_back(Input::HeldRead {
                    pool,
                    reader,
                    slots,
                    held,
                });
            }
            Action::SayHog(notice) => hog::say(&notice),
            Action::Kill { domain, pidfd } => {
                let mut conns = self.conns.values();
                let conn = conns.find(|c| c.domain == Some(domain));
                // A connection whose end the manager may not know yet.
                let is_here = conn.is_some_and(|c| !socket::is_hung_up(&c.fd));
                if !is_here || !hog::kill(domain, self.fds.get(&pidfd).map(|f| &***f)) {
                    self.answers.push_back(Input::NotKilled { domain });
                }
            }
            Action::ReserveIds { next, next_pool } => {
                if let Some(path) = &self.ids
                    && let Err(error) = idfile::save(path, next, next_pool)
                {
                    tracing::warn!(%error, path = %path.display(), "ids are not kept over a restart");
                }
            }
            Action::Scheduled => {
                self.scheduled = true;
                self.control_pages
                    .values()
                    .for_each(ControlPageRw::set_scheduled);
            }
            Action::Exit => self.exit = true,
        }
    }

    /// Answers as a task of the asker's user, so that others have their turn between this task and the next.
    fn answer_later(&mut self, client: ClientId, answer: Input) {
        if let Some(uid) = self.conns.get(&client).map(|c| c.uid) {
            self.enqueue(uid, Task::Answer(Box::new(answer)));
        }
    }
}
