//! Domains, and the model of them, in step.

use crate::mapped::{Mapped, mapped};
use crate::order::{Answer, Here, Order, Said};
use crate::party::access;
use crate::stage::Stage;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use tranship_model::draw::{Shot, aimed, is_unsaid};
use tranship_model::explore::{Does, Limits, choices};
use tranship_model::{
    Access, BufferId, Domain, EndState, ErrorKind, Hold, Model, Op, Outcome, Piece, Way, copies_of,
};
use tranship_testkit::probe;

pub type Done = Result<(), String>;

/// Pools of a world.
const MOST_POOLS: usize = 4;
/// Handles of one domain of one buffer.
const MOST_HANDLES: u8 = 20;
/// Copies at a receiver, and on their way to it: so many that it never has to be waited for.
const MOST_COPIES: usize = 40;
/// Steps of a stage from one look at all mappings to the next.
const LOOK_EVERY: u32 = 50;

pub struct World<'a> {
    stage: &'a Stage,
    model: Model,
    run: String,
    ids: Vec<u32>,
    ports: Vec<Option<SocketAddr>>,
    /// Number by which the library knows each pool.
    pools: BTreeMap<u8, u32>,
    /// Number by which the library knows each buffer.
    real: BTreeMap<BufferId, String>,
    /// Buffers that were sent: no domain gets them again.
    used: HashSet<String>,
    /// Place of each buffer in a domain that had it.
    was: BTreeMap<(Domain, BufferId), usize>,
}

impl<'a> World<'a> {
    pub fn new(stage: &'a Stage, domains: u8) -> World<'a> {
        let run = stage.begin();
        let mut world = World {
            stage,
            model: Model::new(stage.way, domains).sealing(stage.seals),
            run,
            ids: Vec::new(),
            ports: Vec::new(),
            pools: BTreeMap::new(),
            real: BTreeMap::new(),
            used: HashSet::new(),
            was: BTreeMap::new(),
        };
        let begun = world.all(|_| Order::Begin(stage.way)).expect("a new world");
        world.ids = begun.iter().map(|(_, answer)| answer.domain).collect();
        world.ports = begun.iter().map(|(_, answer)| answer.listens).collect();
        world
    }

    /// All that live do it at the same time.
    fn all(&self, order: impl Fn(Domain) -> Order) -> Result<Vec<(Domain, Answer)>, String> {
        let seats = self.stage.seats().borrow();
        let alive = |me: &Domain| self.model.alive[usize::from(*me)];
        let domains = 0..u8::try_from(self.model.alive.len()).unwrap_or(0);
        let living: Vec<Domain> = domains.filter(alive).collect();
        for me in &living {
            seats[usize::from(*me)].send(order(*me))?;
        }
        // Each answer is taken, whatever another one says.
        let answers: Vec<_> = living
            .iter()
            .map(|me| (*me, seats[usize::from(*me)].answer()))
            .collect();
        let each = answers.into_iter();
        each.map(|(me, answer)| Ok((me, answer.map_err(|e| format!("domain {me}: {e}"))?)))
            .collect()
    }

    fn ask(&self, me: Domain, order: Order) -> Result<Answer, String> {
        let seats = self.stage.seats().borrow();
        let answer = seats[usize::from(me)].ask(order);
        let mut answer = answer.map_err(|e| format!("domain {me}: {e}"))?;
        self.stage.is_written_by_all(answer.files.drain(..));
        Ok(answer)
    }

    /// The operation that is meant here.
    pub fn shoot(&mut self, shot: &Shot) -> Done {
        match aimed(&self.model, shot) {
            Some(op) => self.step(&op),
            None => Ok(()),
        }
    }

    /// Tries the operations that must not be possible now, or has nothing to do.
    pub fn refuses(&mut self, limits: &Limits) -> Done {
        for op in choices(&self.model, limits) {
            let outcome = self.model.clone().step(&op);
            if matches!(outcome, Err(_) | Ok(Outcome::Nothing)) {
                self.do_it(&op)?;
            }
        }
        self.compare()
    }

    /// Does it on both sides, and compares everything.
    pub fn step(&mut self, op: &Op) -> Done {
        match self.do_it(op)? {
            true => self
                .compare()
                .map_err(|what| format!("after {op:?}: {what}")),
            false => Ok(()),
        }
    }

    /// Does it, if it is not skipped, and compares the results.
    fn do_it(&mut self, op: &Op) -> Result<bool, String> {
        let mut next = self.model.clone();
        let expected = next.step(op);
        if self.skips(op, &expected) {
            return Ok(false);
        }
        let did = match op {
            Op::Connect { .. } => self.connect(op, &expected),
            Op::NewPool { .. } => {
                let made = self.new_pool(op, &expected);
                made.map(|(pool, number)| _ = self.pools.insert(pool, number))
            }
            Op::Kill { domain } => {
                self.stage.seats().borrow_mut()[usize::from(*domain)].kill();
                Ok(())
            }
            _ => self.act(op, &expected),
        };
        did.map_err(|what| format!("{op:?}: {what}"))?;
        self.stage.count(op, &expected);
        self.model = next;
        Ok(true)
    }

    /// Returns whether to skip an operation that the types do not allow, or that would take too long.
    fn skips(&self, op: &Op, expected: &Result<Outcome, ErrorKind>) -> bool {
        let model = &self.model;
        let unsaid = expected
            .as_ref()
            .is_err_and(|kind| is_unsaid(model, op, *kind));
        let much = match *op {
            Op::Kill { .. } => !self.stage.kills(),
            Op::NewPool { .. } => model.pools.keys().filter(|id| **id < 100).count() >= MOST_POOLS,
            Op::Clone { domain, buffer } => {
                matches!(model.hold(buffer, domain), Some(Hold::Shared { handles, .. }) if handles >= MOST_HANDLES)
            }
            // Messages would have to be taken to learn of the end.
            Op::Pass { channel, .. } | Op::Release { channel, .. } => {
                let c = &model.channels[&channel];
                c.ends[0] != EndState::Open && !c.queue.is_empty()
            }
            // An assignment ends with its pool's writer. One that is there stays after the channel.
            Op::Remove {
                domain,
                channel,
                pool,
            } => {
                let c = &model.channels[&channel];
                let hears_late = c.sink == domain && c.ends[0] != EndState::Open;
                !model.alive[usize::from(model.pools[&pool].writer)]
                    || (hears_late && !c.queue.is_empty())
            }
            Op::Assign { channel, .. } => model.channels[&channel].ends[1] != EndState::Open,
            Op::Inline { channel, .. }
            | Op::Send { channel, .. }
            | Op::Move { channel, .. }
            | Op::SendAll { channel, .. }
            | Op::MoveAll { channel, .. } => self.is_crowded(channel),
            _ => false,
        };
        unsaid || much
    }

    /// Whether the receiver might have no room for more.
    fn is_crowded(&self, channel: u8) -> bool {
        let model = &self.model;
        let c = &model.channels[&channel];
        let to = |other: &&tranship_model::Channel| other.sink == c.sink;
        let coming = model.channels.values().filter(to).flat_map(|c| &c.queue);
        let copied = |piece: &&Piece| match piece {
            Piece::Bytes(_) => true,
            Piece::Buffer(id) => !model.is_own(id.pool, c.sink),
        };
        let coming = coming.flat_map(|m| &m.pieces).filter(copied).count();
        let full = model.way == Way::Carried && c.queue.len() >= usize::from(c.lines);
        full || coming + model.in_use(copies_of(c.sink)) > MOST_COPIES
    }

    fn act(&self, op: &Op, expected: &Result<Outcome, ErrorKind>) -> Done {
        let told = expected.clone().map_err(ErrorKind::number);
        let order = match *op {
            Op::Remove { channel, pool, .. } => Order::Remove {
                channel,
                pool: self.pools[&pool],
                expected: told,
            },
            _ => Order::Do(op.clone(), told),
        };
        let answer = self.ask(op.domain(), order)?;
        let said = answer.said.ok_or("it says nothing")?;
        let wanted = match expected {
            Ok(Outcome::Done | Outcome::Buffer(_)) => Said::Done,
            Ok(Outcome::Nothing) => Said::Nothing,
            Ok(Outcome::Took(event)) => Said::Took(event.carries, event.buffers.len(), event.word),
            Ok(other) => return Err(format!("{other:?} is not asked for here")),
            // Both hold, and a send out of a pool of level `none` that another domain has is refused first.
            Err(ErrorKind::Full) if said.has_another_reader() => return Ok(()),
            Err(kind) => match said {
                Said::Error(number, _) if number == kind.number() => return Ok(()),
                _ => return Err(format!("expected {kind:?}, got {said:?}")),
            },
        };
        match said == wanted {
            true => Ok(()),
            false => Err(format!("expected {wanted:?}, got {said:?}")),
        }
    }

    fn connect(&self, op: &Op, expected: &Result<Outcome, ErrorKind>) -> Done {
        let (
            Op::Connect {
                domain,
                sink,
                lines,
                levels,
            },
            Ok(Outcome::Channel(channel)),
        ) = (op, expected)
        else {
            return Err("no channel".to_owned());
        };
        let (channel, lines, levels) = (*channel, *lines, levels.clone());
        let address = match self.ports[usize::from(*sink)] {
            Some(port) => format!(
                "tcp+plain:{port}/{}",
                self.run.rsplit(':').next().unwrap_or("")
            ),
            None => self.run.clone(),
        };
        let address = format!("{address}{channel}");
        let listen = Order::Listen {
            channel,
            address: address.clone(),
            lines,
            levels,
        };
        self.ask(*sink, listen)?;
        let open = Order::Open {
            channel,
            address,
            lines,
        };
        let seats = self.stage.seats().borrow();
        seats[usize::from(*domain)].send(open)?;
        let accepted = self.ask(*sink, Order::Accept(channel));
        seats[usize::from(*domain)].answer()?;
        accepted.map(drop)
    }

    /// Returns the model's number of the pool, and the library's.
    fn new_pool(
        &self,
        op: &Op,
        expected: &Result<Outcome, ErrorKind>,
    ) -> Result<(u8, u32), String> {
        let (
            Op::NewPool {
                domain,
                trust,
                slots,
                forward,
            },
            Ok(Outcome::Pool(pool)),
        ) = (op, expected)
        else {
            return Err("no pool".to_owned());
        };
        let others = match (*forward, self.model.way) {
            (true, Way::Shared) => self.ids.clone(),
            _ => Vec::new(),
        };
        let order = Order::NewPool {
            seals: self.stage.seals,
            pool: *pool,
            trust: *trust,
            slots: *slots,
            forward: others,
        };
        Ok((*pool, self.ask(*domain, order)?.pool))
    }

    /// Compares the buffers of each domain, their bytes, and the access to them.
    fn compare(&mut self) -> Done {
        self.real
            .retain(|id, _| self.model.buffers.contains_key(id));
        self.was
            .retain(|(_, id), _| self.model.buffers.contains_key(id));
        let held = |(domain, id): &(Domain, BufferId)| self.model.hold(*id, *domain).is_some();
        // The buffers that it had, and that others have.
        let gone = |domain: Domain| {
            let of = self
                .was
                .iter()
                .filter(move |(key, _)| key.0 == domain && !held(key));
            of.filter_map(|((_, id), at)| Some((*id, *at, self.model.permitted(*id, domain)?)))
                .collect::<Vec<_>>()
        };
        let addresses = |domain| gone(domain).into_iter().map(|(_, at, _)| at).collect();
        let answers = self.all(|domain| Order::Look(addresses(domain)))?;
        for (domain, answer) in &answers {
            for ((id, _, wanted), touched) in gone(*domain).iter().zip(&answer.touched) {
                if same(*wanted) != access(*touched) {
                    return Err(format!(
                        "{domain} had {id:?}, and touching it gives {:?}, expected {wanted:?}",
                        access(*touched)
                    ));
                }
            }
        }
        for (domain, answer) in answers {
            let wanted = self
                .model
                .buffers
                .iter()
                .filter(|(_, b)| b.holds.contains_key(&domain));
            let wanted: Vec<BufferId> = wanted.map(|(id, _)| *id).collect();
            let got: Vec<BufferId> = answer.here.iter().map(|here| here.id).collect();
            if wanted != got {
                return Err(format!("{domain} has {got:?}, expected {wanted:?}"));
            }
            for here in &answer.here {
                self.compare_one(domain, here)
                    .map_err(|what| format!("{:?} in {domain}: {what}", here.id))?;
            }
        }
        match self.stage.kills() && self.stage.is_step_of(LOOK_EVERY) {
            true => self.look_at_mappings(),
            false => Ok(()),
        }
    }

    fn compare_one(&mut self, domain: Domain, here: &Here) -> Done {
        let (id, model) = (here.id, &self.model);
        let shared = match model.hold(id, domain) {
            Some(Hold::Shared { handles, .. }) => usize::from(handles),
            _ => 0,
        };
        let may = model.access(id, domain);
        let writable = shared == 0 && may == Access::ReadWrite;
        if (here.shared, here.writable) != (shared, writable) {
            return Err(format!(
                "expected {shared} handles, writable: {writable}, got {here:?}"
            ));
        }
        let buffer = &model.buffers[&id];
        if here.data != Some(buffer.data) {
            return Err(format!(
                "expected {} in it, got {:?}",
                buffer.data, here.data
            ));
        }
        let permitted = model.permitted(id, domain);
        if permitted.is_some_and(|wanted| same(wanted) != access(here.access)) {
            return Err(format!(
                "touching it gives {:?}, expected {permitted:?}",
                access(here.access)
            ));
        }
        self.was.insert((domain, id), here.at);
        // The same id means the same bytes.
        let sent = model.buffers[&id].sent;
        match self.real.get(&id) {
            Some(real) if *real != here.real => {
                return Err(format!("it is known as {} and as {real}", here.real));
            }
            Some(_) => {}
            None if self.used.contains(&here.real) => {
                return Err(format!("{} was another buffer before", here.real));
            }
            None => drop(self.real.insert(id, here.real.clone())),
        }
        if sent {
            self.used.insert(here.real.clone());
        }
        Ok(())
    }

    /// Checks mappings. Memory that several processes may write, or could make writable, belongs to a pool of level
    /// `full` or `half`. All other shared memory has one writer at most.
    fn look_at_mappings(&self) -> Done {
        let mut writers: BTreeMap<(String, u64), BTreeSet<u32>> = BTreeMap::new();
        let seats = self.stage.seats().borrow();
        let pids = seats.iter().filter_map(crate::seat::Seat::pid);
        for pid in pids.chain([std::process::id()]) {
            let maps: Vec<Mapped> = mapped(&format!("/proc/{pid}/smaps"));
            for map in maps.into_iter().filter(|map| map.shared && map.may_write) {
                writers.entry(map.file).or_default().insert(pid);
            }
        }
        let two = |(file, pids): &(&(String, u64), &BTreeSet<u32>)| {
            pids.len() > 1 && !self.stage.may_all_write(file)
        };
        match writers.iter().find(two) {
            Some((file, pids)) => Err(format!("{pids:?} can all write {file:?}")),
            None => Ok(()),
        }
    }

    /// Ends the world: when everything is released, all of each pool can be allocated.
    pub fn end(self) -> Done {
        self.all(|_| Order::LetGo)?;
        for (_, answer) in self.all(|_| Order::Whole)? {
            self.stage.is_written_by_all(answer.files);
        }
        Ok(())
    }
}

fn same(access: Access) -> probe::Access {
    match access {
        Access::None => probe::Access::None,
        Access::Read => probe::Access::Read,
        Access::ReadWrite => probe::Access::ReadWrite,
    }
}

impl Does for World<'_> {
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
