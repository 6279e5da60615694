//! The processes: manager, producer, consumer.

use crate::log::{Fate, Log};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;
use tranship_core::admin::StatRecord;
use tranship_core::error::Refusal;
use tranship_core::{Body, Domain, Error, ErrorKind, Message, PoolOptions, Wait};
use tranship_manager::{Config, Listener, PressureConfig, Shutdown};
use tranship_queue::{Cause, ConsumerOptions, Producer, QueueOptions, Queues, WhenLost};
use tranship_testkit::{Control, Random, child, is_root, payload};

pub const QUEUE: &str = "jobs";
/// The whole memory: what is not given back is soon missed.
const TOTAL: u64 = 16 << 20;
const LONGEST: u64 = 20_000;
/// Buffers that a consumer keeps beside the 12 of its desk.
const KEEP: u32 = 8;
const ROUND: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    pub socket: PathBuf,
    pub log: PathBuf,
    /// Different for each process.
    pub incarnation: u64,
    pub seed: u64,
    /// A producer reports what is lost.
    pub reports: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Answer when so many more items have come, or gone.
    Advance(u64),
    /// The producer: send no more, and answer when all are done with.
    Finish,
    /// The producer: answer when its items are done, or when it waits in vain for that.
    Hung,
    Quit,
}

/// An answer: how many items have come, or gone, and a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done(pub u64, pub String);

type Broken = String;

fn broken(e: impl std::fmt::Display) -> Broken {
    e.to_string()
}

/// A manager or peer that goes away is part of the game.
fn bearable(e: &Error) -> Result<(), Broken> {
    let gone = [libc::EPIPE, libc::ECONNRESET, libc::ECONNREFUSED];
    match e.kind() {
        ErrorKind::ManagerAway
        | ErrorKind::NoManager
        | ErrorKind::TimedOut
        | ErrorKind::OutOfMemory
        | ErrorKind::PeerGone
        | ErrorKind::PeerDied => Ok(()),
        ErrorKind::System if gone.contains(&e.errno()) => Ok(()),
        _ if e.find::<Refusal>().is_some() => Ok(()),
        _ => Err(format!("{e} ({e:?})")),
    }
}

/// Common steps of every party.
struct Party {
    ctl: Control,
    start: Start,
    log: Log,
    domain: Domain,
    random: Random,
    count: u64,
    goal: Option<u64>,
}

impl Party {
    fn new(ctl: Control, name: &str) -> Result<Party, Broken> {
        let start: Start = ctl.recv().map_err(broken)?.ok_or("no start")?;
        let domain = loop {
            match Domain::builder().name(name).socket(&start.socket).connect() {
                Ok(domain) => break domain,
                Err(e) => bearable(&e)?,
            }
            std::thread::yield_now();
        };
        Ok(Party {
            random: Random::seeded(start.seed ^ start.incarnation),
            log: Log::open(&start.log).map_err(broken)?,
            ctl,
            start,
            domain,
            count: 0,
            goal: None,
        })
    }

    fn done(&mut self) -> Result<(), Broken> {
        let done = Done(self.count, String::new());
        self.ctl.send(&done).map_err(broken)
    }

    /// Takes orders; returns one that is the party's own.
    fn orders(&mut self) -> Result<Option<Order>, Broken> {
        if self.goal.is_some_and(|goal| self.count >= goal) {
            self.goal = None;
            self.done()?;
        }
        if !self.ctl.is_ready() {
            return Ok(None);
        }
        match self.ctl.recv::<Order>().map_err(broken)? {
            None => Ok(Some(Order::Quit)),
            Some(Order::Advance(n)) => {
                self.goal = Some(self.count + n);
                Ok(None)
            }
            other => Ok(other),
        }
    }
}

child!(
    pub fn manager(ctl: Control) -> Result<(), Broken> {
        let start: Start = ctl.recv().map_err(broken)?.ok_or("no start")?;
        let config = Config {
            total: Some(TOTAL),
            default_quota: Some(TOTAL / 2),
            orphan_interval: Duration::from_millis(20),
            // A machine that is short of memory elsewhere decides nothing here.
            pressure: PressureConfig {
                watch: false,
                ..PressureConfig::default()
            },
            ..Config::default()
        };
        let listener = Listener::bind(&start.socket, 0o600).map_err(broken)?;
        ctl.send(&Done(0, String::new())).map_err(broken)?;
        let stop = Shutdown::new().map_err(broken)?;
        let on_order = stop.clone();
        std::thread::spawn(move || {
            let _ = ctl.recv::<()>();
            let _ = on_order.stop();
        });
        tranship_manager::run(config, listener, &stop, is_root()).map_err(broken)
    }
);

/// Writes down what is lost.
fn lost(party: &mut Party, producer: &mut Producer) -> Result<(), Broken> {
    while let Some(lost) = producer.take_lost() {
        let id = lost.message.word;
        verify(&lost.message, id, party.start.seed)?;
        if lost.cause == Cause::Ended && !party.start.reports {
            return Err(format!("{id:#x} is reported, and should be given back"));
        }
        party.log.say(id, Fate::Lost).map_err(broken)?;
    }
    Ok(())
}

child!(
    pub fn producer(ctl: Control) -> Result<(), Broken> {
        let mut party = Party::new(ctl, "producer")?;
        let pool = PoolOptions::new(TOTAL / 4).slots(1024).name(QUEUE);
        let when_lost = match party.start.reports {
            true => WhenLost::Report,
            false => WhenLost::GiveBack,
        };
        let options = QueueOptions::new()
            .depth(16)
            .keep(KEEP)
            .when_lost(when_lost)
            .pool(pool);
        let mut producer = loop {
            match party.domain.produce_with(QUEUE, options.clone()) {
                Ok(producer) => break producer,
                Err(e) => bearable(&e)?,
            }
            if let Some(Order::Quit) = party.orders()? {
                return Ok(());
            }
        };
        party.done()?;
        let mut finishes = false;
        loop {
            lost(&mut party, &mut producer)?;
            match party.orders()? {
                Some(Order::Quit) => return Ok(()),
                Some(Order::Finish) => finishes = true,
                Some(Order::Hung) => loop {
                    match producer.wait_done(ROUND) {
                        Err(e) if e.to_string().contains("items open") => {
                            let done = Done(party.count, e.to_string());
                            party.ctl.send(&done).map_err(broken)?;
                            break;
                        }
                        Err(e) => bearable(&e)?,
                        Ok(()) => {
                            party.done()?;
                            break;
                        }
                    }
                },
                _ => {}
            }
            if finishes {
                match producer.wait_done(ROUND) {
                    Ok(()) => {
                        lost(&mut party, &mut producer)?;
                        party.done()?;
                        // Nothing more is sent.
                        while !matches!(party.orders()?, Some(Order::Quit)) {
                            producer.tend().map_err(broken)?;
                            std::thread::sleep(ROUND);
                        }
                        return Ok(());
                    }
                    Err(e) => bearable(&e)?,
                }
                continue;
            }
            let len = usize::try_from(1 + party.random.below(LONGEST)).map_err(broken)?;
            let mut job = match producer.alloc_timeout(len, ROUND) {
                Ok(job) => job,
                Err(e) => {
                    bearable(&e)?;
                    continue;
                }
            };
            let id = party.start.incarnation << 32 | (party.count + 1);
            payload::fill(&mut job, id, party.start.seed);
            match producer.send_timeout((job, id), ROUND) {
                Ok(()) => party.count += 1,
                Err(e) => bearable(&e.error)?,
            }
            if party.random.one_in(16) {
                // Consumers find nothing, and sleep.
                party.random.instant(ROUND);
            }
        }
    }
);

fn verify(message: &Message, id: u64, seed: u64) -> Result<(), Broken> {
    payload::verify_seed(&message.to_vec(), id, seed).map_err(broken)
}

child!(
    pub fn consumer(ctl: Control) -> Result<(), Broken> {
        let mut party = Party::new(ctl, "consumer")?;
        let options = ConsumerOptions::new().wait(Wait::SpinThenSleep(20));
        let mut consumer = party
            .domain
            .consume_with(QUEUE, options.clone())
            .map_err(broken)?;
        party.done()?;
        let mut kept: VecDeque<Message> = VecDeque::new();
        let mut open = VecDeque::new();
        loop {
            if let Some(Order::Quit) = party.orders()? {
                return Ok(());
            }
            // Drops in any order.
            while kept.len() > 18 || !kept.is_empty() && party.random.one_in(3) {
                let at = usize::try_from(party.random.below(kept.len() as u64)).map_err(broken)?;
                if let Some(message) = kept.swap_remove_back(at) {
                    verify(&message, message.word, party.start.seed)?;
                }
            }
            match consumer.recv_timeout(ROUND) {
                Ok(item) => {
                    let fate = match item.redelivered() {
                        true => Fate::CameAgain,
                        false => Fate::Came,
                    };
                    verify(&item, item.word, party.start.seed)?;
                    party.count += 1;
                    match party.random.below(40) {
                        0 => {
                            party.log.say(item.word, Fate::Rejected).map_err(broken)?;
                            item.reject();
                        }
                        1 if !item.redelivered() => item.requeue(),
                        _ => {
                            party.log.say(item.word, fate).map_err(broken)?;
                            open.push_back(item);
                        }
                    }
                }
                Err(e) if e == ErrorKind::Limit => kept.clear(),
                Err(e) => bearable(&e)?,
            }
            while open.len() > 3 || !open.is_empty() && party.random.one_in(2) {
                let item = open.pop_front().ok_or("there is one")?;
                party.log.say(item.word, Fate::Acking).map_err(broken)?;
                match item.ack() {
                    Ok(message) if matches!(message.body, Body::Buffer(_)) => {
                        party.log.say(message.word, Fate::Acked).map_err(broken)?;
                        if party.random.one_in(2) {
                            kept.push_back(message);
                        }
                    }
                    Ok(_) => return Err("no buffer".into()),
                    Err(e) => bearable(&e)?,
                }
            }
            if party.random.one_in(500) {
                // Leaves with what it keeps, and comes back.
                open.clear();
                consumer = party
                    .domain
                    .consume_with(QUEUE, options.clone())
                    .map_err(broken)?;
            }
        }
    }
);

child!(
    /// Takes one item, says so, and waits to be stopped.
    pub fn keeper(ctl: Control) -> Result<(), Broken> {
        let mut party = Party::new(ctl, "keeper")?;
        let mut consumer = party.domain.consume(QUEUE).map_err(broken)?;
        let item = consumer.recv().map_err(broken)?;
        party.count = item.word;
        party.done()?;
        let _ = party.ctl.recv::<Order>();
        Err("nobody has killed it".into())
    }
);

child!(
    /// Looks at the manager's books from outside: answers when there is nothing but itself.
    pub fn guest(ctl: Control) -> Result<(), Broken> {
        let mut party = Party::new(ctl, "guest")?;
        loop {
            let books = party.domain.admin().stat().map_err(broken)?;
            let others = books.iter().filter(|record| match record {
                StatRecord::Manager(_) => false,
                StatRecord::Domain(domain) => domain.domain != party.domain.id(),
                _ => true,
            });
            if others.count() == 0 {
                return party.done();
            }
            // No wait for something: a pause between two questions, so that the manager has time for the others.
            std::thread::sleep(ROUND);
        }
    }
);
