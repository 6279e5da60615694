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
        let client = ClientId(self.next_client);
        self.next_client += 1;
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
        let board = (!self.rng.one_in(100)).then(|| self.token());
        if let Some(board) = board {
            self.board_of.insert(client, board);
        }
        let process = self.procs[i].id;
        self.greeting = process;
        self.feed(Input::Hello {
            client,
            request,
            pidfd,
            process,
            board,
        });
    }

    pub(super) fn say(&mut self, i: usize, request: Request, mut fds: Vec<Fd>) {
        let Some(client) = self.procs[i].client else {
            for fd in fds {
                self.tokens.remove(&fd.token);
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

    /// Nothing goes out to a process for now: nobody waits for what is queued to it.
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
            self.board_of.remove(&client);
            self.feed(Input::HungUp { client });
        }
        if !hang_up_first {
            // Keep a shell-like record until the state lets go of the connection.
            self.procs.push(Proc {
                client,
                ..Proc::default()
            });
        }
        let domains: Vec<DomainId> = self
            .watched
            .iter()
            .filter(|(id, _)| *id == p.id)
            .map(|(_, d)| *d)
            .collect();
        self.watched.retain(|(id, _)| *id != p.id);
        for domain in domains {
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
            self.board_of.remove(&client);
            self.count("hung up");
            self.feed(Input::HungUp { client });
        }
    }

    /// The manager dies; a new one begins where the id file says.
    pub(super) fn restart(&mut self) {
        self.count("restarted");
        self.instance += 1;
        self.state = State::new(config(self.policy), TOTAL, self.instance, 1, self.ids);
        self.tokens.clear();
        self.later.clear();
        self.boards.clear();
        self.board_of.clear();
        self.joined.clear();
        self.heap_books.clear();
        self.watched.clear();
        for p in &mut self.procs {
            p.client = None;
            p.queue.clear();
            let heaps = std::mem::take(&mut p.heaps);
            p.held.extend(heaps.into_values());
        }
    }
}
