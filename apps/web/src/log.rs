//! The access log: the guard shows each request, the front each answer, and a line has both. It is on no request's path.

use crate::front::LINE;
use crate::reply::{http_date, second_now};
use crate::request::{Request, copy_record};
use crate::stage::{Outs, Stage, To};
use crate::word::Word;
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;
use tranship::Body;

/// Requests whose answers are still to come; more than these are written without what was asked for.
const PENDING: usize = 8192;
/// Most bytes of a target and of a client's name in a line.
const TEXT: usize = 256;

/// The component: writes lines `date status bytes microseconds "method target" "client"`.
pub struct Log {
    to: Box<dyn Write>,
    record: Vec<u8>,
    asked: HashMap<u64, String>,
    lines: Vec<u8>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Log {
    /// Makes the component. Lines that `to` does not take are lost.
    #[must_use]
    pub fn new(to: Box<dyn Write>) -> Log {
        Log {
            to,
            record: Vec::new(),
            asked: HashMap::new(),
            lines: Vec::new(),
        }
    }

    fn note(&mut self, word: Word) {
        let Some(request) = Request::read(&self.record) else {
            return;
        };
        if self.asked.len() >= PENDING {
            self.asked.clear();
        }
        let client = request.header("user-agent").unwrap_or_default();
        let (method, target) = (request.method.name(), clean(request.target.as_bytes()));
        let line = format!("\"{method} {target}\" \"{}\"", clean(client));
        self.asked.insert(word.name(), line);
    }

    fn write(&mut self, lines: &[u8]) {
        let date = http_date(second_now());
        for line in lines.chunks_exact(LINE) {
            let number = |at: usize| line[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
            let (word, bytes) = (Word(number(0)), number(8));
            let took = line[16..].try_into().map_or(0, u32::from_le_bytes);
            let asked = self.asked.remove(&word.name());
            let asked = asked.as_deref().unwrap_or("\"-\" \"-\"");
            // A vector takes everything.
            let _ = writeln!(
                self.lines,
                "{date} {} {bytes} {took} {asked}",
                word.status()
            );
        }
    }
}

/// Returns a text as it may stand in a line between quotes.
fn clean(text: &[u8]) -> String {
    let text = &text[..text.len().min(TEXT)];
    let fine = |byte: &u8| match byte {
        b'"' | b'\\' | 0x7f.. | ..b' ' => '.',
        byte => char::from(*byte),
    };
    text.iter().map(fine).collect()
}

impl Stage for Log {
    fn take(&mut self, from: To, word: Word, body: Body, _: &mut Outs) {
        match (from, body) {
            (To::Front, Body::Buffer(lines)) => self.write(&lines.to_vec()),
            (To::Front, _) => {}
            (_, body) => {
                if copy_record(&body, &mut self.record) {
                    self.note(word);
                }
            }
        }
    }

    fn idle(&mut self, _: &mut Outs) -> Option<Duration> {
        if !self.lines.is_empty() {
            // A disk that is full costs lines, and no request.
            let _ = self
                .to
                .write_all(&self.lines)
                .and_then(|()| self.to.flush());
            self.lines.clear();
        }
        None
    }
}
