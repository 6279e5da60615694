//! A stage in a process of its own.

use crate::lane::{Got, In, Out, Unsent};
use crate::os;
use crate::stage::{Outs, Stage, To};
use crate::word::Word;
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};
use tranship::component::{Component, Part};
use tranship::{Domain, PollItem, Pool, PoolOptions, poll};

/// Messages that may be under way on a channel whose file does not say.
const LINES: u32 = 1024;
/// Time between two looks at components that may have died with messages that they had not taken.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two looks for components that have died or come.
const AWAY: Duration = Duration::from_millis(100);

/// A component's ends and memory.
#[derive(Debug)]
pub struct Ends {
    me: To,
    /// The process, to the manager.
    pub domain: Domain,
    /// Memory for what it sends.
    pub pool: Pool,
    /// What it sends.
    pub outs: Vec<Out>,
    /// What it receives.
    pub ins: Vec<In>,
}

impl Ends {
    /// Joins the program as its component `me`: `FROM-TO` is the channel between two components.
    ///
    /// # Errors
    /// Those of [`Component::connect`]; channels of other names.
    pub fn connect(me: To) -> Result<Ends> {
        let component = Component::connect()?;
        let domain = component.domain().clone();
        let brief = component.brief();
        let sizes = brief.ends.values().filter(|end| end.part == Part::Send);
        let bytes = sizes.filter_map(|end| end.pool).max().unwrap_or(64 << 20);
        let options = PoolOptions::new(bytes).name(&brief.name);
        let slots = u32::try_from(bytes >> 10)
            .unwrap_or(u32::MAX)
            .clamp(4096, 1 << 16);
        // Requests are read by one component after the other.
        let pool = domain.create_pool(options.slots(slots).allow_forward(true))?;
        let (mut outs, mut ins) = (Vec::new(), Vec::new());
        for (local, end) in &brief.ends {
            let names = local.split_once('-');
            let names = names.and_then(|(from, to)| To::of(from).zip(To::of(to)));
            let lines = end.depth.unwrap_or(LINES);
            match (names, end.part) {
                (Some((from, to)), Part::Send) if from == me => {
                    let keeps = matches!(to, To::Dynamic | To::Static | To::Fastcgi);
                    // The front meets all before it takes a connection; the rest is on no request's path.
                    let beside = to == To::Cache && me != To::Route;
                    let awaited = !beside && !matches!(to, To::Front | To::Log);
                    outs.push(Out::listen(&domain, &end.name, to, lines, awaited, keeps)?);
                }
                (Some((from, to)), Part::Receive) if to == me => {
                    ins.push(In::new(&domain, &end.name, from, lines));
                }
                _ => bail!(
                    "end `{local}` of component `{}`: names are FROM-TO, of a channel, and one is {}",
                    brief.name,
                    me.name()
                ),
            }
        }
        component.ready()?;
        os::run_in_batches();
        Ok(Ends {
            me,
            domain,
            pool,
            outs,
            ins,
        })
    }

    /// Says whether the program's file has a channel to a component.
    #[must_use]
    pub fn has(&self, to: To) -> bool {
        self.outs.iter().any(|out| out.to == to)
    }

    /// Connects to components that have come, or come again. Says whether all are there.
    pub fn look(&mut self) -> bool {
        for end in &mut self.ins {
            end.look();
        }
        for out in &mut self.outs {
            out.look(&self.pool);
        }
        self.ins.iter().all(In::is_there) && self.outs.iter().all(Out::is_there)
    }

    /// Waits for news of the manager, at most that long.
    pub fn wait(&self, most: Duration) {
        let mut item = [PollItem::domain(&self.domain)];
        // A look comes anyway.
        let _ = poll(&mut item, Some(most));
        let _ = self.domain.turn();
    }

    /// Waits until all other components are there.
    pub fn meet(&mut self) {
        while !self.look() {
            self.wait(LOOK);
        }
    }

    /// Sends what a stage has for others. A request that cannot be sent is answered.
    pub fn flush(&mut self, waiting: &mut Outs) {
        for (to, word, body) in waiting.0.drain(..) {
            let sent = send(&mut self.outs, &self.pool, to, word, body);
            let Err(why) = sent else { continue };
            // Nobody waits for what the log and the cache miss.
            if matches!(to, To::Front | To::Log) || to == To::Cache && self.me != To::Route {
                continue;
            }
            let status = match why {
                Unsent::Gone => 502,
                Unsent::Full => 503,
            };
            let nothing = crate::stage::nothing();
            let _ = send(
                &mut self.outs,
                &self.pool,
                To::Front,
                word.with_status(status),
                nothing,
            );
        }
    }
}

fn send(
    outs: &mut [Out],
    pool: &Pool,
    to: To,
    word: Word,
    body: tranship::Body,
) -> Result<(), Unsent> {
    let out = outs.iter_mut().find(|out| out.to == to);
    out.ok_or(Unsent::Gone)?.send(pool, word, body)
}

/// Runs a stage as a component of the program, until it is stopped. Components of one's own with handlers call it as
/// `dynamic`.
///
/// # Errors
/// Those of [`Component::connect`]; what `make` fails with.
pub fn serve<S: Stage>(name: &str, make: impl FnOnce(&Ends) -> Result<S>) -> Result<()> {
    let me = To::of(name).with_context(|| format!("no component `{name}`"))?;
    let mut ends = Ends::connect(me)?;
    let mut stage = make(&ends)?;
    // The end that is slept on. What comes over the others is looked at with it.
    let first = |from: To| match (me, from) {
        (To::Cache, To::Dynamic | To::Fastcgi) | (To::Log, To::Guard) => 1,
        _ => 0,
    };
    ends.ins.sort_by_key(|end| first(end.from));
    if ends.ins.iter().filter(|end| first(end.from) == 0).count() != 1 {
        bail!("component `{name}` receives requests from one other component");
    }
    let mut waiting = Outs::default();
    let (mut quiet, mut looked) = (true, Instant::now());
    loop {
        let mut any = true;
        while any {
            any = false;
            // The last first: what is to be kept, before who asks for it.
            for end in ends.ins.iter_mut().rev() {
                if let Got::Message(word, body) = end.take() {
                    any = true;
                    stage.take(end.from, word, body, &mut waiting);
                }
            }
            ends.flush(&mut waiting);
        }
        let mut most = stage.idle(&mut waiting);
        ends.flush(&mut waiting);
        // Deaths show by system calls: they are looked for now and then, and not after each message.
        if quiet || looked.elapsed() >= AWAY {
            looked = Instant::now();
            ends.look();
        }
        most = Some(most.map_or(AWAY, |most| most.min(AWAY)));
        if ends.outs.iter().any(Out::has_kept) {
            most = Some(most.map_or(LOOK, |most| most.min(LOOK)));
        }
        quiet = true;
        if !ends.ins[0].is_there() {
            ends.wait(most.unwrap_or(AWAY));
        } else if let Got::Message(word, body) = ends.ins[0].recv(most) {
            quiet = false;
            // What came before it.
            for end in &mut ends.ins[1..] {
                while let Got::Message(word, body) = end.take() {
                    stage.take(end.from, word, body, &mut waiting);
                }
            }
            stage.take(ends.ins[0].from, word, body, &mut waiting);
            ends.flush(&mut waiting);
        }
    }
}
