//! A buffer moved to the other side and given back by it.
//!
//! Where the memory stays the sender's, the buffer itself is passed back. Where a copy arrives, the receiver drops it
//! and says so with an empty message over a channel back.

use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use tranship_core::{Body, ChannelOptions, Domain, Pool, Receiver, Sender, Trust, Wait};

use super::join;
use crate::case::{Case, Touch};
use crate::party::Party;
use crate::peer::{Peer, Role};

/// Ports of this machine that benches use, each run other ones.
const PORTS: [u64; 2] = [21_000, 9_000];

/// An address of this run; `link` tells its channels apart.
pub fn address(scheme: &str, run: u64, link: u64) -> String {
    let name = format!("bench-{run:x}-{link}");
    if !scheme.starts_with("tcp") {
        return format!("{scheme}:{name}");
    }
    let port = PORTS[0] + (run * 16 + link) % PORTS[1];
    format!("{scheme}:127.0.0.1:{port}/{name}")
}

/// A domain that understands all addresses. All sides of `local` have one.
pub fn domain(scheme: &str, me: usize, party: &Party) -> Result<Domain> {
    static SHARED: OnceLock<Domain> = OnceLock::new();
    let domain = match (scheme, me) {
        ("local", 1..) => {
            // The first after the manager, the second after the domain.
            party.barrier()?;
            party.barrier()?;
            let shared = SHARED.get().context("no domain of the other thread's")?;
            return Ok(shared.clone());
        }
        _ => join::domain(me, party)?,
    };
    tranship_channel::add_to(&domain)?;
    if scheme == "local" {
        SHARED.get_or_init(|| domain.clone());
        party.barrier()?;
    }
    Ok(domain)
}

/// A pool in which the buffers fit, with all its memory.
fn pool(domain: &Domain, case: &Case, level: Trust) -> Result<Pool> {
    let options = join::pool_of(case.buffers, case.payload).trust(level);
    let (bytes, ..) = join::shape_of(case.buffers, case.payload);
    Ok(domain.create_pool(options.preallocate(bytes))?)
}

enum Side {
    Near {
        pool: Pool,
        sender: Sender,
        back: Option<Receiver>,
    },
    Far {
        receiver: Receiver,
        back: Option<Sender>,
        held: Option<Body>,
        /// Copies that arrive go there.
        _copies: Option<Pool>,
    },
}

pub struct Moved {
    side: Side,
    payload: usize,
    touch: Touch,
    _domain: Domain,
}

impl Peer for Moved {
    const NAME: &'static str = "moved";

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let (scheme, level) = case.way;
        let domain = domain(scheme, role.index(), party)?;
        let [out, back] = [0, 1].map(|link| address(scheme, party.run, link));
        let copies = !(scheme == "local" || scheme == "shm" && level != Trust::None);
        // A carrier's threads run on the core of their side, which must leave it to them.
        let options = ChannelOptions::new().wait(match scheme {
            "shm" | "local" => Wait::Spin,
            _ => Wait::Sleep,
        });
        let side = if role == Role::Ping {
            let pool = pool(&domain, case, level)?;
            let listener = domain.listen_with::<Sender>(&out, options.clone());
            let listener = listener.with_context(|| format!("listening at {out}"))?;
            let sender = listener.accept()?;
            let back = match copies {
                true => Some(domain.listen_with::<Receiver>(&back, options)?.accept()?),
                false => None,
            };
            Side::Near { pool, sender, back }
        } else {
            let (mut to_copies, mut copies_to, mut taking) = (None, None, options.clone());
            if copies {
                let pool = pool(&domain, case, Trust::Producer)?;
                taking = taking.snapshots(pool.id());
                to_copies = Some(pool);
            }
            let receiver = domain.open_with::<Receiver>(&out, taking)?;
            if copies {
                copies_to = Some(domain.open_with::<Sender>(&back, options)?);
            }
            Side::Far {
                receiver,
                back: copies_to,
                held: None,
                _copies: to_copies,
            }
        };
        Ok(Self {
            side,
            payload: case.payload,
            touch: case.touch,
            _domain: domain,
        })
    }

    #[inline]
    fn send(&mut self, stamp: u64) -> Result<()> {
        match &mut self.side {
            Side::Near { pool, sender, .. } => {
                let mut buf = pool.alloc(self.payload)?;
                if self.touch != Touch::Untouched {
                    // From here on it is ready to be written in place.
                    buf.write(0, &stamp.to_le_bytes())?;
                }
                sender.send((buf, stamp))?;
            }
            Side::Far {
                receiver,
                back,
                held,
                ..
            } => match (back, held.take()) {
                (Some(back), body) => {
                    drop(body);
                    back.send((&[], stamp))?;
                }
                (None, Some(Body::Buffer(buf))) => receiver.send_back((buf, stamp))?,
                (None, Some(Body::BufferMut(buf))) => receiver.send_back((buf, stamp))?,
                (None, _) => bail!("a message without a buffer"),
            },
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self) -> Result<u64> {
        match &mut self.side {
            Side::Near {
                back: Some(back), ..
            } => Ok(back.recv()?.word),
            Side::Near { sender, .. } => loop {
                match sender.try_recv_back()? {
                    Some(message) => return Ok(message.word),
                    None => std::hint::spin_loop(),
                }
            },
            Side::Far { receiver, held, .. } => {
                let message = receiver.recv().context("the next buffer")?;
                let view = match &message.body {
                    Body::Buffer(buf) => buf.view(),
                    Body::BufferMut(buf) => buf.view(),
                    _ => bail!("a message without a buffer"),
                };
                let stamp = match self.touch {
                    Touch::Untouched => message.word,
                    _ => view.read::<u64>(0)?,
                };
                *held = Some(message.body);
                Ok(stamp)
            }
        }
    }
}
