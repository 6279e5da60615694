//! Domains over a backend, and the model of them, in step: all of them here, or each in a process of its own.

use crate::aim::{Shot, aimed};
use crate::crew::Crew;
use crate::gathered::Gathered;
use crate::probe::Probe;
use crate::setup::{Does, circle};
use crate::states::{Limits, choices};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tranship_bulk::raw::{self, Raw};
use tranship_bulk::spec::{
    Assignment, BufferId, ChannelId, Domain, Event, Model, Op, Outcome, PoolId,
};
use tranship_bulk::{Access, BufferState, Completion, Error, Kind, Trust};
use tranship_transport::Backend;

pub type Done = Result<(), String>;

/// Where the metadata of the model's one byte is repeated to.
pub const META: usize = 5;
pub const BUFFER: usize = 4096;
/// What has not come after so many milliseconds does not come. Once something has not, shorter traces are tried, which wait less.
static PATIENCE: AtomicU64 = AtomicU64::new(60_000);

/// Has it been waited for long enough?
fn is_late(since: Instant) -> bool {
    let patience = Duration::from_millis(PATIENCE.load(Ordering::Relaxed));
    let late = since.elapsed() > patience;
    if late {
        PATIENCE.store(500, Ordering::Relaxed);
    }
    late
}

/// A new world, as each of its processes is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    pub domains: u8,
    pub seal_from: u64,
    pub run: String,
    pub late: bool,
}

/// What other processes have to know of a step that one of them has done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// It came to nothing, as somebody is dead.
    undone: bool,
    /// The pool that it made.
    pool: Option<u64>,
}

pub struct World {
    model: Model,
    /// Those that are in this process, and alive.
    domains: Vec<Option<Raw>>,
    /// The processes in which the domains are, if they are not here.
    crew: Option<Rc<RefCell<Crew>>>,
    /// What was sent may come a while later.
    late: bool,
    /// What its names begin with.
    run: String,
    channels: HashMap<(Domain, ChannelId), u64>,
    addresses: HashMap<ChannelId, String>,
    vetoes: HashMap<(Domain, ChannelId), Arc<AtomicBool>>,
    pools: BTreeMap<PoolId, u64>,
    asked: HashMap<(Domain, ChannelId, PoolId), Completion>,
    transfers: Vec<Completion>,
    gathered: Gathered,
    probe: Probe,
}

impl World {
    pub fn new(domains: u8, backend: Arc<dyn Backend>, seal_from: u64) -> World {
        let mut world = World::empty(domains, next_run());
        for domain in 0..domains {
            world.inhabit(domain, &backend, seal_from);
        }
        world
    }

    /// The part of a world that is in the process of one domain.
    pub fn part(me: Domain, backend: &Arc<dyn Backend>, begin: &Begin) -> World {
        let mut world = World::empty(begin.domains, begin.run.clone());
        world.inhabit(me, backend, begin.seal_from);
        world.late = begin.late;
        world
    }

    /// A world of which each domain is a process.
    pub fn of(crew: &Rc<RefCell<Crew>>, seal_from: u64) -> World {
        let run = next_run();
        let domains = crew.borrow_mut().begin(&run, seal_from);
        World {
            crew: Some(Rc::clone(crew)),
            ..World::empty(domains, run)
        }
    }

    fn inhabit(&mut self, domain: Domain, backend: &Arc<dyn Backend>, seal_from: u64) {
        let raw = Raw::new();
        raw.add_backend("test", Arc::clone(backend));
        raw.seal_from(seal_from);
        self.domains[usize::from(domain)] = Some(raw);
    }

    fn empty(domains: u8, run: String) -> World {
        World {
            model: Model::new(domains),
            domains: (0..domains).map(|_| None).collect(),
            crew: None,
            late: false,
            run,
            channels: HashMap::new(),
            addresses: HashMap::new(),
            vetoes: HashMap::new(),
            pools: BTreeMap::new(),
            asked: HashMap::new(),
            transfers: Vec::new(),
            gathered: Gathered::default(),
            probe: Probe::new(),
        }
    }

    /// The operation that is meant here.
    pub fn aimed(&self, shot: &Shot) -> Op {
        aimed(&self.model, shot)
    }

    /// Takes every message that waits anywhere.
    fn settle(&mut self) -> Done {
        loop {
            let before = self.model.clone();
            for channel in before.channels.keys() {
                for domain in 0..u8::try_from(self.domains.len()).unwrap_or(u8::MAX) {
                    let channel = *channel;
                    if self.channels.contains_key(&(domain, channel)) {
                        self.step(&Op::Deliver { domain, channel })?;
                    }
                }
            }
            if self.model == before {
                return Ok(());
            }
        }
    }

    /// Five channels with a circle, two pools on most of them.
    pub fn prepare(&mut self, trust: Trust) {
        circle(self, trust);
    }

    /// Tries what must not be possible now, or has nothing to do.
    pub fn refuses(&mut self, limits: &Limits) -> Done {
        if let Some(crew) = &self.crew {
            return crew.borrow().refuse(limits);
        }
        for op in choices(&self.model, limits) {
            let here = self.domains[usize::from(op.domain())].is_some();
            let refused = || {
                let outcome = self.model.clone().step(&op);
                matches!(outcome, Err(_) | Ok(Outcome::Nothing))
            };
            if here && !self.skips(&op) && refused() {
                self.step_here(&op)?;
            }
        }
        Ok(())
    }

    /// Does it on both sides, and compares everything.
    pub fn step(&mut self, op: &Op) -> Done {
        match self.skips(op) {
            true => Ok(()),
            false => self.step_here(op).map(|_| ()),
        }
    }

    /// As [`World::step`], of what was not skipped.
    pub fn step_here(&mut self, op: &Op) -> Result<Told, String> {
        if let Some(crew) = self.crew.clone() {
            let told = crew.borrow_mut().step(op)?;
            self.step_elsewhere(op, told);
            crew.borrow_mut().look(&self.model)?;
            return Ok(told);
        }
        let before = self.model.clone();
        let expected = self.model.step(op);
        let got = self.apply(op, &expected, &before);
        let codes = (
            expected
                .as_ref()
                .map(|_| ())
                .map_err(|kind| Error::from(*kind)),
            got,
        );
        let mut told = Told::default();
        match codes {
            (Ok(()), Ok(())) => {}
            (Err(a), Err(Failure::Error(b))) if a == b => {}
            // Whoever happens to see that the other end is dead may say so, and then has changed nothing.
            (Ok(()), Err(Failure::Error(error)))
                if error == Kind::PeerGone && self.model.alive.contains(&false) =>
            {
                self.model = before;
                told.undone = true;
            }
            (Ok(()), Err(Failure::Differs(what))) => return Err(format!("{op:?}: {what}")),
            (expected, got) => return Err(format!("{op:?}: expected {expected:?}, got {got:?}")),
        }
        if let Ok(Outcome::Pool(id)) = expected {
            told.pool = self.pools.get(&id).copied();
        }
        self.compare_after(op)?;
        Ok(told)
    }

    pub fn compare_after(&self, op: &Op) -> Done {
        self.compare()
            .map_err(|what| format!("after {op:?}: {what}"))
    }

    /// Another process has done it.
    pub fn step_elsewhere(&mut self, op: &Op, told: Told) {
        let before = self.model.clone();
        let expected = self.model.step(op);
        if told.undone {
            self.model = before;
            return;
        }
        let Ok(outcome) = expected else { return };
        match (op, outcome) {
            (Op::Create { domain, .. }, Outcome::Channel(id)) => {
                self.channels.insert((*domain, id), 0);
                self.addresses.insert(id, self.address(*domain, id));
            }
            (
                Op::Bind {
                    domain, channel, ..
                },
                _,
            ) => {
                self.channels.insert((*domain, *channel), 0);
            }
            (Op::NewPool { .. }, Outcome::Pool(id)) => {
                self.pools.insert(id, told.pool.unwrap_or(0));
            }
            (Op::DestroyPool { pool, .. }, _) => {
                self.pools.remove(pool);
            }
            (Op::Deliver { domain, channel }, _) => self.refused(*domain, *channel, &before),
            _ => {}
        }
    }

    /// It says who has made it.
    fn address(&self, creator: Domain, channel: ChannelId) -> String {
        format!("test:{creator}-{}-{channel}", self.run)
    }

    /// A bind that was refused: the end is gone.
    fn refused(&mut self, domain: Domain, channel: ChannelId, before: &Model) {
        if before.direction(channel, domain).is_some()
            && self.model.direction(channel, domain).is_none()
        {
            self.channels.remove(&(domain, channel));
        }
    }

    /// Where each pool is in this process.
    pub fn pools_here(&self) -> Vec<(PoolId, usize)> {
        let here = self.domains.iter().flatten();
        here.flat_map(|raw| {
            let at = |(id, real): (&PoolId, &u64)| Some((*id, raw.address((*real, 0))?));
            self.pools.iter().filter_map(at)
        })
        .collect()
    }

    /// What has no counterpart: domains that are dead, ends and pools that do not exist.
    fn skips(&self, op: &Op) -> bool {
        let domain = op.domain();
        let no_channel = |channel: ChannelId| !self.channels.contains_key(&(domain, channel));
        let no_pool = |pool: PoolId| !self.pools.contains_key(&pool);
        if !self.model.alive[usize::from(domain)] {
            return true;
        }
        match *op {
            Op::Create { .. } => self.model.channels.len() > 6,
            Op::NewPool { .. } => self.model.pools.len() > 2,
            Op::Bind { .. } => self.model.clone().step(op).is_err(),
            Op::Kill { .. } => false,
            Op::DestroyPool { pool, .. } => no_pool(pool),
            Op::Write { buffer, .. } => no_pool(buffer.pool),
            Op::Assign { channel, pool, .. } | Op::Remove { channel, pool, .. } => {
                no_channel(channel) || no_pool(pool)
            }
            Op::Veto { channel, .. } => {
                no_channel(channel) || self.model.direction(channel, domain).is_none()
            }
            Op::Close { channel, .. }
            | Op::Forget { channel, .. }
            | Op::Deliver { channel, .. } => no_channel(channel),
            Op::Move {
                channel, buffer, ..
            }
            | Op::Pass {
                channel, buffer, ..
            }
            | Op::Copy {
                channel, buffer, ..
            }
            | Op::Release {
                channel, buffer, ..
            } => no_channel(channel) || no_pool(buffer.pool),
            Op::FullCopy {
                channel, from, to, ..
            } => no_channel(channel) || no_pool(from.pool) || no_pool(to.pool),
            Op::Insert { piece, .. } => no_pool(piece.buffer.pool),
            Op::SendAll { channel, .. } => no_channel(channel),
            Op::Map { aggregate, .. } => {
                let all = self.model.mappings.get(&(domain, aggregate));
                all.is_some_and(|all| all.len() >= 2)
            }
            Op::TakeOut { .. } | Op::Unmap { .. } => false,
        }
    }

    fn real(&self, buffer: BufferId) -> raw::Buffer {
        let pool = self.pools.get(&buffer.pool).copied().unwrap_or(0);
        (pool, u32::from(buffer.index))
    }

    fn apply(
        &mut self,
        op: &Op,
        expected: &Result<Outcome, Kind>,
        before: &Model,
    ) -> Result<(), Failure> {
        let at = usize::from(op.domain());
        let domain = self.domains[at].clone().expect("alive");
        let channel_of = |channel: ChannelId| self.channels[&(op.domain(), channel)];
        let transfer = match *op {
            Op::Create {
                direction, wish, ..
            } => {
                let Ok(Outcome::Channel(id)) = expected else {
                    return Ok(());
                };
                let address = self.address(op.domain(), *id);
                let accept = self.acceptor(op.domain(), *id);
                let real = domain.create(&address, direction, wish, 64, Some(accept))?;
                self.channels.insert((op.domain(), *id), real);
                self.addresses.insert(*id, address);
                return Ok(());
            }
            Op::Bind { channel, wish, .. } => {
                let accept = self.acceptor(op.domain(), channel);
                let (real, _) = domain.bind(&self.addresses[&channel], wish, Some(accept))?;
                self.channels.insert((op.domain(), channel), real);
                return Ok(());
            }
            Op::NewPool {
                buffers,
                buffer_bytes,
                forward,
                ..
            } => {
                let real = domain.new_pool(u32::from(buffers), buffer_bytes, forward)?;
                for _ in 0..buffers {
                    domain.alloc(real)?;
                }
                let Ok(Outcome::Pool(id)) = expected else {
                    return Err(Failure::Differs("a pool".into()));
                };
                self.pools.insert(*id, real);
                return Ok(());
            }
            Op::DestroyPool { pool, .. } => {
                domain.destroy_pool(self.pools[&pool])?;
                self.pools.remove(&pool);
                return Ok(());
            }
            Op::Veto { channel, veto, .. } => {
                self.vetoes[&(op.domain(), channel)].store(veto, Ordering::Relaxed);
                return Ok(());
            }
            Op::Assign {
                domain: d,
                channel,
                pool,
            } => {
                let asked = domain.assign(channel_of(channel), self.pools[&pool])?;
                self.asked.insert((d, channel, pool), asked);
                return Ok(());
            }
            Op::Remove {
                domain: d,
                channel,
                pool,
            } => {
                let asked = domain.remove(channel_of(channel), self.pools[&pool])?;
                self.asked.insert((d, channel, pool), asked);
                return Ok(());
            }
            Op::Write { buffer, data, .. } => {
                domain.write(self.real(buffer), 0, &[data; BUFFER])?;
                return Ok(());
            }
            Op::Move {
                channel,
                buffer,
                meta,
                ..
            } => domain.move_(channel_of(channel), self.real(buffer), &[meta; META])?,
            Op::Pass {
                channel,
                buffer,
                meta,
                ..
            } => domain.pass(channel_of(channel), self.real(buffer), &[meta; META])?,
            Op::Copy {
                channel,
                buffer,
                meta,
                ..
            } => domain.copy(channel_of(channel), self.real(buffer), &[meta; META])?,
            Op::Release {
                channel,
                buffer,
                meta,
                ..
            } => domain.release_with(channel_of(channel), self.real(buffer), &[meta; META])?,
            Op::FullCopy {
                channel,
                from,
                to,
                meta,
                ..
            } => {
                let (from, to) = (self.real(from), self.real(to));
                domain.full_copy(channel_of(channel), from, to, &[meta; META])?
            }
            Op::SendAll {
                aggregate,
                channel,
                copies,
                meta,
                ..
            } => {
                let whole = self.gathered.get((op.domain(), aggregate));
                match copies {
                    true => domain.copy_all(channel_of(channel), &whole, &[meta; META])?,
                    false => domain.move_all(channel_of(channel), &whole, &[meta; META])?,
                }
            }
            Op::Insert {
                aggregate,
                at,
                piece,
                ..
            } => {
                let (buffer, part) = (self.real(piece.buffer), (piece.offset, piece.len));
                let whole = self.gathered.at((op.domain(), aggregate));
                domain.insert(whole, usize::from(at), buffer, part)?;
                return Ok(());
            }
            Op::TakeOut { aggregate, at, .. } => {
                let whole = self.gathered.at((op.domain(), aggregate));
                whole.remove(usize::from(at))?;
                return Ok(());
            }
            Op::Map { aggregate, .. } => {
                self.gathered.map((op.domain(), aggregate), &domain)?;
                return Ok(());
            }
            Op::Unmap { aggregate, .. } => {
                self.gathered.unmap((op.domain(), aggregate))?;
                return Ok(());
            }
            Op::Close { channel, .. } => domain.close(channel_of(channel))?,
            Op::Forget { channel, .. } => {
                // Its number stays here, to be refused.
                domain.forget(channel_of(channel))?;
                return Ok(());
            }
            Op::Kill { .. } => {
                drop(domain);
                self.gathered.end_of(op.domain());
                self.domains[at] = None;
                return Ok(());
            }
            Op::Deliver { domain: d, channel } => {
                return self.deliver(&domain, d, channel, expected, before);
            }
        };
        if !matches!(op, Op::Close { .. }) {
            self.transfers.push(transfer);
        }
        Ok(())
    }

    fn acceptor(&mut self, domain: Domain, channel: ChannelId) -> raw::Accept {
        let veto = Arc::new(AtomicBool::new(false));
        self.vetoes.insert((domain, channel), Arc::clone(&veto));
        Box::new(move |_| match veto.load(Ordering::Relaxed) {
            true => Err(Kind::PoolVeto.into()),
            false => Ok(()),
        })
    }

    fn deliver(
        &mut self,
        raw: &Raw,
        domain: Domain,
        channel: ChannelId,
        expected: &Result<Outcome, Kind>,
        before: &Model,
    ) -> Result<(), Failure> {
        let real = self.channels[&(domain, channel)];
        let takes = matches!(expected, Ok(Outcome::Took(_)));
        let took = self.turn(raw, real, takes)?;
        let Ok(outcome) = expected else {
            return Ok(());
        };
        // What is one message of the model is some of the carrier's.
        for _ in 0..parts(outcome) {
            if !self.turn(raw, real, takes)? {
                return Err(Failure::Differs("a part is missing".into()));
            }
        }
        let told = match outcome {
            Outcome::Took(told) => told.clone(),
            _ => Vec::new(),
        };
        if took != matches!(outcome, Outcome::Took(_)) {
            return Err(Failure::Differs(format!(
                "took {took}, expected {outcome:?}"
            )));
        }
        let mut wanted = Vec::new();
        for event in told {
            let real_pool = |pool: PoolId| self.pools[&pool];
            wanted.push(match event {
                Event::AssignDone(pool, result) | Event::RemoveDone(pool, result) => {
                    let asked = self.asked.remove(&(domain, channel, pool));
                    let got = asked.and_then(|asked| asked.result());
                    if got != Some(result.map_err(Error::from)) {
                        let what = format!("{event:?}, but the completion says {got:?}");
                        return Err(Failure::Differs(what));
                    }
                    continue;
                }
                Event::Bound(result) => raw::Event::Bound(result.map_err(Error::from)),
                Event::PoolAssigned(pool) => raw::Event::PoolAssigned(
                    raw.pool(real_pool(pool))
                        .ok_or(Error::from(Kind::PoolInvalid))?,
                ),
                Event::PoolRemoved(pool) => raw::Event::PoolRemoved(real_pool(pool)),
                Event::Moved(id, meta, _) => {
                    let (pool, index) = self.real(id);
                    raw::Event::Moved(pool, index, vec![meta; META].into())
                }
                Event::Copied(id, meta, _) => {
                    let (pool, index) = self.real(id);
                    raw::Event::Copied(pool, index, vec![meta; META].into())
                }
                Event::Passed(id, meta) => {
                    let (pool, index) = self.real(id);
                    raw::Event::Passed(pool, index, vec![meta; META].into())
                }
                Event::Released(id, meta) => {
                    let (pool, index) = self.real(id);
                    raw::Event::Released(pool, index, vec![meta; META].into())
                }
                Event::All(copies, pieces, meta) => {
                    self.gathered
                        .event(copies, &pieces, meta, |id| self.real(id))
                }
                Event::TeardownBegun => raw::Event::TeardownBegun,
                Event::Gone(back) => {
                    let mut back: Vec<_> = back.iter().map(|id| self.real(*id)).collect();
                    back.sort_unstable();
                    raw::Event::Gone(back)
                }
            });
        }
        let mut got = Vec::new();
        while let Some(event) = raw.poll_event(real) {
            if event != raw::Event::Closed {
                got.push(Gathered::normal(event));
            }
        }
        if got != wanted {
            return Err(Failure::Differs(format!(
                "told {got:?}, expected {wanted:?}"
            )));
        }
        self.refused(domain, channel, before);
        Ok(())
    }

    /// Takes a message. Where a process was killed there may be nothing but its death, which is not looked for each time, and takes a
    /// while to be seen.
    fn turn(&self, raw: &Raw, channel: u64, takes: bool) -> Result<bool, Error> {
        let killed = self.model.alive.contains(&false);
        let since = Instant::now();
        while !raw.turn(channel)? {
            if !takes || !killed && !self.late || is_late(since) {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(true)
    }

    /// States, permissions, bytes.
    fn compare(&self) -> Done {
        for ((domain, channel), real) in &self.channels {
            let Some(raw) = &self.domains[usize::from(*domain)] else {
                continue;
            };
            let found = &self.model.channels[channel];
            let mut ends = found.ends.iter().flatten();
            let wanted = ends.find(|end| end.domain == *domain).map(|end| end.state);
            let got = raw.channel_state(*real);
            if got != wanted {
                return Err(format!(
                    "channel {channel} of {domain}: {got:?}, expected {wanted:?}"
                ));
            }
        }
        for (domain, raw) in (0..).zip(&self.domains) {
            let Some(raw) = raw else { continue };
            for (id, real) in &self.pools {
                // What came back by itself is the program's again.
                if self.model.pools[id].creator == domain {
                    while raw.alloc(*real).is_ok() {}
                }
            }
            for id in self.model.buffers.keys() {
                self.compare_buffer(domain, raw, *id)?;
            }
            self.gathered
                .compare(domain, raw, &self.model, &self.probe)?;
        }
        Ok(())
    }

    fn compare_buffer(&self, domain: Domain, raw: &Raw, id: BufferId) -> Done {
        let at = self.real(id);
        let wanted = self.state(id, domain);
        let got = raw.buffer_state(at).unwrap_or(BufferState::Invalid);
        if got != wanted {
            return Err(format!("{id:?} in {domain}: {got:?}, expected {wanted:?}"));
        }
        let permitted = self.model.permitted(id, domain);
        let touched = raw.address(at).map(|address| self.probe.touch(address));
        let has = self.model.has_pool(id.pool, domain);
        // Memory that is wanted again already need not go in between.
        let mut ends = self
            .model
            .channels
            .values()
            .flat_map(|c| c.ends.iter().flatten());
        use Assignment::{Accepted, Asking, Showing};
        let wanted_again = ends.any(|end| {
            let status = end.pools.get(&id.pool);
            end.domain == domain && matches!(status, Some(Accepted | Asking | Showing))
        });
        if !has && wanted_again {
            return Ok(());
        }
        if has != touched.is_some() || touched.is_some_and(|touched| touched != permitted) {
            return Err(format!(
                "{id:?} in {domain}: touching gives {touched:?}, expected {permitted:?}"
            ));
        }
        let mut bytes = [0; BUFFER];
        if let (true, Some(data)) = (wanted != BufferState::Invalid, self.model.buffers[&id].data) {
            raw.read(at, 0, &mut bytes)
                .map_err(|e| format!("{id:?} in {domain}: {e:?}"))?;
            if let Some(other) = bytes.iter().find(|byte| **byte != data) {
                return Err(format!(
                    "{id:?} in {domain}: a byte is {other}, expected {data}"
                ));
            }
        }
        Ok(())
    }

    fn state(&self, id: BufferId, domain: Domain) -> BufferState {
        let owned = self.model.buffers[&id].place == tranship_bulk::spec::Place::At(domain);
        match (self.model.access(id, domain), owned) {
            (Access::None, _) => BufferState::Invalid,
            (Access::Read, true) => BufferState::ReadOnlyOwned,
            (Access::Read, false) => BufferState::ReadOnly,
            (Access::ReadWrite, _) => BufferState::ReadWrite,
        }
    }

    /// Once all is quiet, every operation has ended.
    pub fn end(mut self) -> Done {
        self.settle()?;
        match &self.crew {
            Some(crew) => crew.borrow_mut().end(&self.model),
            None => self.completed(),
        }
    }

    /// Every operation of the domains that are here has ended.
    pub fn completed(&self) -> Done {
        // What was taken is told with the next look.
        self.settle_completions();
        let alive = !self.model.alive.contains(&false);
        for transfer in &self.transfers {
            match transfer.result() {
                Some(Ok(())) => {}
                None if !alive => {}
                Some(Err(error)) if error == Kind::PeerGone && !alive => {}
                other => return Err(format!("an operation ended as {other:?}")),
            }
        }
        Ok(())
    }

    pub fn settle_completions(&self) {
        // Where somebody is dead some never end; else it is a matter of time.
        let alive = !self.model.alive.contains(&false);
        let ended = || self.transfers.iter().all(|t| t.result().is_some());
        let since = Instant::now();
        for round in 0.. {
            let long = match self.late {
                true => is_late(since),
                false => round > 100_000,
            };
            if round >= 100 && (!alive || ended() || long) {
                return;
            }
            for ((domain, _), real) in &self.channels {
                if let Some(raw) = &self.domains[usize::from(*domain)] {
                    let _ = raw.turn(*real);
                }
            }
            if self.late {
                std::thread::yield_now();
            }
        }
    }
}

impl Does for World {
    fn model(&self) -> &Model {
        &self.model
    }

    fn must(&mut self, op: &Op) -> Outcome {
        let outcome = self.model.clone().step(op);
        let done = self.step(op);
        done.unwrap_or_else(|e| panic!("{op:?}: {e}"));
        outcome.unwrap_or_else(|e| panic!("{op:?} is refused: {e:?}"))
    }
}

fn next_run() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("conform-{}-{count}", std::process::id())
}

/// How many messages of the carrier come before the last one of what was taken.
fn parts(outcome: &Outcome) -> usize {
    let Outcome::Took(told) = outcome else {
        return 0;
    };
    let all = told.iter().find_map(|event| match event {
        Event::All(_, pieces, _) => Some(pieces),
        _ => None,
    });
    let ids = all.into_iter().flatten().map(|piece| piece.buffer);
    ids.collect::<BTreeSet<_>>().len()
}

#[derive(Debug)]
pub enum Failure {
    Error(Error),
    Differs(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}
