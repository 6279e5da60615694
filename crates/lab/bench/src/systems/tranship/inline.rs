//! Messages inside the descriptor: no buffer.

use anyhow::{Result, bail};
use tranship_core::{Body, Domain, INLINE_BYTES, Receiver, Sender};

use super::join;
use crate::case::{Case, Touch};
use crate::party::Party;
use crate::peer::{Peer, Role};

pub struct Inlined {
    sender: Sender,
    receiver: Receiver,
    payload: usize,
    touch: Touch,
    _domain: Domain,
}

impl Peer for Inlined {
    const NAME: &'static str = "tranship-inline";

    fn refuses(case: &Case) -> Option<String> {
        (case.payload > INLINE_BYTES).then(|| format!("at most {INLINE_BYTES} bytes"))
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let domain = join::domain(role.index(), party)?;
        let (sender, receiver) = join::links(&domain, case, role)?;
        Ok(Self {
            sender,
            receiver,
            payload: case.payload,
            touch: case.touch,
            _domain: domain,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        let mut bytes = [stamp.to_le_bytes()[0]; INLINE_BYTES];
        bytes[..8].copy_from_slice(&stamp.to_le_bytes());
        self.sender.send((&bytes[..self.payload], stamp))?;
        Ok(())
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        let message = self.receiver.recv()?;
        let Body::Inline(bytes) = message.body else {
            bail!("a message that is not inline");
        };
        if self.touch == Touch::Untouched {
            return Ok(message.word);
        }
        let Some(word) = bytes.first_chunk::<8>() else {
            bail!("{} bytes", bytes.len());
        };
        Ok(u64::from_le_bytes(*word))
    }
}
