//! The adaptor of a program that knows nothing of channels: its standard input is fed from an end, and its standard
//! output goes to one.

use crate::plan::Plan;
use crate::program::Filter;
use anyhow::{Context, Result, anyhow};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tranship::component::{Component, Part, Receiver, Sender};
use tranship::queue::{Consumer, Item, Producer};
use tranship::sandbox::Confined;
use tranship::topic::{Publisher, Subscriber};
use tranship::{Error, Message};
use tranship_session::places::{KEY_ENV, SOCKET_ENV};

/// Runs the program of a plan until it ends, and returns its exit code.
pub(crate) fn run(plan: &Plan, filter: &Filter) -> Result<i32> {
    let mut child = start(plan, filter)?;
    // This process takes bytes from peers, so it has the sandbox of a component without any path.
    let rights = plan.rights.clone().unwrap_or_default();
    let own = Confined {
        any_file: rights.any_file,
        network: rights.network,
        any_call: rights.any_call,
        ..Confined::default()
    };
    own.restrict()?;
    let component = Component::connect()?;
    let input = filter
        .stdin
        .as_ref()
        .map(|end| Input::open(&component, end));
    let input = input.transpose()?;
    let output = filter
        .stdout
        .as_ref()
        .map(|end| Output::open(&component, end));
    let output = output.transpose()?;
    component.ready()?;
    let pool = filter
        .stdin
        .as_ref()
        .and_then(|end| brief_pool(&component, end));
    let open = output
        .is_some()
        .then(|| Open::of_pool(pool.unwrap_or(POOL_BYTES)));
    if let (Some(input), Some(to)) = (input, child.stdin.take()) {
        // The thread ends with this process, and the program's end decides when.
        let (feeds, open) = (
            thread::Builder::new().name("stdin".to_owned()),
            open.clone(),
        );
        feeds
            .spawn(move || feed(input, to, open.as_ref()))
            .context("starting a thread")?;
    }
    let sent = match (output, child.stdout.take(), &open) {
        (Some(output), Some(from), Some(open)) => drain(output, from, filter.frame, open).map(Some),
        _ => Ok(None),
    };
    // Nobody takes what it says: it ends with this process.
    let output = sent?;
    let status = child.wait().context("waiting for the program")?;
    if !status.success() {
        // Dropped it would end in order, and its receiver believe that it has all.
        std::mem::forget((output, open));
        return Ok(code(status));
    }
    if let Some(output) = output {
        output.finish()?;
    }
    if let Some(open) = open {
        open.take().into_iter().for_each(acknowledge);
    }
    Ok(code(status))
}

/// Most items that wait for output. A consumer may have more of one producer open.
const MOST_OPEN: usize = 32;

/// Part of a producer's pool that they may have.
const PART: u64 = 4;

/// Memory of a pool whose size the file does not say.
const POOL_BYTES: u64 = 64 << 20;

fn brief_pool(component: &Component, end: &str) -> Option<u64> {
    component.brief().ends.get(end)?.pool
}

/// Items that the program has been given, and of which no output was accepted yet. If this process ends they go back to the
/// queue.
#[derive(Clone)]
struct Open {
    items: Arc<Mutex<VecDeque<Item>>>,
    most_bytes: u64,
}

impl Open {
    fn of_pool(bytes: u64) -> Open {
        Open {
            items: Arc::default(),
            most_bytes: bytes / PART,
        }
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an item whose bytes were written. A program that collects much before it says anything has the oldest acknowledged: else
    /// it would wait for more items, and their producer for its memory.
    fn push(&self, item: Item) {
        let mut items = self.items();
        items.push_back(item);
        let mut bytes: u64 = items.iter().map(|item| item.len() as u64).sum();
        let mut oldest = Vec::new();
        while items.len() > MOST_OPEN || bytes > self.most_bytes {
            let Some(item) = items.pop_front() else { break };
            bytes -= item.len() as u64;
            oldest.push(item);
        }
        drop(items);
        oldest.into_iter().for_each(acknowledge);
    }

    /// Takes all of them.
    fn take(&self) -> VecDeque<Item> {
        std::mem::take(&mut *self.items())
    }
}

/// A producer that has gone needs no word.
fn acknowledge(item: Item) {
    if let Err(why) = item.ack() {
        tracing::debug!(%why, "an item was not acknowledged");
    }
}

/// Starts the program by a launcher of its own, so that the restrictions are the program's alone. The namespaces are
/// those of this process.
fn start(plan: &Plan, filter: &Filter) -> Result<Child> {
    let inner = Plan {
        parent: std::process::id(),
        separated: true,
        filter: None,
        ..plan.clone()
    };
    let pipe = |yes| if yes { Stdio::piped() } else { Stdio::null() };
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.arg("component").arg(inner.argument()?);
    command.stdin(pipe(filter.stdin.is_some()));
    if filter.stdout.is_some() {
        command.stdout(Stdio::piped());
    }
    // The program is no domain.
    command
        .env_remove(tranship::component::VARIABLE)
        .env_remove(SOCKET_ENV)
        .env_remove(KEY_ENV)
        .env_remove("NOTIFY_SOCKET");
    command.spawn().context("starting a launcher")
}

/// Returns the exit code: 128 and the number for a signal.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

enum Input {
    Channel(Receiver),
    Topic(Subscriber),
    Queue(Consumer),
}

impl Input {
    fn open(component: &Component, end: &str) -> Result<Input> {
        Ok(match part(component, end)? {
            Part::Subscribe => Input::Topic(component.subscriber(end)?),
            Part::Consume => Input::Queue(component.consumer(end)?),
            _ => Input::Channel(component.receiver(end)?),
        })
    }

    fn recv(&mut self) -> Result<Came, Error> {
        match self {
            Input::Channel(from) => from.recv().map(Came::Message),
            Input::Topic(from) => from.recv().map(Came::Message),
            Input::Queue(from) => from.recv().map(Came::Item),
        }
    }
}

/// The result of a read from an input.
enum Came {
    Message(Message),
    Item(Item),
}

impl Came {
    fn write_to(&self, to: &mut ChildStdin) -> std::io::Result<()> {
        match self {
            Came::Message(message) => message.write_to(to)?,
            Came::Item(item) => item.write_to(to)?,
        }
        to.flush()
    }
}

fn part(component: &Component, end: &str) -> Result<Part> {
    let told = component.brief().ends.get(end);
    let told = told.ok_or_else(|| anyhow!("the component has no end `{end}`"))?;
    Ok(told.part)
}

/// Writes messages to the program's standard input until they end, or the program reads no more. An item that it did not read whole
/// goes back to its queue. Without output an item is done when it is written.
fn feed(mut input: Input, mut to: ChildStdin, open: Option<&Open>) {
    loop {
        match input.recv() {
            Ok(came) => {
                if let Err(why) = came.write_to(&mut to) {
                    tracing::debug!(%why, "the program reads no more");
                    return;
                }
                match (came, open) {
                    (Came::Item(item), Some(open)) => open.push(item),
                    (Came::Item(item), None) => acknowledge(item),
                    (Came::Message(_), _) => {}
                }
            }
            Err(why) => {
                // The end of its input, too, where the sender died: the program ends.
                tracing::debug!(%why, "there is no further message");
                return;
            }
        }
    }
}

enum Output {
    Channel(Box<Sender>),
    Topic(Box<Publisher>),
    Queue(Box<Producer>),
}

impl Output {
    fn open(component: &Component, end: &str) -> Result<Output> {
        Ok(match part(component, end)? {
            Part::Publish => Output::Topic(Box::new(component.publisher(end)?)),
            Part::Produce => Output::Queue(Box::new(component.producer(end)?)),
            _ => Output::Channel(Box::new(component.sender(end)?)),
        })
    }

    fn alloc(&mut self, len: usize) -> Result<tranship::BufferMut, Error> {
        match self {
            Output::Channel(to) => to.alloc(len),
            Output::Topic(to) => to.alloc(len),
            Output::Queue(to) => to.alloc(len),
        }
    }

    fn send(&mut self, buffer: tranship::Buffer) -> Result<(), Error> {
        match self {
            Output::Channel(to) => to.send(buffer).map(drop).map_err(|failed| failed.error),
            Output::Topic(to) => to.send(buffer).map(drop).map_err(|failed| failed.error),
            Output::Queue(to) => to.send(buffer).map(drop).map_err(|failed| failed.error),
        }
    }

    fn finish(self) -> Result<(), Error> {
        match self {
            Output::Channel(to) => to.finish(),
            Output::Queue(mut to) => to.wait_done(None),
            Output::Topic(_) => Ok(()),
        }
    }
}

/// Sends what the program writes, as it comes, until it writes no more. Items that it had been given before it wrote are done when that is accepted.
fn drain(mut output: Output, mut from: ChildStdout, frame: usize, open: &Open) -> Result<Output> {
    loop {
        let mut buffer = output.alloc(frame)?;
        let len = loop {
            match from.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.context("reading the program's output")?,
            }
        };
        if len == 0 {
            drop(buffer);
            return Ok(output);
        }
        buffer.truncate(len);
        let given = open.take();
        // If it fails they go back.
        output.send(buffer.freeze())?;
        given.into_iter().for_each(acknowledge);
    }
}
