//! Replies that are kept: the bodies stay in the memory of the component that made them.

use crate::reply::Heads;
use crate::request::{Method, Request, copy_record};
use crate::stage::{Outs, Stage, To};
use crate::word::Word;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tranship::{Body, Buffer, Pool};

/// Most bytes of a kept reply's headers, and most replies.
const HEADERS: usize = 8 << 10;
const REPLIES: usize = 4096;

/// Headers of requests that ask for another reply: for this client, or of a part.
const OTHERS: [&str; 5] = [
    "authorization",
    "cookie",
    "range",
    "cache-control",
    "pragma",
];

/// The component. Requests that it does not answer go on to `dynamic`.
#[derive(Debug)]
pub struct Cache {
    pool: Pool,
    heads: Heads,
    record: Vec<u8>,
    kept: HashMap<Vec<u8>, Kept>,
    /// Bytes of kept bodies, and the most.
    bytes: usize,
    most: usize,
}

#[derive(Debug)]
struct Kept {
    since: Instant,
    until: Instant,
    asked: bool,
    headers: String,
    body: Buffer,
}

impl Cache {
    /// Makes the component. It keeps bodies of at most `most` bytes together.
    #[must_use]
    pub fn new(pool: Pool, most: usize) -> Cache {
        Cache {
            pool,
            heads: Heads::default(),
            record: Vec::new(),
            kept: HashMap::new(),
            bytes: 0,
            most,
        }
    }

    /// Answers a request with what is kept, if there is something.
    fn find(&mut self, word: Word) -> Option<(Word, Body)> {
        if self.kept.is_empty() {
            return None;
        }
        let request = Request::read(&self.record)?;
        let is_other = |name: &str| OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other));
        if !matches!(request.method, Method::Get | Method::Head)
            || request.body_bytes > 0
            || request.headers().any(|(name, _)| is_other(name))
        {
            return None;
        }
        let key = key(&request);
        let now = Instant::now();
        let kept = self.kept.get_mut(&key)?;
        if now >= kept.until {
            self.forget(&key);
            return None;
        }
        kept.asked = true;
        let age = now.duration_since(kept.since).as_secs();
        let headers = format!("{}age: {age}\r\n", kept.headers);
        let body = Some(kept.body.clone());
        self.heads.reply(&self.pool, word, 200, &headers, body).ok()
    }

    /// Keeps a reply: the request's record, the headers, the body.
    fn keep(&mut self, seconds: u64, body: &Body) -> Option<()> {
        let Body::Aggregate(all) = body else {
            return None;
        };
        let pieces = all.pieces();
        let (headers, body) = (pieces.get(1)?, pieces.get(2)?);
        let request = Request::read(&self.record)?;
        if request.method != Method::Get || headers.len() > HEADERS || body.len() > self.most / 8 {
            return None;
        }
        let key = key(&request);
        self.forget(&key);
        if self.kept.len() >= REPLIES || self.bytes + body.len() > self.most {
            self.make_room();
        }
        let since = Instant::now();
        self.bytes += body.len();
        let kept = Kept {
            since,
            until: since + Duration::from_secs(seconds.min(1 << 31)),
            asked: true,
            headers: String::from_utf8(headers.to_vec()).ok()?,
            body: body.clone(),
        };
        self.kept.insert(key, kept);
        Some(())
    }

    fn forget(&mut self, key: &[u8]) {
        if let Some(gone) = self.kept.remove(key) {
            self.bytes -= gone.body.len();
        }
    }

    /// Forgets replies that are over or were not asked for since the last time; all, if that is not half of them.
    fn make_room(&mut self) {
        let (before, now) = (self.kept.len(), Instant::now());
        self.kept
            .retain(|_, kept| now < kept.until && std::mem::take(&mut kept.asked));
        if self.kept.len() > before / 2 {
            self.kept.clear();
        }
        self.bytes = self.kept.values().map(|kept| kept.body.len()).sum();
    }
}

/// Returns the name of a reply: host and target.
fn key(request: &Request<'_>) -> Vec<u8> {
    let host = request.header("host").unwrap_or_default();
    [host, b" ", request.target.as_bytes()].concat()
}

impl Stage for Cache {
    fn take(&mut self, from: To, word: Word, body: Body, outs: &mut Outs) {
        let read = copy_record(&body, &mut self.record);
        if from != To::Route && from != To::Guard {
            // One that cannot be kept is made again.
            if read {
                let _ = self.keep(word.0, &body);
            }
            return;
        }
        if !read {
            return outs.answer(word, 500);
        }
        match self.find(word) {
            Some((word, reply)) => outs.send(To::Front, word, reply),
            None => outs.send(To::Dynamic, word, body),
        }
    }
}
