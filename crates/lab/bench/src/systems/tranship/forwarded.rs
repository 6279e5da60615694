//! Two domains pass on buffers that a third one wrote and that sleeps: every receipt checks the generation, and
//! nothing is ever allocated or collected.

use std::collections::VecDeque;

use anyhow::{Context, Result, ensure};
use tranship_core::{Buffer, Domain, Pool, Receiver, Sender};

use super::join;
use crate::case::{Case, Pattern};
use crate::party::Party;
use crate::peer::{Peer, Role};

/// What the third domain writes into every buffer.
const MARK: u64 = 0x7468_6972_645f_6f6e;
const INBOX: [&str; 2] = ["third to ping", "third to pong"];

pub struct Forwarded {
    ends: Option<Ends>,
    /// The third domain's, which must stay.
    _pool: Option<(Pool, Vec<Sender>)>,
    _domain: Domain,
}

struct Ends {
    stock: VecDeque<Buffer>,
    sender: Sender,
    receiver: Receiver,
    _inbox: Receiver,
}

impl Forwarded {
    fn ends(&mut self) -> Result<&mut Ends> {
        self.ends.as_mut().context("the third domain only sleeps")
    }
}

impl Peer for Forwarded {
    const NAME: &'static str = "tranship-forwarded";
    const THIRD: bool = true;

    fn refuses(case: &Case) -> Option<String> {
        (case.pattern == Pattern::Stream).then(|| "round trips only".to_owned())
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let domain = join::domain(role.index(), party)?;
        if role == Role::Third {
            let pool = domain.create_pool(join::pool_of(2 * case.buffers, case.payload))?;
            let mut senders = Vec::new();
            for inbox in INBOX {
                let mut sender = domain.open::<Sender>(inbox)?;
                pool.allow_forward(sender.peer())?;
                for _ in 0..case.buffers {
                    let mut buf = pool.alloc(case.payload)?;
                    buf[..8].copy_from_slice(&MARK.to_le_bytes());
                    sender.send(buf.freeze())?;
                }
                senders.push(sender);
            }
            return Ok(Self {
                ends: None,
                _pool: Some((pool, senders)),
                _domain: domain,
            });
        }
        let inbox = domain.listen::<Receiver>(INBOX[role.index()])?;
        let mut inbox = inbox.accept()?;
        let (sender, receiver) = join::links(&domain, case, role)?;
        let mut stock = VecDeque::with_capacity(case.buffers + 1);
        while stock.len() < case.buffers {
            stock.push_back(inbox.recv()?.into_buffer().context("no buffer")?);
        }
        Ok(Self {
            ends: Some(Ends {
                stock,
                sender,
                receiver,
                _inbox: inbox,
            }),
            _pool: None,
            _domain: domain,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        let ends = self.ends()?;
        let buf = ends.stock.pop_front().context("nothing to pass on")?;
        ends.sender.send_buf(buf, stamp)?;
        Ok(())
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        let ends = self.ends()?;
        let message = ends.receiver.recv()?;
        let stamp = message.word;
        let buf = message
            .into_buffer()
            .context("a message without a buffer")?;
        let mark = buf.view().read_u64(0)?;
        ensure!(mark == MARK, "message {stamp} has {mark:#x} in front");
        ends.stock.push_back(buf);
        Ok(stamp)
    }
}
