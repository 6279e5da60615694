//! Processes come, greet, hang up, die; the manager is restarted.

use super::*;

impl World {
    pub(super) fn spawn(&mut self) {
        let id = self.next_proc;
        self.next_proc += 1;
        let deaf = self.rng.one_in(25);
        self.procs.push(Proc {
            id,
            deaf,
            ..Proc::default()
        });
    }

    pub(super) fn connect(&mut self, i: usize) {
        let client = ClientId(self.shell.number());
        self.procs[i].client = Some(client);
        self.procs[i].queue.clear();
        let uid = 1000 + self.procs[i].id as u32 % 3;
        self.feed(Input::Connected {
            client,
            uid,
            gid: 1000,
            pid: 1,
        });
        if self.procs[i].client.is_none() {
            return;
        }
        let request = Request::Hello {
            version: if self.rng.one_in(200) {
                9
            } else {
                PROTOCOL_VERSION
            },
            name: "sim".to_owned(),
            resume: self.procs[i].domain,
            dumpable: false,
        };
        let pidfd = Some(self.token());
        let control_page = (!self.rng.one_in(100)).then(|| self.token());
        if let Some(control_page) = control_page {
            self.control_page_of.insert(client, control_page);
        }
        let process = self.procs[i].id;
        self.shell.greeting = process;
        self.feed(Input::Hello {
            client,
            request,
            pidfd,
            process,
            control_page,
        });
    }

    pub(super) fn say(&mut self, i: usize, request: Request, mut fds: Vec<Fd>) {
        let Some(client) = self.procs[i].client else {
            for fd in fds {
                self.shell.tokens.remove(&fd.token);
            }
            return;
        };
        if self.rng.one_in(1000) {
            let extra = self.counters(3);
            fds.push(extra);
        }
        self.feed(Input::Request {
            client,
            request,
            fds,
        });
    }

    /// Stops sending to a process for now: no request waits for its queue.
    pub(super) fn block(&mut self, i: usize) {
        let p = &self.procs[i];
        let (Some(client), false) = (p.client, p.queue.is_empty()) else {
            return;
        };
        self.waited.retain(|(c, ..)| *c != client);
        self.blocking = true;
        self.feed(Input::Blocked { client });
        self.blocking = false;
    }

    pub(super) fn die(&mut self, i: usize) {
        let p = self.procs.swap_remove(i);
        self.count("died");
        // The two signs of a death come in any order.
        let hang_up_first = self.rng.one_in(2);
        let client = p.client;
        if hang_up_first && let Some(client) = client {
            self.control_page_of.remove(&client);
            self.feed(Input::HungUp { client });
        }
        if !hang_up_first {
            // Keep a record like the shell's until the state lets go of the connection.
            self.procs.push(Proc {
                client,
                ..Proc::default()
            });
        }
        for domain in self.shell.take_watched(p.id) {
            self.feed(Input::ProcessDied { domain });
        }
        if !hang_up_first {
            let last = self.procs.pop().unwrap();
            if let Some(client) = last.client {
                self.feed(Input::HungUp { client });
            }
        }
    }

    pub(super) fn hang_up(&mut self, i: usize) {
        if let Some(client) = self.procs[i].client.take() {
            self.procs[i].queue.clear();
            self.control_page_of.remove(&client);
            self.count("hung up");
            self.feed(Input::HungUp { client });
        }
    }

    /// Kills the manager; the new one begins at the id file's numbers.
    pub(super) fn restart(&mut self) {
        // Often just after the death of a writer whose pool others use.
        let has = |p: &Proc| p.pools.values().any(|chunks| !chunks.is_empty());
        let writers = (0..self.procs.len()).filter(|i| has(&self.procs[*i]));
        let writers: Vec<usize> = writers.collect();
        if let Some(i) = self.rng.pick(&writers).filter(|_| self.rng.one_in(2)) {
            self.all_lives = true;
            self.die(i);
            self.all_lives = false;
        }
        self.count("restarted");
        let stored = self.shell.state.stored();
        self.shell.restart(config(self.policy));
        self.control_pages.clear();
        self.control_page_of.clear();
        self.joined.clear();
        self.heap_books.clear();
        for p in &mut self.procs {
            p.client = None;
            p.queue.clear();
            let heaps = std::mem::take(&mut p.heaps);
            p.held.extend(heaps.into_values());
        }
        if !stored.is_empty() {
            self.count("stored");
        }
        if !self.rng.one_in(4) {
            self.take_back(stored.into_iter().map(|(s, _)| s).collect());
        }
    }

    /// Gives stored descriptors, or similar ones, back to the state.
    fn take_back(&mut self, stored: Vec<Stored>) {
        let mut all = Vec::new();
        let mut level = Trust::Producer;
        for mut stored in stored {
            let name = stored.to_string();
            assert_eq!(Stored::parse(&name).as_ref(), Some(&stored), "{name}");
            if self.rng.one_in(40) {
                continue;
            }
            // A pool's table comes before its chunks.
            let fd = match &mut stored {
                Stored::Table { shape, .. } => {
                    level = shape.trust;
                    self.table()
                }
                Stored::Chunk { index, .. } => {
                    *index += 16 * u32::from(self.rng.one_in(60));
                    let shared = level.all_write();
                    let sealed = if shared {
                        Sealed::Shared
                    } else {
                        Sealed::OneWriter
                    };
                    self.sealed_fd(0, 0, CHUNK, sealed)
                }
                Stored::Reader { .. } => Fd {
                    token: self.token(),
                    facts: Facts::default(),
                },
            };
            all.push((stored, fd));
        }
        // Few writers have readers here: these are further ones, which may come back and claim.
        let pools: BTreeSet<PoolId> = (all.iter())
            .filter_map(|(s, _)| match s {
                Stored::Table { pool, .. } => Some(*pool),
                _ => None,
            })
            .collect();
        let seen: Vec<DomainId> = self.domains_seen.iter().copied().collect();
        for pool in pools {
            if let Some(domain) = self.rng.pick(&seen) {
                let inode = 0;
                let fd = Fd {
                    token: self.token(),
                    facts: Facts::default(),
                };
                all.push((
                    Stored::Reader {
                        pool,
                        domain,
                        inode,
                    },
                    fd,
                ));
            }
        }
        let n = all.len();
        let actions = self.shell.state.take_stored(all);
        let closed = actions.iter().filter(|a| matches!(a, Action::Close(_)));
        if closed.count() < n {
            self.count("taken back");
        }
        self.do_all(actions);
    }

    /// Ends an awaited reader.
    pub(super) fn end_awaited(&mut self) {
        let awaited = self.shell.state.awaited();
        if let Some((pool, reader, token)) = self.rng.pick(&awaited) {
            assert!(self.shell.owns(token));
            self.count("awaited in vain");
            let actions = self.shell.state.awaited_ended(pool, reader);
            self.do_all(actions);
        }
    }

    fn do_all(&mut self, actions: Vec<Action>) {
        let mut inputs = VecDeque::new();
        self.carry_out(actions, &mut inputs);
        for input in inputs {
            self.feed(input);
        }
        assert!(
            self.shell
                .state
                .stored()
                .iter()
                .all(|(_, t)| self.shell.owns(*t))
        );
    }
}
