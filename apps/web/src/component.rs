//! A stage in a process of its own.

use crate::lane::{Away, In, Out, Unsent};
use crate::os;
use crate::stage::{Outs, Stage, To, nothing};
use crate::word::Word;
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use tranship::component::{Component, Part};
use tranship::{Body, Domain, Message, Pool, PoolOptions};

/// Messages that may be under way on a channel whose file does not say.
const LINES: u32 = 1024;
/// Time for which a component sleeps on the channel of its requests alone, while messages have been coming.
const BRIEF: Duration = Duration::from_millis(20);
/// Time between two looks for components that have died or come, while messages come; and whether what was sent was taken.
const LOOK: Duration = Duration::from_millis(100);
/// Messages that are taken between two looks at the clock.
const MESSAGES: usize = 32;
/// Bytes of replies after which the front gets a turn: it sends them while the processor's cache still has them.
const TURN: usize = 512 << 10;
/// Time for which a component without work goes on looking, so that memory goes back. Then it sleeps until there is news.
pub(crate) const REST: Duration = Duration::from_secs(3);

/// A component's ends and memory.
#[derive(Debug)]
pub struct Ends {
    me: To,
    /// The process, to the manager.
    pub domain: Domain,
    /// Memory for what it sends.
    pub pool: Pool,
    /// What it sends; the end to the front is the first.
    pub outs: Vec<Out>,
    /// What it receives.
    pub ins: Vec<In>,
    /// The last look for components that have ended or come.
    looked: Instant,
    /// Room for what a flush sends.
    flushing: Outs,
    /// Bytes of replies since the front's last turn.
    replied: usize,
}

impl Ends {
    /// Joins the program as its component `me`: `FROM-TO` is the channel between two components.
    ///
    /// # Errors
    /// Those of [`Component::connect`]; channels of other names.
    pub fn connect(me: To) -> Result<Ends> {
        let component = Component::connect_alone()?;
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
            // Behind a dot comes the number of the row.
            let pair = local.split_once('.').map_or(&local[..], |(pair, _)| pair);
            let names = pair
                .split_once('-')
                .and_then(|(from, to)| To::of(from).zip(To::of(to)));
            let lines = end.depth.unwrap_or(LINES);
            match (names, end.part) {
                (Some((from, to)), Part::Send) if from == me => {
                    // An answer is made once: it waits until there is a front to take it.
                    let away = match to {
                        // A network may lose frames. The next front does not know the connections.
                        _ if to == To::Device || matches!(me, To::Device | To::Tcpip) => Away::Drop,
                        To::Front => Away::Wait,
                        To::Log => Away::Drop,
                        To::Cache if me != To::Route => Away::Drop,
                        _ => Away::Keep,
                    };
                    outs.push(Out::listen(&domain, &end.name, to, lines, away)?);
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
        // Answers first: when a roll call comes back, they are there.
        outs.sort_by_key(|out: &Out| out.to);
        component.ready()?;
        os::run_in_batches();
        Ok(Ends {
            me,
            domain,
            pool,
            outs,
            ins,
            looked: Instant::now(),
            flushing: Outs::default(),
            replied: 0,
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
        self.are_there()
    }

    /// Says whether all components are there, as far as is known.
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.ins.iter().all(In::is_there) && self.outs.iter().all(Out::is_there)
    }

    /// Takes the manager's news, gives memory back, and looks who has ended or come.
    pub fn turn(&mut self) {
        // What it cannot do now is done the next time.
        let _ = self.domain.turn();
        self.look();
    }

    /// Takes the manager's news now and then, and not after each message: deaths show by system calls.
    pub(crate) fn turn_at_times(&mut self, now: Instant) {
        if now.duration_since(self.looked) >= LOOK {
            self.looked = now;
            self.turn();
        }
    }

    /// Sleeps as [`sleep`](Ends::sleep). For some time after the last work, at `worked`, it wakes now and then, so that
    /// memory goes back.
    pub(crate) fn rest(
        &mut self,
        worked: Instant,
        most: Option<Duration>,
        beside: Option<BorrowedFd<'_>>,
    ) {
        self.turn();
        let kept = self.outs.iter_mut().any(Out::has_kept);
        let most = match kept || worked.elapsed() < REST {
            true => Some(most.map_or(LOOK, |most| most.min(LOOK))),
            false => most,
        };
        self.sleep(most, beside);
        self.turn();
    }

    /// Sleeps until a message comes, a component ends or comes, `beside` can be read, or that long.
    pub fn sleep(&mut self, most: Option<Duration>, beside: Option<BorrowedFd<'_>>) {
        if self.ins.iter_mut().all(In::arm) {
            // Deaths are the manager's news. While it is away they are looked for.
            // So are components that come, of which news may have been taken while another one was looked at.
            let most = match self.are_there() && self.domain.admin().is_managed() {
                true => most,
                false => Some(most.map_or(BRIEF, |most| most.min(BRIEF))),
            };
            let most = most.map(timespec);
            let domain = self.domain.as_fd();
            // A signal is a reason to look, too.
            let fds = [domain, beside.unwrap_or(domain)];
            let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, most.as_ref());
        }
        self.ins.iter_mut().for_each(In::disarm);
    }

    /// Waits until all other components are there.
    pub fn meet(&mut self) {
        while !self.look() {
            self.sleep(None, None);
            let _ = self.domain.turn();
        }
    }

    /// Waits until the front is there: a request that is taken has an answer.
    pub fn meet_front(&mut self) {
        while self.has(To::Front) && !self.look() && !self.outs[0].is_there() {
            self.sleep(None, None);
            let _ = self.domain.turn();
        }
    }

    /// Passes a roll call on to the components behind this one, each with a share of it. The last ones answer it. It
    /// follows the requests before it, so that those have an answer, or none, when all shares are back.
    pub fn pass_roll(&self, number: u16, share: u16, waiting: &mut Outs) {
        let behind = self.outs.iter().filter(|out| out.is_path());
        let count = behind.clone().count();
        if count == 0 {
            return waiting.send(To::Front, Word::roll(number, share), nothing());
        }
        for (out, word) in behind.zip(Word::rolls(number, share, count)) {
            waiting.send(out.to, word, nothing());
        }
    }

    /// Sends what a stage has for others: each of them is woken once. A request that cannot be sent is answered.
    pub fn flush(&mut self, waiting: &mut Outs) {
        while !waiting.0.is_empty() {
            std::mem::swap(waiting, &mut self.flushing);
            let all = &mut self.flushing.0;
            for out in &mut self.outs {
                let (to, path) = (out.to, out.is_path());
                let batch = all.extract_if(.., |(there, ..)| *there == to);
                let batch = batch.map(|(_, word, body)| {
                    if to == To::Front {
                        self.replied += bytes_of(&body);
                    }
                    (word, body)
                });
                out.send(&self.pool, batch, |word, why| {
                    // The front calls again, and nobody waits for what the log and the cache miss.
                    if !path || word.as_roll().is_some() {
                        return;
                    }
                    let status = match why {
                        Unsent::Gone => 502,
                        Unsent::Full => 503,
                    };
                    waiting.answer(word, status);
                });
            }
            for (to, word, _) in all.drain(..) {
                // There is no channel to it.
                let beside = to == To::Cache && self.me != To::Route;
                if !beside && !matches!(to, To::Front | To::Log) {
                    waiting.answer(word, 502);
                }
            }
        }
        if self.replied >= TURN {
            self.replied = 0;
            std::thread::yield_now();
        }
    }
}

fn bytes_of(body: &Body) -> usize {
    match body {
        Body::Buffer(bytes) => bytes.len(),
        Body::Aggregate(all) => all.len(),
        _ => 0,
    }
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
    // The end that is slept on while messages come. What comes over the others is looked at with it.
    let first = |from: To| match (me, from) {
        (To::Cache, To::Dynamic | To::Fastcgi) | (To::Log, To::Guard) => 1,
        _ => 0,
    };
    ends.ins.sort_by_key(|end| first(end.from));
    if ends.ins.iter().filter(|end| first(end.from) == 0).count() != 1 {
        bail!("component `{name}` receives requests from one other component");
    }
    ends.meet_front();
    Running {
        most: stage.batch().max(1),
        stage: &mut stage,
        ends,
        waiting: Outs::default(),
        got: Vec::new(),
    }
    .run()
}

/// A stage that runs.
struct Running<'a, S> {
    stage: &'a mut S,
    ends: Ends,
    most: usize,
    waiting: Outs,
    got: Vec<Message>,
}

impl<S: Stage> Running<'_, S> {
    fn run(mut self) -> ! {
        let mut worked = Instant::now();
        loop {
            let now = Instant::now();
            self.ends.turn_at_times(now);
            if self.take_all() {
                worked = now;
                continue;
            }
            let most = self.stage.idle(&mut self.waiting);
            self.ends.flush(&mut self.waiting);
            // Sleeping on one channel costs half as much.
            let from = self.ends.ins[0].from;
            let brief = most.map_or(BRIEF, |most| most.min(BRIEF));
            if let Ok(Some(message)) = self.ends.ins[0].recv(brief) {
                worked = now;
                // What came over the others came before it.
                self.take_others();
                self.handle(from, message);
                if self.most == 1 {
                    self.ends.flush(&mut self.waiting);
                }
                continue;
            }
            self.ends.rest(worked, most, None);
        }
    }

    /// Takes what is there in batches, and sends what each leads to. Says whether there was something.
    fn take_all(&mut self) -> bool {
        for batch in 0..MESSAGES.div_ceil(self.most) {
            let any = self.take_others() | self.take_from(0);
            self.ends.flush(&mut self.waiting);
            if !any {
                return batch > 0;
            }
        }
        true
    }

    /// Takes what is to be kept or noted, before the requests that may ask for it.
    fn take_others(&mut self) -> bool {
        let others = 1..self.ends.ins.len();
        others.fold(false, |any, at| self.take_from(at) | any)
    }

    fn take_from(&mut self, at: usize) -> bool {
        let end = &mut self.ends.ins[at];
        let from = end.from;
        // An end shows by the next look.
        let _ = end.take(&mut self.got, self.most);
        let mut got = std::mem::take(&mut self.got);
        let any = !got.is_empty();
        for message in got.drain(..) {
            self.handle(from, message);
        }
        self.got = got;
        any
    }

    fn handle(&mut self, from: To, message: Message) {
        let word = Word(message.word);
        match word.as_roll() {
            Some((number, share)) => self.ends.pass_roll(number, share, &mut self.waiting),
            None => self.stage.take(from, word, message.body, &mut self.waiting),
        }
    }
}

/// Returns a time as the kernel takes it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
