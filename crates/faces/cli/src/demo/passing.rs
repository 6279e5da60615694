//! The main stage: frames in shared memory, passed to four consumers by reference.
//!
//! ```text
//!  file ──pread──► frame in the producer's pool ══ id ═══► hash, lz4, stats, writer (locked down, map it read-only)
//! ```

mod consume;
mod counted;
mod lane;
mod memory;
mod trouble;

pub(crate) use consume::{consume, join, may_be_counted};
pub(crate) use counted::{Counted, counted};
use memory::Held;
pub(crate) use trouble::{Trouble, trouble};

use super::plan::{Begun, Plan, Reached};
use super::worker::{Start, Worker};
use crate::args::demo::{ConsumerRole, Transport};
use anyhow::{Context, Result};
use lane::Lane;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tranship::admin::StatRecord;
use tranship::{Buffer, ChannelOptions, Domain, ErrorKind, Pool, PoolOptions, Sender, Wait};

/// Frames that may wait for one consumer.
const QUEUE: u32 = 4;
/// Longest wait for the frames of the last pass, which no consumer should miss.
const LAST_PATIENCE: Duration = Duration::from_secs(20);
/// Longer than the library keeps a pool that is over, for threads that are about to leave it.
const REST: Duration = Duration::from_millis(1500);
/// Interval at which the domain's work is done where nothing else does it.
const TURN: Duration = Duration::from_millis(5);

/// The producer: a domain with a manager of its own and a pool of frames.
#[derive(Debug)]
pub(crate) struct Producer<'a> {
    plan: &'a Plan<'a>,
    domain: Domain,
    pool: Pool,
    /// Frames that the pool has room for.
    frames: usize,
    before: Held,
}

/// Resources before the pool and the consumers, and after them.
#[derive(Debug)]
pub(crate) struct Left {
    pub before: Held,
    pub after: Held,
    /// Bytes that the manager still counts as granted or stranded.
    pub granted: u64,
}

/// Returns whether the manager knows of nothing but this domain.
fn alone(domain: &Domain) -> Result<bool> {
    let records = domain.admin().stat().context("asking the manager")?;
    Ok(records.iter().all(|record| match record {
        StatRecord::Manager(_) => true,
        StatRecord::Domain(it) => it.domain == domain.id(),
        _ => false,
    }))
}

impl<'a> Producer<'a> {
    pub(crate) fn new(plan: &'a Plan<'a>) -> Result<Self> {
        let domain = Domain::builder()
            .name("demo-producer")
            .embedded()
            .context("starting a manager")?;
        // Descriptors that a first pool opens once for the whole process are none of the pool's own.
        drop(domain.create_pool(PoolOptions::new(1 << 16))?.alloc(1)?);
        let begin = Instant::now();
        while begin.elapsed() < REST || !alone(&domain)? {
            domain.turn()?;
            std::thread::sleep(TURN);
        }
        let before = Held::now()?;
        let chunk = (plan.frame as u64)
            .next_power_of_two()
            .clamp(64 << 10, 64 << 20);
        // Frames: for each consumer a full queue and the one that it works on; one is being filled, one is spare.
        let frames = ConsumerRole::ALL.len() * (QUEUE as usize + 1) + 4;
        let bytes = (plan.frame as u64).next_multiple_of(chunk) * frames as u64;
        // All frames are needed again and again, however long a busy machine lets the others wait meanwhile.
        let options = PoolOptions::new(bytes)
            .chunk_bytes(chunk)
            .preallocate(bytes)
            .name("frames");
        let pool = domain
            .create_pool(options)
            .with_context(|| format!("making a pool of {bytes} bytes"))?;
        Ok(Self {
            plan,
            domain,
            pool,
            frames,
            before,
        })
    }

    /// Starts a consumer and opens a link to it.
    fn start(&self, role: ConsumerRole, more: &[&str], wait: Wait) -> Result<(Worker, Lane)> {
        let name = format!("demo-{}", role.name());
        let options = ChannelOptions::new().lines(QUEUE).wait(wait);
        let listener = self.domain.listen_with::<Sender>(&name, options)?;
        let socket = self.domain.socket_path().context("the manager's socket")?;
        let socket = socket.to_str().context("the socket's path")?;
        let mut args = ["--name", name.as_str(), "--socket", socket].to_vec();
        args.extend(more);
        let worker = Worker::start(Start {
            role,
            over: Transport::Tranship,
            total: self.plan.input.len(),
            output: (role == ConsumerRole::Writer).then_some(self.plan.output),
            more: args.into_iter().map(str::to_owned).collect(),
            stdin: Stdio::null(),
        })?;
        // The consumer connects before its lock-down, or ends, and then there is no consumer to wait for.
        let sender = loop {
            match listener.accept_timeout(Duration::from_millis(100)) {
                Ok(sender) => break sender,
                Err(error) if error == ErrorKind::TimedOut && !worker.ended() => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("the {} consumer connects", role.name()));
                }
            }
        };
        worker.wait_ready()?;
        // After its lock-down: it can still make its counters and map the frames' memory.
        let mut lane = Lane::new(role, sender);
        lane.assign(&self.pool)?;
        Ok((worker, lane))
    }

    fn start_all(&self) -> Result<(Vec<Worker>, Vec<Lane>)> {
        let started = ConsumerRole::ALL.map(|role| self.start(role, &[], Wait::default()));
        let started: Result<Vec<_>> = started.into_iter().collect();
        Ok(started?.into_iter().unzip())
    }

    /// Returns the frame at `offset`, read straight into shared memory, and the offset of the next frame.
    fn frame(&self, offset: u64) -> Result<(Buffer, u64)> {
        let len = self.plan.input.frame_len(offset, self.plan.frame);
        let mut buffer = self.pool.alloc(len).context("a frame of the pool")?;
        self.plan.input.read_at(offset, &mut buffer)?;
        let next = (offset + len as u64) % self.plan.input.len();
        Ok((buffer.freeze(), next))
    }

    /// Waits as long as the others ran, with four consumers, for whole passes.
    pub(crate) fn steady(&self, mut watch: impl FnMut(&[Worker])) -> Result<Reached> {
        let (workers, mut lanes) = self.start_all()?;
        lanes
            .iter_mut()
            .for_each(|lane| lane.wait_for(LAST_PATIENCE));
        let begun = Begun::now();
        let mut offset = 0;
        while offset != 0 || begun.at.elapsed() < self.plan.time {
            let (frame, next) = self.frame(offset)?;
            for lane in &mut lanes {
                lane.send(&frame, offset)?;
            }
            offset = next;
            watch(&workers);
        }
        drop(lanes);
        begun.reached(Transport::Tranship, workers)
    }

    /// Gives the pool back and checks what is left of everything, while domain and manager still run: memory that only
    /// their end would free is a leak too.
    pub(crate) fn close(self) -> Result<Left> {
        let Self {
            domain,
            pool,
            before,
            ..
        } = self;
        drop(pool);
        let begin = Instant::now();
        // Not longer than a user waits; memory that is still there then counts as leaked.
        while begin.elapsed() < LAST_PATIENCE
            && !(alone(&domain)? && Held::now()?.is_no_more_than(&before))
        {
            domain.turn()?;
            std::thread::sleep(TURN);
        }
        let mut granted = 0;
        for record in domain.admin().stat()? {
            if let StatRecord::Manager(it) = record {
                granted += it.granted_bytes + it.stranded_bytes;
            }
        }
        Ok(Left {
            before,
            after: Held::now()?,
            granted,
        })
    }

    /// Returns whether every frame of the pool can be had again, now that all consumers are gone: nothing leaked.
    pub(crate) fn all_frames(&self) -> Result<(usize, usize)> {
        let mut held = Vec::new();
        while held.len() < self.frames {
            match self
                .pool
                .alloc_timeout(self.plan.frame, Duration::from_secs(2))
            {
                Ok(frame) => held.push(frame),
                Err(error) if error.kind() == ErrorKind::OutOfMemory => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok((held.len(), self.frames))
    }
}
