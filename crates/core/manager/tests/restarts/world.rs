//! The manager's shell, its deaths, and the invariants.

use super::*;

pub struct World {
    pub rng: Rng,
    pub shell: Shell,
    pub procs: Vec<Proc>,
    pub control_pages: BTreeMap<(FdToken, u32), (Option<PoolId>, u64)>,
    /// Halves whose owner has said that it no longer takes or sends.
    pub closed: BTreeSet<Inode>,
    /// Assignments over which something may have been sent.
    pub dirty: BTreeSet<(ChannelId, PoolId)>,
    /// Chunks that their writers gave back: no queued buffer is in them.
    pub returned: BTreeSet<(PoolId, (u32, u32))>,
    pub counts: BTreeMap<&'static str, u64>,
    /// There is no manager.
    pub away: bool,
    /// Steps for which the manager counts as new.
    fresh_for: usize,
    req: u32,
}

/// More than the grace.
const LATE: Duration = Duration::from_secs(3);

fn config() -> Config {
    Config {
        pools_per_domain: 6,
        forward: tranship_manager::Forward::Readers,
        ..Config::default()
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            rng: Rng(seed),
            shell: Shell::new(config(), 1 << 30),
            procs: Vec::new(),
            control_pages: BTreeMap::new(),
            closed: BTreeSet::new(),
            dirty: BTreeSet::new(),
            returned: BTreeSet::new(),
            counts: BTreeMap::new(),
            away: false,
            fresh_for: 0,
            req: 0,
        }
    }

    pub fn fresh(&mut self) -> u64 {
        self.shell.number()
    }

    pub fn req(&mut self) -> Req {
        self.req += 1;
        Req(self.req)
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn token(&mut self, inode: Inode) -> FdToken {
        self.shell.token(inode)
    }

    /// Makes a descriptor of some memory, for the manager.
    pub fn fd(&mut self, kind: u32, inode: Inode) -> Fd {
        let (count, size) = match kind {
            0 => (0, CHUNK),
            2 => (SLOTS, 8192),
            6 | 7 => (2, 8192),
            _ => (SLOTS, 4096),
        };
        self.shell
            .object((kind, count, size), Sealed::OneWriter, inode)
    }

    /// Makes every domain act, and all messages arrive at once, so that there is something to lose.
    pub fn gets_busy(&mut self, steps: usize) {
        if self.away {
            self.restart();
        }
        for _ in 0..steps {
            self.comes_to_be();
            let i = self.rng.below(self.procs.len());
            self.acts(i);
            let mut moved = true;
            while moved {
                moved = false;
                for i in 0..self.procs.len() {
                    while self.goes_out(i) || self.comes_in(i) || self.hears(i) {
                        moved = true;
                    }
                }
            }
            self.is_safe();
        }
    }

    fn comes_to_be(&mut self) {
        if self.procs.len() < 4 {
            let id = self.fresh();
            self.procs.push(Proc {
                id,
                ..Proc::default()
            });
        }
    }

    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.shell.now += Duration::from_millis(self.rng.below(40) as u64);
            self.comes_to_be();
            let i = self.rng.below(self.procs.len());
            // While some are back at a new manager and others are not, deaths matter most.
            self.fresh_for = self.fresh_for.saturating_sub(1);
            if self.fresh_for > 0 && self.rng.one_in(80) {
                self.die(i);
                continue;
            }
            match self.rng.below(1000) {
                0 | 1 => self.die(i),
                2 | 3 if self.away || self.rng.one_in(2) => self.restart(),
                2 | 3 => self.is_killed(),
                4 => self.hang_up(i),
                5..=30 => self.tell(Input::Tick),
                31..=280 => drop(self.goes_out(i)),
                281..=530 => drop(self.comes_in(i)),
                531..=780 => drop(self.hears(i)),
                781..=830 => drop(self.looks(i)),
                _ => self.acts(i),
            }
            self.is_safe();
        }
    }

    /// Moves the manager's oldest message into a domain's socket.
    pub fn goes_out(&mut self, i: usize) -> bool {
        let p = &mut self.procs[i];
        let (Some(client), Some((event, inodes))) = (p.client, p.flight.pop_front()) else {
            return false;
        };
        let control_page = matches!(event, Event::Welcome { .. })
            .then_some(FdToken(inodes.first().copied().unwrap_or(0)));
        p.socket.push_back((event, inodes, control_page));
        self.tell(Input::Sent { client });
        true
    }

    /// Lets the manager read a domain's oldest request.
    pub fn comes_in(&mut self, i: usize) -> bool {
        let p = &mut self.procs[i];
        let (Some(client), Some((request, fds))) = (p.client, p.outbox.pop_front()) else {
            return false;
        };
        if std::env::var_os("TRANSHIP_TRACE").is_some() {
            println!("{:?} -> {request:?}", p.domain);
        }
        self.tell(Input::Request {
            client,
            request,
            fds,
        });
        true
    }

    /// Gives the manager an input, if there is one.
    pub fn tell(&mut self, input: Input) {
        if !self.away {
            self.feed(input);
        }
    }

    /// Says whether these references of a pool belong to a domain that holds buffers.
    fn is_held(&self, pool: PoolId, refs: Inode) -> bool {
        self.procs.iter().any(|p| {
            p.foreign
                .get(&pool)
                .is_some_and(|f| f.refs == refs && !f.held.is_empty())
        })
    }

    /// Says whether there may be something in the queue with these counters, also before the sink is told that it may
    /// take it: a sent buffer is counted as sent.
    fn is_taken(&self, pool: PoolId, rcvd: Inode) -> bool {
        self.procs.iter().any(|p| {
            p.links.iter().any(|(c, l)| {
                l.role == Role::Sink
                    && !l.leaving
                    && l.assigned.get(&pool).is_some_and(|a| a.counts == rcvd)
                    && self.dirty.contains(&(*c, pool))
            })
        })
    }

    /// Checks that a chunk which is taken away from a domain has nothing that the domain may still take.
    pub fn may_take_away(&mut self, i: usize, pool: PoolId, key: (u32, u32)) {
        self.count("taken away");
        let link = self.procs[i].links.iter().find(|(c, l)| {
            l.role == Role::Sink
                && !l.leaving
                && l.assigned.contains_key(&pool)
                && self.dirty.contains(&(**c, pool))
        });
        assert!(
            link.is_none() || self.returned.contains(&(pool, key)),
            "chunk {key:?} of pool {pool} is taken away, and something may come by channel {}",
            link.unwrap().0
        );
    }

    fn die(&mut self, i: usize) {
        self.count("died");
        let p = self.procs.swap_remove(i);
        if let Some(client) = p.client {
            self.tell(Input::HungUp { client });
        }
        for domain in self.shell.take_watched(p.id) {
            self.tell(Input::ProcessDied { domain });
        }
    }

    /// Breaks a connection; both sides live on.
    fn hang_up(&mut self, i: usize) {
        let Some(client) = self.procs[i].client.filter(|_| self.procs[i].greeted) else {
            return;
        };
        self.count("hung up");
        self.procs[i].flight.clear();
        self.tell(Input::HungUp { client });
        // The messages in its socket are read to the end before it comes back (`looks`).
        self.procs[i].client = None;
        self.procs[i].outbox.clear();
    }

    /// Kills the manager.
    fn is_killed(&mut self) {
        self.away = true;
        self.shell.watched.clear();
        for p in &mut self.procs {
            p.flight.clear();
            p.outbox.clear();
            p.client = None;
        }
    }

    /// Kills the manager, unless it was killed before; the next one begins at the id file's numbers.
    fn restart(&mut self) {
        self.count("restarted");
        self.is_killed();
        self.fresh_for = 150;
        self.away = false;
        self.shell.now = Duration::ZERO;
        self.shell.restart(config());
        // A domain may be stopped for longer than others are asked to wait.
        for i in 0..self.procs.len() {
            self.procs[i].late = match self.rng.one_in(6) {
                true => LATE,
                false => Duration::ZERO,
            };
        }
    }

    /// Lets every domain read its messages and look, without a manager. Then every writer collects, by a reader set
    /// without dead domains.
    pub fn stands_alone(&mut self) {
        self.is_killed();
        for i in 0..self.procs.len() {
            while self.hears(i) {
                self.is_safe();
            }
            self.looks(i);
            self.is_safe();
        }
        for p in &self.procs {
            for (pool, own) in &p.pools {
                assert!(own.alone, "pool {pool} of {:?} is suspended", p.domain);
                let lives = |process| self.procs.iter().any(|p| p.id == process);
                for (domain, r) in &own.readers {
                    assert!(lives(r.process), "pool {pool}: reader {domain} is dead");
                }
                self.counts
                    .entry("alone")
                    .and_modify(|n| *n += 1)
                    .or_insert(1);
            }
        }
    }

    /// Brings everything to rest: all messages arrive, every domain looks, no domain starts anything new. Then the
    /// remaining objects are checked.
    pub fn comes_to_rest(&mut self) {
        if self.away {
            self.restart();
        }
        let mut quiet = 0;
        for round in 0.. {
            assert!(round < 10_000, "it never comes to rest");
            let mut moved = false;
            for i in 0..self.procs.len() {
                while self.goes_out(i) || self.comes_in(i) || self.hears(i) {
                    moved = true;
                }
                moved |= self.looks(i);
                self.is_safe();
            }
            self.shell.now += Duration::from_millis(300);
            self.tell(Input::Tick);
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > 20 {
                break;
            }
        }
        self.is_calm();
    }

    fn by_domain(&self, domain: DomainId) -> Option<&Proc> {
        self.procs.iter().find(|p| p.domain == Some(domain))
    }

    fn is_calm(&mut self) {
        for p in &self.procs {
            for (pool, own) in &p.pools {
                for (channel, q) in &own.queues {
                    let end = self.by_domain(q.sink).and_then(|s| s.links.get(channel));
                    assert!(
                        end.is_some_and(|l| !l.leaving) || !self.dirty.contains(&(*channel, *pool)),
                        "pool {pool} of {:?}: the queue of channel {channel} to {} never leaves",
                        p.domain,
                        q.sink
                    );
                }
                for (domain, r) in &own.readers {
                    let lives = self.procs.iter().any(|p| p.id == r.process);
                    assert!(lives, "pool {pool}: reader {domain} is dead");
                }
                let collects = own.alone || own.entry.is_some();
                assert!(collects, "pool {pool} of {:?} is suspended", p.domain);
            }
            for (channel, link) in &p.links {
                let other = self.by_domain(link.peer).and_then(|o| o.links.get(channel));
                assert!(
                    other.is_some(),
                    "{:?}: the other end of {channel} is not there",
                    p.domain
                );
            }
        }
        for p in &self.procs {
            // A domain that was shown a chunk meanwhile is an ordinary reader, and is told when the chunk goes.
            let waits = |f: &Foreign| f.given_up && f.mapped.is_empty();
            for (pool, _) in p.foreign.iter().filter(|(_, f)| waits(f)) {
                // Others may still hold buffers of a domain that has gone.
                let writer = self.procs.iter().find(|w| w.pools.contains_key(pool));
                let writer = writer.map(|w| w.domain);
                assert_eq!(writer, None, "{:?} never forgets pool {pool}", p.domain);
            }
        }
        let alone = self.procs.iter().all(|p| p.links.is_empty());
        self.count(if alone { "left alone" } else { "linked" });
    }

    /// Checks that a writer which may collect now sees every domain that takes references, or has any.
    fn is_safe(&mut self) {
        let mut checked = 0;
        for w in &self.procs {
            for (pool, own) in &w.pools {
                let place = own
                    .entry
                    .and_then(|e| self.control_pages.get(&(w.control_page?, e)));
                if !own.alone && place != Some(&(Some(*pool), own.epoch)) {
                    continue;
                }
                for s in &self.procs {
                    let Some(domain) = s.domain else { continue };
                    let on_reader_set =
                        |refs: Inode| own.readers.get(&domain).is_some_and(|r| r.refs == refs);
                    if let Some(f) = s.foreign.get(pool).filter(|f| !f.held.is_empty()) {
                        assert!(
                            on_reader_set(f.refs),
                            "pool {pool}: {domain} holds buffers unseen"
                        );
                        checked += 1;
                    }
                    for (channel, link) in s
                        .links
                        .iter()
                        .filter(|(_, l)| l.role == Role::Sink && !l.leaving)
                    {
                        let takes = link
                            .assigned
                            .get(pool)
                            .filter(|a| a.open && self.dirty.contains(&(*channel, *pool)));
                        let Some(a) = takes else { continue };
                        let seen = own.queues.get(channel).is_some_and(|q| q.rcvd == a.counts);
                        assert!(
                            seen,
                            "pool {pool}: {domain} takes from channel {channel} unseen"
                        );
                        assert!(
                            s.id == w.id || on_reader_set(a.refs),
                            "pool {pool}: {domain} takes references from channel {channel} unseen"
                        );
                        checked += 1;
                    }
                }
            }
        }
        *self.counts.entry("safe").or_default() += checked;
    }
}

impl Simulated for World {
    fn shell(&mut self) -> &mut Shell {
        &mut self.shell
    }

    /// A request that never arrived keeps its descriptors until the manager's death.
    fn owns_all(&self) -> bool {
        false
    }

    fn hears(&mut self, client: ClientId, event: Event, fds: Vec<FdToken>) -> bool {
        assert!(!matches!(event, Event::Expelled { .. }), "{event:?}");
        let is_welcome = matches!(event, Event::Welcome { .. });
        let inode = |fd: &FdToken| {
            if is_welcome {
                fd.0
            } else {
                self.shell.tokens[fd]
            }
        };
        let inodes = fds.iter().map(inode).collect();
        if let Some(p) = self.procs.iter_mut().find(|p| p.client == Some(client)) {
            p.flight.push_back((event, inodes));
        }
        false
    }

    fn is_dropped(&mut self, client: ClientId, refusal: Option<Refusal>) {
        assert_eq!(refusal, None, "an honest domain was expelled");
        if let Some(p) = self.procs.iter_mut().find(|p| p.client == Some(client)) {
            p.flight.clear();
            p.down(&mut self.closed);
        }
    }

    fn entry_is_set(&mut self, at: (FdToken, u32), pool: Option<PoolId>, epoch: u64) {
        self.control_pages.insert(at, (pool, epoch));
    }

    /// Only the visible part.
    fn alive(&mut self, orphan: &Orphan) -> Option<Vec<(u32, u32)>> {
        let inode = |token: &FdToken| self.shell.tokens[token];
        let held = |refs: &FdToken| self.is_held(orphan.pool, inode(refs));
        let taken = |(_, rcvd): &(FdToken, FdToken)| self.is_taken(orphan.pool, inode(rcvd));
        let live = orphan.refs.iter().any(held) || orphan.queues.iter().any(taken);
        Some(if live { vec![(0, 15)] } else { Vec::new() })
    }
}
