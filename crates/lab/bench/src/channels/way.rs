//! A buffer moved to the other side and given back by it, one in flight.
//!
//! Where the memory stays the sender's, the buffer itself is passed back. Where what arrives is a copy, the receiver drops it and says so with an empty
//! message over a channel back.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tranship_core::{Body, BufferMut, Message, Pool, Receiver, Sender, View, Wait};

use super::Level;
use super::meet::{self, Side};
use super::trip::{STOP, Stream, sample};
use crate::case::Touch;
use crate::party::{self, Member, Party};
use crate::stats::Measured;

/// A Unix socket, for comparison.
pub const STREAM: &str = "stream";

/// So that the allocator is in the path, and not much memory.
const BUFFERS: usize = 4;
/// Its channels.
const OUT: usize = 0;
const BACK: usize = 1;

/// What goes over, and how.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// A scheme, or [`STREAM`].
    pub scheme: &'static str,
    pub level: Level,
    pub touch: Touch,
    pub payload: usize,
    pub cores: [usize; 2],
    pub budget: Duration,
}

impl Way {
    /// One run.
    pub fn measure(self, number: u64) -> Result<Vec<Measured>> {
        if self.scheme == STREAM {
            return self.socket(number);
        }
        meet::run(self.scheme, &self.cores, number, |side| {
            Ok(match side.me {
                0 => vec![Near::open(self, side)?.measure(side)?],
                _ => {
                    Far::open(self, side)?.answer(side)?;
                    Vec::new()
                }
            })
        })
    }

    fn socket(self, number: u64) -> Result<Vec<Measured>> {
        let stream = Stream {
            payload: self.payload,
            budget: self.budget,
        };
        let member = |at: usize| Member {
            core: self.cores[at],
            body: Box::new(move |party: &Party| match at {
                0 => Ok(vec![stream.pour(party)?]),
                _ => stream.answer(party).map(|()| Vec::new()),
            }),
        };
        let both = party::run(number, vec![member(0), member(1)])?;
        Ok(both.into_iter().flatten().collect())
    }

    fn address(self, side: &Side<'_>, link: usize) -> String {
        meet::address(self.scheme, side.run, link)
    }

    fn copies(self) -> bool {
        meet::copies(self.scheme, self.level)
    }

    /// A carrier's threads run on the core of their side, which must leave it to them.
    fn wait(self) -> Wait {
        match self.scheme {
            "shm" | "local" => Wait::Spin,
            _ => Wait::Sleep,
        }
    }

    /// Writes as much as is to be written.
    fn fill(self, buf: &mut BufferMut, stamp: u64) -> Result<()> {
        if self.touch != Touch::Untouched {
            // From here on it is ready to be written in place.
            buf.write(0, &stamp.to_le_bytes())?;
        }
        Ok(())
    }

    /// Reads as much as is to be read; gives the stamp.
    fn look(self, view: View<'_>, word: u64) -> Result<u64> {
        match self.touch {
            Touch::Untouched => Ok(word),
            _ => Ok(view.read::<u64>(0)?),
        }
    }
}

struct Near {
    way: Way,
    pool: Pool,
    sender: Sender,
    back: Option<Receiver>,
}

impl Near {
    fn open(way: Way, side: &Side<'_>) -> Result<Near> {
        let domain = &side.domain;
        let options = meet::options(way.wait(), None);
        let pool = meet::pool(domain, BUFFERS, way.payload, way.level)?;
        let sender = meet::sender(domain, &way.address(side, OUT), options.clone())?;
        let back = match way.copies() {
            true => Some(meet::receiver(domain, &way.address(side, BACK), options)?),
            false => None,
        };
        Ok(Near {
            way,
            pool,
            sender,
            back,
        })
    }

    fn measure(mut self, side: &Side<'_>) -> Result<Measured> {
        let measured = sample(self.way.budget, |stamp| self.trip(stamp))?;
        self.trip(STOP)?;
        side.meet()?;
        Ok(measured)
    }

    #[inline]
    fn trip(&mut self, stamp: u64) -> Result<()> {
        let mut buf = self.pool.alloc(self.way.payload)?;
        self.way.fill(&mut buf, stamp)?;
        self.sender.send((buf, stamp))?;
        let back = match &mut self.back {
            Some(back) => back.recv()?.word,
            None => passed_back(&mut self.sender)?.word,
        };
        ensure!(back == stamp, "sent {stamp}, got {back} back");
        Ok(())
    }
}

#[inline]
fn passed_back(sender: &mut Sender) -> Result<Message> {
    loop {
        match sender.try_recv_back()? {
            Some(message) => return Ok(message),
            None => std::hint::spin_loop(),
        }
    }
}

struct Far {
    way: Way,
    receiver: Receiver,
    back: Option<Sender>,
    /// What comes goes there, where it is a copy.
    _copies: Option<Pool>,
}

impl Far {
    fn open(way: Way, side: &Side<'_>) -> Result<Far> {
        let domain = &side.domain;
        let copies = match way.copies() {
            true => Some(meet::pool(domain, BUFFERS, way.payload, Level::Producer)?),
            false => None,
        };
        let options = meet::options(way.wait(), copies.as_ref());
        let receiver = domain.open_with::<Receiver>(&way.address(side, OUT), options)?;
        let back = match way.copies() {
            true => {
                let options = meet::options(way.wait(), None);
                Some(domain.open_with::<Sender>(&way.address(side, BACK), options)?)
            }
            false => None,
        };
        Ok(Far {
            way,
            receiver,
            back,
            _copies: copies,
        })
    }

    fn answer(mut self, side: &Side<'_>) -> Result<()> {
        loop {
            let message = self.receiver.recv().context("the next buffer")?;
            let stamp = match &message.body {
                Body::Buffer(buf) => self.way.look(buf.view(), message.word)?,
                Body::BufferMut(buf) => self.way.look(buf.view(), message.word)?,
                _ => bail!("a message without a buffer"),
            };
            match (&mut self.back, message.body) {
                (None, Body::Buffer(buf)) => self.receiver.send_back((buf, stamp))?,
                (None, Body::BufferMut(buf)) => self.receiver.send_back((buf, stamp))?,
                (None, _) => {}
                (Some(back), body) => {
                    drop(body);
                    back.send((&[], stamp))?;
                }
            }
            if stamp == STOP {
                return side.meet();
            }
        }
    }
}
