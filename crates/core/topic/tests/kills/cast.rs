//! The processes: manager, publisher, subscriber.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;
use tranship_core::admin::StatRecord;
use tranship_core::error::Refusal;
use tranship_core::{Buffer, Domain, Error, ErrorKind, PoolOptions, Wait};
use tranship_manager::{Config, Listener, PressureConfig, Shutdown};
use tranship_testkit::{Control, Random, child, is_root, payload};
use tranship_topic::{SubscriberOptions, TopicOptions, Topics, WhenBehind};

pub const TOPIC: &str = "camera";
/// The whole memory: what is not given back is soon missed. Many subscribers keep more.
pub const TOTAL: u64 = 8 << 20;
pub const TOTAL_OF_MANY: u64 = 128 << 20;
/// Buffers that a subscriber keeps beside the 12 of its desk.
const KEEP: u32 = 8;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    pub socket: PathBuf,
    /// Different for each process.
    pub incarnation: u64,
    pub seed: u64,
    /// The whole memory.
    pub total: u64,
    /// There are many parties: each looks at its orders less often, and messages are short and few. Otherwise the checks
    /// of the messages take the processors from those that start.
    pub many: bool,
}

impl Start {
    /// Returns the longest wait of a party before it looks at its orders.
    fn round(&self) -> Duration {
        Duration::from_millis(if self.many { 200 } else { 2 })
    }

    /// Returns the length of the longest message, bytes.
    fn longest(&self) -> u64 {
        if self.many { 400 } else { 20_000 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Answer when so many more messages have come, or gone.
    Advance(u64),
    /// The publisher: answer when it knows of so many subscribers, and of nothing that others hold.
    Alone(usize),
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done;

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
            ctl,
            start,
            domain,
            count: 0,
            goal: None,
        })
    }

    /// Takes orders; returns one that is the party's own.
    fn orders(&mut self) -> Result<Option<Order>, Broken> {
        if self.goal.is_some_and(|goal| self.count >= goal) {
            self.goal = None;
            self.ctl.send(&Done).map_err(broken)?;
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
            total: Some(start.total),
            default_quota: Some(start.total),
            orphan_interval: Duration::from_millis(20),
            // A machine that is short of memory elsewhere decides nothing here.
            pressure: PressureConfig {
                watch: false,
                ..PressureConfig::default()
            },
            ..Config::default()
        };
        let listener = Listener::bind(&start.socket, 0o600).map_err(broken)?;
        ctl.send(&Done).map_err(broken)?;
        let stop = Shutdown::new().map_err(broken)?;
        let on_order = stop.clone();
        std::thread::spawn(move || {
            let _ = ctl.recv::<()>();
            let _ = on_order.stop();
        });
        tranship_manager::run(config, listener, &stop, is_root()).map_err(broken)
    }
);

child!(
    pub fn publisher(ctl: Control) -> Result<(), Broken> {
        let mut party = Party::new(ctl, "publisher")?;
        let waits = WhenBehind::Wait(Duration::from_millis(1));
        let pool = PoolOptions::new(party.start.total).slots(8192).name(TOPIC);
        let options = TopicOptions::new()
            .depth(32)
            .keep(KEEP)
            .when_behind(waits)
            .pool(pool);
        let mut publisher = loop {
            match party.domain.publish_with(TOPIC, options.clone()) {
                Ok(publisher) => break publisher,
                Err(e) => bearable(&e)?,
            }
            if let Some(Order::Quit) = party.orders()? {
                return Ok(());
            }
        };
        party.ctl.send(&Done).map_err(broken)?;
        let mut alone = None;
        loop {
            match party.orders()? {
                Some(Order::Quit) => return Ok(()),
                Some(Order::Alone(count)) => alone = Some(count),
                _ => {}
            }
            if let Some(count) = alone {
                publisher.tend().map_err(broken)?;
                if publisher.subscribers() == count && publisher.status().subscribers.len() == count
                {
                    alone = None;
                    party.ctl.send(&Done).map_err(broken)?;
                }
            }
            let longest = party.start.longest();
            let len = usize::try_from(1 + party.random.below(longest)).map_err(broken)?;
            let mut frame = match publisher.alloc_timeout(len, party.start.round()) {
                Ok(frame) => frame,
                Err(e) => {
                    bearable(&e)?;
                    continue;
                }
            };
            party.count += 1;
            let id = party.start.incarnation << 32 | party.count;
            payload::fill(&mut frame, id, party.start.seed);
            publisher.send((frame, id)).map_err(broken)?;
            if party.start.many {
                // No wait for something: the messages are few.
                std::thread::sleep(Duration::from_millis(10));
            } else if party.random.one_in(16) {
                // Subscribers find nothing, and sleep.
                party.random.instant(party.start.round());
            }
        }
    }
);

fn verify(buffer: &Buffer, id: u64, seed: u64) -> Result<(), Broken> {
    payload::verify_seed(&buffer.to_vec(), id, seed).map_err(broken)
}

child!(
    pub fn subscriber(ctl: Control) -> Result<(), Broken> {
        let mut party = Party::new(ctl, "subscriber")?;
        let mut options = SubscriberOptions::new().wait(Wait::SpinThenSleep(20));
        if party.random.one_in(2) {
            options = options.reliable();
        }
        let mut subscriber = party
            .domain
            .subscribe_with(TOPIC, options.clone())
            .map_err(broken)?;
        party.ctl.send(&Done).map_err(broken)?;
        let mut kept: VecDeque<(u64, Buffer)> = VecDeque::new();
        let mut last = 0;
        loop {
            if let Some(Order::Quit) = party.orders()? {
                return Ok(());
            }
            // Drops in any order.
            while kept.len() > 18 || !kept.is_empty() && party.random.one_in(3) {
                let at = usize::try_from(party.random.below(kept.len() as u64)).map_err(broken)?;
                if let Some((id, buffer)) = kept.swap_remove_back(at) {
                    verify(&buffer, id, party.start.seed)?;
                }
            }
            match subscriber.recv_timeout(party.start.round()) {
                Ok(message) => {
                    let id = message.word;
                    if id >> 32 == last >> 32 && id <= last {
                        return Err(format!("{id:#x} after {last:#x}"));
                    }
                    last = id;
                    party.count += 1;
                    let tranship_core::Body::Buffer(buffer) = message.body else {
                        return Err("no buffer".into());
                    };
                    verify(&buffer, id, party.start.seed)?;
                    if party.random.one_in(2) {
                        kept.push_back((id, buffer));
                    }
                }
                Err(e) if e == ErrorKind::Limit => kept.clear(),
                Err(e) => bearable(&e)?,
            }
            if party.random.one_in(500) {
                // Leaves with what it keeps, and comes back.
                subscriber = party
                    .domain
                    .subscribe_with(TOPIC, options.clone())
                    .map_err(broken)?;
            }
        }
    }
);

/// Messages that `burst` publishes: fewer than its ring has lines.
pub const BURST: u64 = 10;

child!(
    /// Publishes a few messages once it has a subscriber, says so, and ends when it is told to, if it is not killed.
    pub fn burst(ctl: Control) -> Result<(), Broken> {
        let party = Party::new(ctl, "burst")?;
        let mut publisher = party.domain.publish(TOPIC).map_err(broken)?;
        party.ctl.send(&Done).map_err(broken)?;
        publisher.wait_for(1, None).map_err(broken)?;
        party.ctl.recv::<Order>().map_err(broken)?;
        for id in 1..=BURST {
            let mut frame = publisher.alloc(10_000).map_err(broken)?;
            payload::fill(&mut frame, id, party.start.seed);
            publisher.send((frame, id)).map_err(broken)?;
        }
        party.ctl.send(&Done).map_err(broken)?;
        party.ctl.recv::<Order>().map_err(broken).map(drop)
    }
);

child!(
    /// Looks at the manager's books from outside: answers when there is nothing but itself.
    pub fn guest(ctl: Control) -> Result<(), Broken> {
        let party = Party::new(ctl, "guest")?;
        loop {
            let books = party.domain.admin().stat().map_err(broken)?;
            let others = books.iter().filter(|record| match record {
                StatRecord::Manager(_) => false,
                StatRecord::Domain(domain) => domain.domain != party.domain.id(),
                _ => true,
            });
            if others.count() == 0 {
                return party.ctl.send(&Done).map_err(broken);
            }
            // No wait for something: a pause between two questions, so that the manager has time for the others.
            std::thread::sleep(party.start.round());
        }
    }
);
