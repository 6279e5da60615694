//! The main stage's work over pipes and over Unix stream sockets. Every frame is copied into the kernel and out again,
//! once for each consumer.

mod wire;

pub(crate) use wire::consume;

use super::plan::{Begun, Plan, Reached};
use super::worker::{Start, Worker};
use crate::args::demo::{ConsumerRole, Transport};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Largest buffer that the kernel lets an unprivileged user have.
const BUFFER: usize = 1 << 20;
/// Frames that may wait for one consumer.
const QUEUE: usize = 2;

/// A frame on its way to four consumers.
struct Frame {
    offset: u64,
    bytes: Vec<u8>,
}

/// Runs passes over the input until the time is over and the last pass is complete; `watch` sees the workers
/// after each frame.
pub(crate) fn run(
    over: Transport,
    plan: &Plan<'_>,
    mut watch: impl FnMut(&[Worker]),
) -> Result<Reached> {
    let mut lanes = Vec::new();
    let mut workers = Vec::new();
    for role in ConsumerRole::ALL {
        let (ours, theirs) = connection(over)?;
        let start = Start {
            role,
            over,
            total: plan.input.len(),
            output: (role == ConsumerRole::Writer).then_some(plan.output),
            more: Vec::new(),
            stdin: Stdio::from(theirs),
        };
        workers.push(Worker::start(start)?);
        lanes.push(Lane::start(ours)?);
    }
    for worker in &workers {
        worker.wait_ready()?;
    }
    let begun = Begun::now();
    let mut frames = Frames::new(plan.frame);
    let mut offset = 0;
    while offset != 0 || begun.at.elapsed() < plan.time {
        let len = plan.input.frame_len(offset, plan.frame);
        let frame = frames.next(offset, len, |bytes| plan.input.read_at(offset, bytes))?;
        for lane in &lanes {
            // A lane that is gone says why when it is joined.
            let _ = lane.queue.send(Arc::clone(&frame));
        }
        frames.keep(frame);
        offset = (offset + len as u64) % plan.input.len();
        watch(&workers);
    }
    lanes.into_iter().try_for_each(Lane::finish)?;
    begun.reached(over, workers)
}

/// Returns our end and the consumer's.
fn connection(over: Transport) -> Result<(OwnedFd, OwnedFd)> {
    match over {
        Transport::Pipe => {
            let (read, write) =
                rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("a pipe")?;
            // A smaller one works as well.
            let _ = rustix::pipe::fcntl_setpipe_size(&write, BUFFER);
            Ok((write, read))
        }
        Transport::Stream => {
            let (ours, theirs) = UnixStream::pair().context("a socket pair")?;
            ours.shutdown(Shutdown::Read)
                .context("closing one direction")?;
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(ours.as_fd(), BUFFER);
            Ok((ours.into(), theirs.into()))
        }
        Transport::Tranship => bail!("not a baseline"),
    }
}

/// A thread that writes frames to one consumer, so that a slow one holds up the others only by its queue.
struct Lane {
    queue: SyncSender<Arc<Frame>>,
    thread: JoinHandle<Result<()>>,
}

impl Lane {
    fn start(to: OwnedFd) -> Result<Self> {
        let (queue, frames) = sync_channel::<Arc<Frame>>(QUEUE);
        let thread = std::thread::Builder::new()
            .name("lane".into())
            .spawn(move || {
                let mut to = File::from(to);
                frames
                    .iter()
                    .try_for_each(|frame| wire::write(&mut to, frame.offset, &frame.bytes))
            });
        Ok(Self {
            queue,
            thread: thread.context("starting a thread")?,
        })
    }

    /// Writes the queued bytes and closes.
    fn finish(self) -> Result<()> {
        drop(self.queue);
        match self.thread.join() {
            Ok(result) => result.context("writing to a consumer"),
            Err(_) => bail!("a lane panicked"),
        }
    }
}

/// Frames that are used again once no lane holds them, so that no time goes into fresh memory.
struct Frames {
    size: usize,
    all: Vec<Arc<Frame>>,
}

impl Frames {
    fn new(size: usize) -> Self {
        Self {
            size,
            all: Vec::new(),
        }
    }

    fn next(
        &mut self,
        offset: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Arc<Frame>> {
        let free = self
            .all
            .iter()
            .position(|frame| Arc::strong_count(frame) == 1);
        let mut frame = match free {
            Some(at) => self.all.swap_remove(at),
            None => Arc::new(Frame {
                offset,
                bytes: Vec::with_capacity(self.size),
            }),
        };
        let inside = Arc::get_mut(&mut frame).context("a frame of our own")?;
        inside.offset = offset;
        inside.bytes.resize(len, 0);
        fill(&mut inside.bytes)?;
        Ok(frame)
    }

    fn keep(&mut self, frame: Arc<Frame>) {
        self.all.push(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_used_again_only_when_nobody_holds_them() {
        let mut frames = Frames::new(8);
        let held = frames
            .next(0, 8, |bytes| {
                bytes.fill(1);
                Ok(())
            })
            .expect("a frame");
        frames.keep(Arc::clone(&held));
        let second = frames
            .next(8, 4, |bytes| {
                bytes.fill(2);
                Ok(())
            })
            .expect("a frame");
        assert_eq!(
            (held.bytes.as_slice(), second.bytes.as_slice()),
            (&[1; 8][..], &[2; 4][..])
        );
        frames.keep(second);
        drop(held);
        drop(frames.next(0, 8, |_| Ok(())).expect("a frame"));
        assert_eq!(frames.all.len(), 1);
    }
}
