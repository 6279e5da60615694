//! A buffer moved to the other process, and passed back by it.

use anyhow::{Context, Result, bail};
use tranship_core::{Body, BufferMut, Domain, Pool, Receiver, Sender, Trust};

use super::join;
use crate::case::{Case, Pattern, Touch, Wait};
use crate::party::Party;
use crate::peer::{Peer, Role};

/// At level `full`, or else at `producer`.
pub struct Moved<const FULL: bool> {
    ends: Ends,
    _domain: Domain,
}

enum Ends {
    /// With the pool's memory.
    Mover(Sender, Pool, Case),
    /// With the buffer that it has until it goes back.
    Passer(Receiver, Option<BufferMut>, Touch),
}

impl<const FULL: bool> Peer for Moved<FULL> {
    const NAME: &'static str = match FULL {
        true => "tranship-moved-full",
        false => "tranship-moved-producer",
    };

    fn refuses(case: &Case) -> Option<String> {
        match (case.pattern, case.wait) {
            (Pattern::Stream, _) => Some("round trips only".to_owned()),
            (_, Wait::Block) => Some("what is passed back is looked for".to_owned()),
            _ => None,
        }
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let domain = join::domain(role.index(), party)?;
        let (mut sender, mut receiver) = join::links(&domain, case, role)?;
        let ends = match role {
            Role::Ping => {
                let trust = match FULL {
                    true => Trust::Full,
                    false => Trust::Producer,
                };
                let options = join::pool_of(case.buffers, case.payload).trust(trust);
                let pool = domain.create_pool(options)?;
                join::show(&mut sender, &pool)?;
                join::grow(&pool, case)?;
                Ends::Mover(sender, pool, case.clone())
            }
            _ => {
                join::look(&mut receiver)?;
                Ends::Passer(receiver, None, case.touch)
            }
        };
        Ok(Self {
            ends,
            _domain: domain,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        match &mut self.ends {
            Ends::Mover(sender, pool, case) => {
                let mut buf = pool.alloc(case.payload)?;
                if case.touch == Touch::Word {
                    buf.write(0, &stamp.to_le_bytes())?;
                }
                sender.move_buffer_with(buf, stamp)?;
                Ok(())
            }
            Ends::Passer(receiver, held, touch) => {
                let mut buf = held.take().context("nothing to pass back")?;
                if *touch == Touch::Word && FULL {
                    buf.write(0, &stamp.to_le_bytes())?;
                }
                Ok(receiver.pass_with(buf, stamp)?)
            }
        }
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        match &mut self.ends {
            Ends::Mover(sender, _, case) => loop {
                let Some(reply) = sender.try_recv_back()? else {
                    std::hint::spin_loop();
                    continue;
                };
                let Body::BufferMut(buf) = reply.body else {
                    bail!("a reply without a buffer");
                };
                return match case.touch {
                    Touch::Word => Ok(buf.view().read_u64(0)?),
                    _ => Ok(reply.word),
                };
            },
            Ends::Passer(receiver, held, touch) => {
                let message = receiver.recv()?;
                let Body::BufferMut(buf) = message.body else {
                    bail!("a message without a buffer");
                };
                let stamp = match touch {
                    Touch::Word => buf.view().read_u64(0)?,
                    _ => message.word,
                };
                *held = Some(buf);
                Ok(stamp)
            }
        }
    }
}
