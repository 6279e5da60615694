//! Allocs that look into the counters of every reader.

use anyhow::{Context, Result};
use tranship_core::{BufferMut, Domain, Pool, Receiver, Sender};

use super::join;
use crate::case::Wait;
use crate::party::Party;
use crate::peer::{Collect, Size};

/// The system in `collect`.
pub struct Turns;

pub struct Owner {
    taken: Vec<BufferMut>,
    senders: Vec<Sender>,
    pool: Pool,
    payload: usize,
    _domain: Domain,
}

pub struct Reader {
    receiver: Receiver,
    _domain: Domain,
}

impl Collect for Turns {
    const NAME: &'static str = "tranship";
    type Owner = Owner;
    type Receiver = Reader;

    fn owner(size: Size, party: &Party) -> Result<Owner> {
        let domain = join::domain(0, party)?;
        let pool = domain.create_pool(join::pool_of(size.buffers, size.payload))?;
        // A whole turn is sent before anybody receives.
        let lines = u32::try_from(size.buffers)?;
        let listener =
            domain.listen_with::<Sender>("turns", join::options(Wait::Spin).lines(lines))?;
        let mut senders = Vec::with_capacity(size.receivers);
        for _ in 0..size.receivers {
            let mut sender = listener.accept()?;
            join::show(&mut sender, &pool)?;
            senders.push(sender);
        }
        Ok(Owner {
            taken: Vec::with_capacity(size.buffers),
            senders,
            pool,
            payload: size.payload,
            _domain: domain,
        })
    }

    fn receiver(_size: Size, party: &Party) -> Result<Reader> {
        // Any number but 0: the domains' names may be the same.
        let domain = join::domain(1, party)?;
        // A turn's messages are there when it receives: it waits for none of them.
        let options = join::options(Wait::Block);
        let mut receiver = domain.open_with::<Receiver>("turns", options)?;
        join::look(&mut receiver)?;
        Ok(Reader {
            receiver,
            _domain: domain,
        })
    }

    fn cached(owner: &mut Owner) -> Result<()> {
        drop(owner.pool.alloc(owner.payload)?);
        Ok(())
    }

    fn take(owner: &mut Owner) -> Result<()> {
        owner.taken.push(owner.pool.alloc(owner.payload)?);
        Ok(())
    }

    fn send_all(owner: &mut Owner) -> Result<()> {
        let (last, others) = owner.senders.split_last_mut().context("no receivers")?;
        for mut buf in owner.taken.drain(..) {
            buf[..8].copy_from_slice(&1u64.to_le_bytes());
            let buf = buf.freeze();
            for sender in &mut *others {
                sender.send(buf.clone())?;
            }
            last.send(buf)?;
        }
        Ok(())
    }

    fn receive(reader: &mut Reader) -> Result<()> {
        drop(reader.receiver.recv()?);
        Ok(())
    }
}
