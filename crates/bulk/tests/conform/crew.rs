//! A process for each domain: what one does the others are told, and each compares its own part with the model. A domain that is
//! to die is killed by SIGKILL.

use crate::mapped::{Mapped, mapped};
use crate::ops::DOMAINS;
use crate::world::{Done, Told, World};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tranship_bulk::Trust;
use tranship_bulk::backend::{Backend, Copying, Shm};
use tranship_bulk::spec::{Domain, Model, Op, PoolId};
use tranship_core::Domain as Manager;
use tranship_testkit::{Control, Peer, child};

/// Steps from one look at all mappings to the next.
const LOOK_EVERY: u32 = 20;

#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Begin {
        me: Domain,
        scheme: String,
        seal_from: u64,
        run: String,
    },
    Do(Op),
    See(Op, Told),
    /// Where its pools are.
    Pools,
    /// Turn everything for a while.
    Settle,
    End,
}

/// What an order is answered with.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    told: Told,
    pools: Vec<(PoolId, usize)>,
}

child!(
    fn domain(ctl: Control) {
        let mut world = None;
        while let Some(order) = ctl.recv().expect("an order") {
            let answer = obey(&mut world, order);
            ctl.send(&answer).expect("an answer");
        }
    }
);

fn obey(world: &mut Option<World>, order: Order) -> Result<Answer, String> {
    if let Order::Begin {
        me,
        scheme,
        seal_from,
        run,
    } = order
    {
        let backend: Arc<dyn Backend> = match scheme.as_str() {
            "shm" => Arc::new(Shm::default()),
            _ => Arc::new(Copying),
        };
        // The old one goes first.
        *world = None;
        *world = Some(World::part(me, &backend, seal_from, run));
        return Ok(Answer::default());
    }
    let world = world.as_mut().ok_or("no world")?;
    let mut answer = Answer::default();
    match order {
        Order::Do(op) => answer.told = world.step_here(&op)?,
        Order::See(op, told) => {
            world.step_elsewhere(&op, told);
            world.compare_after(&op)?;
        }
        Order::Pools => answer.pools = world.pools_here(),
        Order::Settle => world.settle_completions(),
        Order::End => world.completed()?,
        Order::Begin { .. } => {}
    }
    Ok(answer)
}

/// The processes, of which some may have been killed.
pub struct Crew {
    scheme: &'static str,
    socket: std::path::PathBuf,
    peers: Vec<Option<Peer>>,
    steps: u32,
}

impl Crew {
    pub fn new(scheme: &'static str, manager: &Manager) -> Crew {
        Crew {
            scheme,
            socket: manager.socket_path().expect("its socket").to_owned(),
            peers: (0..DOMAINS).map(|_| None).collect(),
            steps: 0,
        }
    }

    /// A new world, in the processes that there are and in new ones for those that were killed.
    pub fn begin(&mut self, run: &str, seal_from: u64) {
        for (me, place) in (0..).zip(&mut self.peers) {
            // One that has panicked is of no use.
            if place.as_ref().is_some_and(Peer::has_ended) {
                *place = None;
            }
            let peer = place.get_or_insert_with(|| {
                let launch = domain().env("TRANSHIP_SOCKET", &self.socket);
                launch.start().expect("start")
            });
            let begin = Order::Begin {
                me,
                scheme: self.scheme.into(),
                seal_from,
                run: run.into(),
            };
            let begun: Result<Answer, String> = peer.ask(&begin);
            begun.expect("a new world");
        }
    }

    /// All that live do it at the same time.
    fn all(&self, except: Option<Domain>, order: &Order) -> Result<Vec<(Domain, Answer)>, String> {
        let peers = || (0..).zip(&self.peers).filter(|(me, _)| Some(*me) != except);
        for (_, peer) in peers() {
            if let Some(peer) = peer {
                peer.send(order).map_err(|e| e.to_string())?;
            }
        }
        let mut answers = Vec::new();
        for (me, peer) in peers() {
            if let Some(peer) = peer {
                let answer: Result<Answer, String> = peer.expect();
                answers.push((me, answer));
            }
        }
        let each = answers.into_iter();
        each.map(|(me, answer)| Ok((me, answer.map_err(|e| format!("process {me}: {e}"))?)))
            .collect()
    }

    pub fn step(&mut self, op: &Op) -> Result<Told, String> {
        let me = op.domain();
        let place = &mut self.peers[usize::from(me)];
        let told = match (op, &place) {
            (Op::Kill { .. }, Some(peer)) => {
                peer.kill();
                *place = None;
                Told::default()
            }
            (_, Some(peer)) => {
                let answer: Result<Answer, String> = peer.ask(&Order::Do(op.clone()));
                answer.map_err(|e| format!("process {me}: {e}"))?.told
            }
            (_, None) => return Err(format!("process {me} is dead")),
        };
        self.all(Some(me), &Order::See(op.clone(), told))?;
        Ok(told)
    }

    /// Now and then, looks at every mapping of every process.
    pub fn look(&mut self, model: &Model) -> Done {
        self.steps += 1;
        match self.steps.is_multiple_of(LOOK_EVERY) {
            true => self.look_at_all(model),
            false => Ok(()),
        }
    }

    /// What several processes may write is memory of pools of which all have agreed that they may (`full`, `half`); everything
    /// else that is shared, whatever it is for, has one writer at most. What a process could give itself counts as what it has.
    fn look_at_all(&self, model: &Model) -> Done {
        let mut shared = BTreeSet::new();
        let mut writers: BTreeMap<(String, u64), BTreeSet<u32>> = BTreeMap::new();
        let mut all: Vec<(u32, Vec<Mapped>)> =
            vec![(std::process::id(), mapped(std::process::id()))];
        for (me, answer) in self.all(None, &Order::Pools)? {
            let peer = self.peers[usize::from(me)].as_ref().ok_or("it is dead")?;
            let maps = mapped(peer.pid());
            for (id, address) in answer.pools {
                let level = model.pools.get(&id).and_then(|pool| pool.trust);
                let map = maps.iter().find(|map| map.range.contains(&address));
                if let (Some(Trust::Full | Trust::Half), Some(map)) = (level, map) {
                    shared.insert(map.file.clone());
                }
            }
            all.push((peer.pid(), maps));
        }
        for (pid, maps) in all {
            for map in maps.into_iter().filter(|map| map.shared && map.may_write) {
                writers.entry(map.file).or_default().insert(pid);
            }
        }
        let two = |(file, pids): &(&(String, u64), &BTreeSet<u32>)| {
            pids.len() > 1 && !shared.contains(*file)
        };
        match writers.iter().find(two) {
            Some((file, pids)) => Err(format!("{pids:?} can all write {file:?}")),
            None => Ok(()),
        }
    }

    pub fn end(&mut self, model: &Model) -> Done {
        self.look_at_all(model)?;
        self.all(None, &Order::Settle)?;
        self.all(None, &Order::End).map(|_| ())
    }
}
