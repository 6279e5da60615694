//! The shell around the state machine: carries out its actions, and checks what it tells whom in which order.

use super::*;

impl World {
    /// One input, all its actions, all that follows at once; then everything is looked through.
    pub(super) fn feed(&mut self, input: Input) {
        if std::env::var_os("TRANSHIP_TRACE").is_some() {
            println!("{input:?}");
        }
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let actions = self.state.step(self.now, input);
            let mut disconnected = BTreeSet::new();
            for action in actions {
                self.act(action, &mut inputs, &mut disconnected);
            }
            if let Err(e) = self.state.audit() {
                panic!("{e}");
            }
        }
        let (granted, stranded) = self.state.memory();
        assert!(granted + stranded <= TOTAL);
        assert_eq!(
            self.state.held_tokens(),
            self.tokens,
            "descriptors leaked or were closed early"
        );
    }

    pub(super) fn act(
        &mut self,
        action: Action,
        inputs: &mut VecDeque<Input>,
        gone: &mut BTreeSet<ClientId>,
    ) {
        match action {
            Action::Send { client, event, fds } => {
                assert!(
                    !gone.contains(&client),
                    "event to a connection that is closed: {event:?}"
                );
                assert_eq!(fds.len(), event.fds());
                for fd in &fds {
                    assert!(
                        self.tokens.contains(fd),
                        "{event:?} carries a closed descriptor"
                    );
                }
                self.check_order(client, &event);
                if let Some(p) = self.proc_of(client) {
                    p.queue.push_back((event, fds));
                } else {
                    panic!("event to nobody: {event:?}");
                }
            }
            Action::Close(t) => {
                assert!(self.tokens.remove(&t), "{t:?} closed twice");
                self.boards.retain(|(b, _), _| *b != t);
            }
            Action::Disconnect { client, refusal } => {
                gone.insert(client);
                self.board_of.remove(&client);
                self.count(if refusal.is_some() {
                    "expelled"
                } else {
                    "parted"
                });
                if let Some(p) = self.proc_of(client) {
                    p.client = None;
                    p.queue.clear();
                }
            }
            Action::Watch { pidfd, domain } => {
                assert!(self.tokens.contains(&pidfd));
                self.watched.push((self.greeting, domain));
            }
            Action::SetBoard {
                board,
                entry,
                pool,
                epoch,
                ..
            } => {
                assert!(self.tokens.contains(&board), "a closed board is written");
                let old = self.boards.insert((board, entry), (epoch, pool));
                if let (Some((old, was)), Some(_)) = (old, pool) {
                    assert!(
                        was != pool || old <= epoch,
                        "epoch of {pool:?} fell from {old} to {epoch}"
                    );
                }
            }
            Action::ReadOrphan {
                pool,
                table,
                refs,
                queues,
                ..
            } => {
                for t in refs
                    .iter()
                    .chain([&table])
                    .chain(queues.iter().flat_map(|(a, b)| [a, b]))
                {
                    assert!(self.tokens.contains(t));
                }
                self.count("orphan read");
                let live = if self.rng.one_in(3) {
                    vec![0, 1, 2]
                } else {
                    Vec::new()
                };
                inputs.push_back(Input::OrphanRead { pool, live });
            }
            Action::ReadHold {
                client,
                table,
                refs,
                ..
            } => {
                assert!(self.tokens.contains(&table) && self.tokens.contains(&refs));
                inputs.push_back(Input::HoldRead {
                    client,
                    buffers: 1,
                    bytes: 1,
                });
            }
            Action::ReadTaken { client, half } => {
                assert!(self.tokens.contains(&half));
                inputs.push_back(Input::TakenRead { client, taken: 1 });
            }
            Action::ReserveIds { next, next_pool } => self.ids = IdStart { next, next_pool },
            Action::Exit => {}
        }
    }

    /// Rules between events of different clients that hold at the moment of queueing.
    pub(super) fn check_order(&mut self, client: ClientId, event: &Event) {
        match event {
            Event::Assigned { channel, pool, .. } => {
                // The writer was queued the queue before, or is away (then its board stops it).
                let writer = self
                    .procs
                    .iter()
                    .find(|p| p.entries.contains_key(pool) || p.pools.contains_key(pool));
                if let Some(w) = writer
                    && w.client.is_some()
                    && w.claimed
                    && !w.deaf
                    && w.instance == self.instance
                {
                    let told = w.assigned.contains(&(*channel, *pool))
                        || w.queue.iter().any(|(e, _)| {
                            matches!(e, Event::QueueJoined { channel: c, pool: p, .. } if c == channel && p == pool)
                        });
                    assert!(
                        told,
                        "Assigned({channel}, {pool}) before the writer was told"
                    );
                }
                self.count("assigned");
            }
            Event::QueueJoined { pool, epoch, .. }
            | Event::QueueLeft { pool, epoch, .. }
            | Event::ReaderLeft { pool, epoch, .. } => {
                let board = self.board_of.get(&client).copied();
                let stored = self
                    .boards
                    .iter()
                    .find(|((b, _), (_, p))| Some(*b) == board && *p == Some(*pool));
                let stored = stored.map(|(_, (e, _))| *e).unwrap_or(0);
                assert!(
                    stored >= *epoch,
                    "roster event with epoch {epoch}, the board says {stored}"
                );
            }
            Event::ChunkReady {
                pool,
                index,
                serial,
                ..
            } => {
                // No reader still has it queued.
                let queued = self.procs.iter().any(|p| {
                    !p.returned && !p.seen.contains(&(*pool, *index, *serial)) && p.queue.iter().any(|(e, _)| {
                        matches!(e, Event::ChunkAdded { pool: a, index: b, serial: c } if (a, b, c) == (pool, index, serial))
                    })
                });
                let claimed = self.proc_of(client).is_some_and(|p| !p.claimed);
                assert!(
                    !queued || claimed,
                    "ChunkReady while ChunkAdded has not gone out"
                );
                self.count("chunk ready");
            }
            Event::PoolCreated { pool, .. } => {
                let claimed = self
                    .proc_of(client)
                    .is_some_and(|p| p.pools.contains_key(pool));
                assert!(
                    self.pools_seen.insert(*pool) || claimed,
                    "pool {pool} was handed out twice"
                );
            }
            Event::Incoming { channel, .. } => {
                assert!(
                    self.channels_seen.insert(*channel),
                    "channel {channel} was handed out twice"
                );
            }
            Event::Welcome {
                domain, resumed, ..
            } => {
                assert!(
                    self.domains_seen.insert(*domain) || *resumed,
                    "domain {domain} was handed out twice"
                );
            }
            Event::PoolOffer { .. } => self.count("pool offer"),
            Event::Accepted { .. } => self.count("channel"),
            Event::ChunkAdded { .. } => self.count("chunk added"),
            Event::ChunkGone { .. } => self.count("chunk gone"),
            Event::PoolGone { .. } => self.count("pool gone"),
            Event::Refused { .. } => self.count("refused"),
            _ => {}
        }
    }
}
