//! Chains across domains: sent as aggregates, received as chains of mini-mbufs.

use crate::alloc::Mbufs;
use crate::chain::Chain;
use crate::counts::{Routine, add, count};
use crate::error::{Error, NoBuffers, What};
use crate::flags::{Flags, Kind};
use crate::seg::Seg;
use std::fmt;
use tranship_core::{Aggregate, Body, Buffer, BufferMut, MAX_PIECES, Message, Pool};

impl Chain {
    /// Makes an aggregate of the bytes, to be sent. Buffers are not copied: each is a piece. Bytes elsewhere (in mbufs
    /// themselves, in private clusters, in files) are copied into buffers of `pool`, neighbours into one. The number of
    /// copied bytes is counted, and returned.
    ///
    /// The chain stays: drop it once the aggregate is sent, or keep it for sending again. Sent buffers can no longer be
    /// written in place.
    ///
    /// # Errors
    /// `TooMany` pieces for one message ([`MAX_PIECES`](tranship_core::MAX_PIECES)); `NoBuffers` when there is no
    /// memory, or a limit is reached, also in the pool; `File` where a piece of a file cannot be read. It waits only
    /// for files.
    pub fn to_aggregate(&self, pool: &Pool) -> Result<(Aggregate, usize), Error> {
        let mut aggregate = Aggregate::new();
        let full = |_| Error::TooMany {
            needed: self.count(),
            limit: MAX_PIECES,
        };
        let (mut copied, mut at) = (0, Some(self.first()));
        aggregate.set_list_pool(pool);
        while let Some(seg) = at {
            if let Some(buf) = seg.buffer() {
                if seg.len() > 0 {
                    aggregate.push_back(part(seg, buf)).map_err(full)?;
                }
                at = seg.next();
                continue;
            }
            // Neighbours that have to be copied.
            let run = || seg.walk().take_while(|seg| seg.buffer().is_none());
            let len: usize = run().map(Seg::len).sum();
            if len > 0 {
                let mut buf = alloc(pool, len)?;
                let mut done = 0;
                for seg in run() {
                    seg.read(0, &mut buf[done..done + seg.len()])?;
                    done += seg.len();
                }
                copied += len;
                aggregate.push_back(buf.freeze()).map_err(full)?;
            }
            at = run().last().and_then(Seg::next);
        }
        count(Routine::Sent);
        add(Routine::SentCopiedBytes, copied as u64);
        self.inner().sizes.count(self.len());
        Ok((aggregate, copied))
    }
}

/// Returns the part of a buffer that is an mbuf's data.
fn part(seg: Seg, buf: &Buffer) -> Buffer {
    let at = seg.data().addr() - buf.view().as_ptr().addr();
    buf.slice(at..at + seg.len())
}

fn alloc(pool: &Pool, len: usize) -> Result<BufferMut, NoBuffers> {
    if crate::inject::fails() {
        return Err(What::Pool.into());
    }
    pool.try_alloc(len).map_err(NoBuffers::pool)
}

/// A message or an aggregate that could not become a chain, given back.
pub struct NotReceived<T> {
    /// Why.
    pub error: Error,
    /// The value that was not received.
    pub unreceived: T,
}

impl<T> fmt::Debug for NotReceived<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotReceived({:?})", self.error)
    }
}

impl<T> fmt::Display for NotReceived<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl<T> std::error::Error for NotReceived<T> {}

impl Mbufs {
    /// Makes a packet of a received message. Buffers become mini-mbufs over the sender's memory, without copying, and
    /// are released when they are dropped. Bytes inside the message are copied.
    ///
    /// # Errors
    /// The message comes back with `NoBuffers`.
    pub fn receive(&self, message: Message) -> Result<Chain, NotReceived<Message>> {
        let word = message.word;
        let back = |body| Message { word, body };
        match message.body {
            Body::Buffer(buf) => self.from_buffer(buf).map_err(|failed| NotReceived {
                error: failed.error,
                unreceived: back(Body::Buffer(failed.unreceived)),
            }),
            // Mbufs may share it from here on.
            Body::BufferMut(buf) => self
                .from_buffer(buf.freeze())
                .map_err(|failed| NotReceived {
                    error: failed.error,
                    unreceived: back(Body::Buffer(failed.unreceived)),
                }),
            Body::AggregateMut(all) => {
                self.from_aggregate(all.freeze())
                    .map_err(|failed| NotReceived {
                        error: failed.error,
                        unreceived: back(Body::Aggregate(failed.unreceived)),
                    })
            }
            // No receiver gets this kind.
            Body::Released(id) => self.devget(&[], 0).map_err(|error| NotReceived {
                error,
                unreceived: back(Body::Released(id)),
            }),
            Body::Aggregate(all) => self.from_aggregate(all).map_err(|failed| NotReceived {
                error: failed.error,
                unreceived: back(Body::Aggregate(failed.unreceived)),
            }),
            Body::Inline(inline) => self.devget(&inline, 0).map_err(|error| NotReceived {
                error,
                unreceived: back(Body::Inline(inline)),
            }),
        }
    }

    /// Makes a packet of one buffer.
    ///
    /// # Errors
    /// The buffer comes back with `NoBuffers`.
    pub fn from_buffer(&self, buf: Buffer) -> Result<Chain, NotReceived<Buffer>> {
        let mut chain = match self.mini() {
            Ok(chain) => chain,
            Err(error) => {
                return Err(NotReceived {
                    error: error.into(),
                    unreceived: buf,
                });
            }
        };
        match chain.attach_buffer(buf) {
            Ok(()) => {
                self.received(&chain);
                Ok(chain)
            }
            Err((error, unreceived)) => Err(NotReceived { error, unreceived }),
        }
    }

    /// Makes a packet of an aggregate's pieces.
    ///
    /// # Errors
    /// The aggregate comes back with `NoBuffers`.
    pub fn from_aggregate(&self, all: Aggregate) -> Result<Chain, NotReceived<Aggregate>> {
        match self.minis_over(&all) {
            Ok(chain) => {
                self.received(&chain);
                Ok(chain)
            }
            Err(error) => Err(NotReceived {
                error,
                unreceived: all,
            }),
        }
    }

    fn minis_over(&self, all: &Aggregate) -> Result<Chain, Error> {
        let mut chain = self.mini()?;
        let mut last: Option<Seg> = None;
        for piece in all.pieces().iter().filter(|piece| !piece.is_empty()) {
            let put = |mbuf: &mut Chain| {
                mbuf.attach_buffer(piece.clone())
                    .map_err(|(error, _)| error)
            };
            match last {
                None => {
                    put(&mut chain)?;
                    last = Some(chain.first());
                }
                Some(before) => {
                    let mini = self.inner.mini(self.how, Kind::DATA, Flags::NONE)?;
                    let mut mini = Chain::new(mini);
                    put(&mut mini)?;
                    chain.first().grow_packet(mini.len());
                    let mini = mini.into_first();
                    before.set_next(Some(mini));
                    last = Some(mini);
                }
            }
        }
        Ok(chain)
    }

    fn received(&self, chain: &Chain) {
        count(Routine::Received);
        self.inner.sizes.count(chain.len());
    }
}
