//! A process for each domain: what one does the others are told, and each compares its own part with the model. A domain that is
//! to die is killed by SIGKILL.

use crate::apart::{Apart, Credentials};
use crate::mapped::{Mapped, mapped};
use crate::states::Limits;
use crate::world::{Begin, Done, Told, World};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use tranship_bulk::Shm;
use tranship_bulk::Trust;
use tranship_bulk::spec::{Domain, Model, Op, PoolId};
use tranship_core::Domain as Manager;
use tranship_testkit::{Control, Peer, child};
use tranship_transport::{Backend, Copying};

#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Once, with credentials for a network that asks for them.
    Join(Domain, String, Option<Credentials>),
    /// And where each process listens.
    Begin(Begin, Vec<Option<SocketAddr>>),
    Do(Op),
    See(Op, Told),
    /// Try what must not be possible.
    Refuse(Limits),
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
    listens: Option<SocketAddr>,
}

/// What a process is.
#[derive(Default)]
struct It {
    me: Domain,
    backend: Option<Arc<dyn Backend>>,
    net: Option<Arc<Apart>>,
    world: Option<World>,
}

child!(
    fn domain(ctl: Control) {
        let mut it = It::default();
        while let Some(order) = ctl.recv().expect("an order") {
            let answer = it.obey(order);
            ctl.send(&answer).expect("an answer");
        }
    }
);

impl It {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        let mut answer = Answer::default();
        match order {
            Order::Join(me, scheme, credentials) => {
                self.me = me;
                self.backend = Some(match scheme.as_str() {
                    "shm" => Arc::new(Shm::default()),
                    "copy" => Arc::new(Copying),
                    _ => {
                        let net = Arc::new(Apart::new(credentials));
                        answer.listens = Some(net.at);
                        self.net = Some(Arc::clone(&net));
                        net
                    }
                });
                return Ok(answer);
            }
            Order::Begin(begin, places) => {
                // The old one goes first.
                self.world = None;
                if let Some(net) = &self.net {
                    net.others_are_at(places);
                }
                let backend = self.backend.as_ref().ok_or("not joined")?;
                self.world = Some(World::part(self.me, backend, &begin));
                return Ok(answer);
            }
            _ => {}
        }
        let world = self.world.as_mut().ok_or("no world")?;
        match order {
            Order::Do(op) => answer.told = world.step_here(&op)?,
            Order::See(op, told) => {
                world.step_elsewhere(&op, told);
                world.compare_after(&op)?;
            }
            Order::Refuse(limits) => world.refuses(&limits)?,
            Order::Pools => answer.pools = world.pools_here(),
            Order::Settle => world.settle_completions(),
            Order::End => world.completed()?,
            Order::Join(..) | Order::Begin(..) => {}
        }
        Ok(answer)
    }
}

/// The processes, of which some may have been killed.
pub struct Crew {
    scheme: &'static str,
    socket: std::path::PathBuf,
    credentials: Option<Credentials>,
    peers: Vec<Option<Peer>>,
    /// Where each listens.
    places: Vec<Option<SocketAddr>>,
    steps: u32,
    /// Steps from one look at all mappings to the next.
    look_every: u32,
}

impl Crew {
    pub fn new(scheme: &'static str, manager: &Manager, domains: u8, look_every: u32) -> Crew {
        Crew {
            scheme,
            socket: manager.socket_path().expect("its socket").to_owned(),
            credentials: (scheme == "tcp").then(Credentials::new),
            peers: (0..domains).map(|_| None).collect(),
            places: (0..domains).map(|_| None).collect(),
            steps: 0,
            look_every,
        }
    }

    /// A new world, in the processes that there are and in new ones for those that were killed; says how many there are.
    pub fn begin(&mut self, run: &str, seal_from: u64) -> u8 {
        for (me, (place, at)) in (0..).zip(self.peers.iter_mut().zip(&mut self.places)) {
            // One that has panicked is of no use.
            if place.as_ref().is_some_and(Peer::has_ended) {
                *place = None;
            }
            if place.is_none() {
                let launch = domain().env("TRANSHIP_SOCKET", &self.socket);
                let peer = launch.start().expect("start");
                let join = Order::Join(me, self.scheme.into(), self.credentials.clone());
                let joined: Result<Answer, String> = peer.ask(&join);
                *at = joined.expect("joined").listens;
                *place = Some(peer);
            }
        }
        let domains = u8::try_from(self.peers.len()).unwrap_or(u8::MAX);
        let begin = Begin {
            domains,
            seal_from,
            run: run.into(),
            late: self.scheme.starts_with("tcp"),
        };
        let begun = self.all(None, &Order::Begin(begin, self.places.clone()));
        begun.expect("a new world");
        domains
    }

    /// All try what must not be possible.
    pub fn refuse(&self, limits: &Limits) -> Done {
        self.all(None, &Order::Refuse(*limits)).map(|_| ())
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
        match self.steps.is_multiple_of(self.look_every) {
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
