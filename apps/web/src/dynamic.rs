//! Content that is made for each request: handlers in a process of their own.

use crate::reply::{HEAD_ROOM, Heads, MEMORY};
use crate::request::{Request, body_of, copy_record};
use crate::stage::{Outs, Stage, To};
use crate::word::Word;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tranship::{Aggregate, Body, Buffer, BufferMut, Domain, Error, Pool};

/// A handler: it makes the reply of each request. A program with handlers of its own calls [`serve`](crate::serve).
///
/// ```no_run
/// use tranship_web::{Dynamic, Exchange, Handler, serve};
///
/// struct Hello;
/// impl Handler for Hello {
///     fn handle(&mut self, exchange: &mut Exchange<'_>) -> Result<(), tranship::Error> {
///         exchange.header("content-type", "text/plain");
///         exchange.body(6)?.copy_from_slice(b"hello\n");
///         Ok(())
///     }
/// }
/// # fn main() -> anyhow::Result<()> {
/// serve("dynamic", |ends| Ok(Dynamic::new(ends.pool.clone(), Hello)))
/// # }
/// ```
pub trait Handler {
    /// Answers a request. Without a body the reply is empty; the status is 200 if none is set.
    ///
    /// A handler that hangs or crashes costs this request: the client gets 504 or 502. Requests that wait meanwhile are
    /// answered by the component's next process.
    ///
    /// # Errors
    /// The client gets 503 for `OutOfMemory` and `TimedOut`, and 500 for others.
    fn handle(&mut self, exchange: &mut Exchange<'_>) -> Result<(), Error>;
}

/// A request and its reply.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The request.
    pub request: Request<'a>,
    body: &'a Body,
    pool: &'a Pool,
    status: u16,
    headers: &'a mut String,
    reply: Option<Made>,
    max_age: u32,
}

/// A body that a handler has written, behind room for the head.
#[derive(Debug)]
struct Made {
    buffer: BufferMut,
    room: usize,
}

/// Most bytes of a body with room for its head. One buffer instead of three is used again while the processor's cache has
/// it; with room, a body of this length has a quarter more memory, and a larger one might be longer than a chunk.
const WITH_ROOM: usize = 64 << 10;

impl Exchange<'_> {
    /// Returns the pieces of the request's body. They lie in memory of the component of the connections.
    pub fn pieces(&self) -> impl Iterator<Item = &Buffer> {
        body_of(self.body)
    }

    /// Sets the status.
    pub fn status(&mut self, status: u16) {
        self.status = status;
    }

    /// Adds a header. Line ends are left out.
    pub fn header(&mut self, name: &str, value: &str) {
        for (text, end) in [(name, ": "), (value, "\r\n")] {
            self.headers.extend(text.split(['\r', '\n', '\0']));
            self.headers.push_str(end);
        }
    }

    /// Lets the cache answer requests of the same target for so many seconds.
    pub fn keep_for(&mut self, seconds: u32) {
        self.max_age = seconds;
        let _ = write!(self.headers, "cache-control: max-age={seconds}\r\n");
    }

    /// Allocates the reply's body, in memory that the front can read; the handler writes it there. The last call counts.
    ///
    /// # Errors
    /// `TimedOut` without memory for half a second, `TooLarge`.
    pub fn body(&mut self, bytes: usize) -> Result<&mut [u8], Error> {
        self.reply = None;
        let room = if bytes <= WITH_ROOM { HEAD_ROOM } else { 0 };
        let buffer = self.pool.alloc_timeout(room + bytes, MEMORY)?;
        let made = self.reply.insert(Made { buffer, room });
        Ok(&mut made.buffer[room..])
    }
}

/// The component.
#[derive(Debug)]
pub struct Dynamic<H> {
    pool: Pool,
    handler: H,
    heads: Heads,
    headers: String,
    record: Vec<u8>,
    /// Calls of the handler and returns, and the thread that looks.
    calls: Option<(Arc<AtomicU64>, Thread)>,
}

impl<H: Handler> Dynamic<H> {
    /// Makes the component.
    #[must_use]
    pub fn new(pool: Pool, handler: H) -> Dynamic<H> {
        Dynamic {
            pool,
            handler,
            heads: Heads::default(),
            headers: String::new(),
            record: Vec::new(),
            calls: None,
        }
    }

    /// Ends the process when a handler takes longer than this, at most a quarter later: its request is lost, the next
    /// process has the others.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn limit(mut self, most: Duration) -> std::io::Result<Dynamic<H>> {
        let calls = Arc::new(AtomicU64::new(0));
        let watched = calls.clone();
        let watch = move || {
            let (mut seen, mut since) = (0, Instant::now());
            loop {
                // Ordering: relaxed, the number alone counts. A call wakes this thread after it has set the number.
                let now = watched.load(Ordering::Relaxed);
                if now != seen {
                    // As long as calls come, none of them wakes this thread.
                    (seen, since) = (now, Instant::now());
                    std::thread::sleep(most / 4);
                    continue;
                }
                match is_running(now) {
                    false => std::thread::park(),
                    true if since.elapsed() < most => std::thread::sleep(most / 4),
                    true => {
                        let (took, most) = (since.elapsed().as_millis(), most.as_millis());
                        eprintln!("a handler took {took} ms, it may take {most} ms");
                        std::process::abort();
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("handler-limit".to_owned());
        let thread = thread.spawn(watch)?.thread().clone();
        self.calls = Some((calls, thread));
        Ok(self)
    }

    fn answer(&mut self, word: Word, body: &Body, outs: &mut Outs) -> Result<(), u16> {
        let status = |error: &Error| -> u16 {
            match error.kind() {
                tranship::ErrorKind::OutOfMemory | tranship::ErrorKind::TimedOut => 503,
                _ => 500,
            }
        };
        let request = Request::read(&self.record).ok_or(500u16)?;
        self.headers.clear();
        let mut exchange = Exchange {
            request,
            body,
            pool: &self.pool,
            status: 200,
            headers: &mut self.headers,
            reply: None,
            max_age: 0,
        };
        if let Some((calls, thread)) = &self.calls {
            calls.fetch_add(1, Ordering::Relaxed);
            // It makes a system call only after a pause in which no call came.
            thread.unpark();
        }
        let handled = self.handler.handle(&mut exchange);
        if let Some((calls, _)) = &self.calls {
            calls.fetch_add(1, Ordering::Relaxed);
        }
        handled.map_err(|error| status(&error))?;
        let (code, max_age) = (exchange.status, exchange.max_age);
        let made = exchange.reply.take();
        let bytes = made.as_ref().map(|made| made.buffer.len() - made.room);
        let (pool, headers) = (&self.pool, &self.headers);
        let reply = match made {
            None => self.heads.reply(pool, word, code, headers, None),
            Some(Made { buffer, room }) => {
                let what = (word, code, &headers[..]);
                self.heads.reply_in_room(pool, what, buffer, room)
            }
        };
        let (word, reply) = reply.map_err(|error| status(&error))?;
        if max_age > 0
            && code == 200
            && !word.has(Word::HEAD)
            && let Some(content) = bytes.and_then(|bytes| content_of(&reply, bytes))
        {
            keep(pool, body, content, headers, max_age, outs);
        }
        outs.send(To::Front, word, reply);
        Ok(())
    }
}

/// Says whether a handler runs, by the number of its calls and returns.
fn is_running(calls: u64) -> bool {
    !calls.is_multiple_of(2)
}

/// Returns the body of a reply, of so many bytes. `None`: the reply has no body.
fn content_of(reply: &Body, bytes: usize) -> Option<Buffer> {
    match reply {
        Body::Buffer(whole) => Some(whole.slice(whole.len().checked_sub(bytes)?..)),
        Body::Aggregate(all) => all.pieces().back().cloned(),
        _ => None,
    }
}

/// Shows a reply to the cache: the request's record, the headers, the body.
fn keep(
    pool: &Pool,
    request: &Body,
    content: Buffer,
    headers: &str,
    max_age: u32,
    outs: &mut Outs,
) {
    let record = match request {
        Body::Buffer(record) => record.clone(),
        // Requests with a body are not kept.
        _ => return,
    };
    let Ok(mut lines) = pool.try_alloc(headers.len()) else {
        return;
    };
    lines.copy_from_slice(headers.as_bytes());
    let mut all = Aggregate::new();
    all.set_list_pool(pool);
    for piece in [record, lines.freeze(), content] {
        if all.push_back(piece).is_err() {
            return;
        }
    }
    outs.send(To::Cache, Word(max_age.into()), Body::Aggregate(all));
}

impl<H: Handler> Stage for Dynamic<H> {
    /// A handler that crashes costs its own request alone.
    fn batch(&self) -> usize {
        1
    }

    fn take(&mut self, _: To, word: Word, body: Body, outs: &mut Outs) {
        let done = match copy_record(&body, &mut self.record) {
            true => self.answer(word, &body, outs),
            false => Err(500),
        };
        if let Err(status) = done {
            outs.answer(word, status);
        }
    }
}

/// The example: answers as many bytes as the query says (`?n=4096`), or what was sent to it. `?keep=60` lets the cache
/// have it; `?hang` and `?crash` do what they say.
/// `/dynamic/status` tells of the components and their memory.
#[derive(Debug)]
pub struct Example {
    domain: Domain,
}

impl Example {
    /// Makes it; `domain` asks the manager.
    #[must_use]
    pub fn new(domain: Domain) -> Example {
        Example { domain }
    }

    /// Tells of each pool: its component, what was allocated from it, its memory.
    fn tell(&self, exchange: &mut Exchange<'_>) -> Result<(), Error> {
        let (_, pools) = self.domain.admin().pool_figures()?;
        let lines: Vec<String> = pools
            .iter()
            .map(|pool| {
                let name: String = pool
                    .name
                    .chars()
                    .filter(|c| c.is_ascii_alphanumeric())
                    .collect();
                format!(
                    "{{\"name\":\"{name}\",\"allocs\":{},\"live_bytes\":{},\"granted_bytes\":{}}}",
                    pool.allocs, pool.live_bytes, pool.granted_bytes
                )
            })
            .collect();
        let text = format!("[{}]", lines.join(","));
        exchange.header("content-type", "application/json");
        exchange.header("cache-control", "no-store");
        exchange.body(text.len())?.copy_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Most bytes of the example's reply.
const MOST: usize = 16 << 20;

impl Handler for Example {
    fn handle(&mut self, exchange: &mut Exchange<'_>) -> Result<(), Error> {
        let request = exchange.request;
        if request.path == b"/dynamic/status" {
            return self.tell(exchange);
        }
        match request.query() {
            "crash" => std::process::abort(),
            "hang" => loop {
                std::thread::park();
            },
            _ => {}
        }
        let number = |name| request.field(name).map(|text| text.parse::<usize>().ok());
        exchange.header("content-type", "application/octet-stream");
        if let Some(seconds) = number("keep").flatten() {
            exchange.keep_for(u32::try_from(seconds).unwrap_or(u32::MAX));
        }
        if request.body_bytes > 0 {
            let pieces: Vec<Buffer> = exchange.pieces().cloned().collect();
            let bytes = pieces.iter().map(Buffer::len).sum();
            let mut to = exchange.body(bytes)?;
            for piece in pieces {
                let (here, rest) = to.split_at_mut(piece.len());
                let _ = piece.view().copy_to_slice(0, here);
                to = rest;
            }
            return Ok(());
        }
        match number("n") {
            None => exchange.body(0)?.fill(0),
            Some(Some(bytes)) if bytes <= MOST => exchange.body(bytes)?.fill(b'x'),
            Some(_) => exchange.status(400),
        }
        Ok(())
    }
}
