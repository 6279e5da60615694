//! A call of a service: the argument goes by reference, and so does the result.

use anyhow::{Context, Result, bail};
use tranship_core::{Domain, Message, Pool};
use tranship_service::{Call, Client, Request, Service, ServiceOptions, Services};

use super::join;
use crate::case::{Case, Touch};
use crate::party::Party;
use crate::peer::{Peer, Role};

enum Side {
    Caller(Client, Option<Call>),
    Worker(Service, Option<Request>),
}

pub struct Served {
    side: Side,
    pool: Pool,
    payload: usize,
    _domain: Domain,
}

/// Reads the stamp, and releases the buffer.
#[inline(always)]
fn stamp(message: Message) -> Result<u64> {
    let held = message.into_buffer();
    let held = held.context("a message without a buffer")?;
    Ok(held.view().read::<u64>(0)?)
}

impl Peer for Served {
    const NAME: &'static str = "tranship-service";

    fn refuses(case: &Case) -> Option<String> {
        (case.touch != Touch::Word).then(|| "it carries its stamp in the first word".to_owned())
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let domain = join::domain_with(role.index(), party, case.helper)?;
        let pool = domain.create_pool(join::pool_of(case.buffers, case.payload))?;
        let options = ServiceOptions::new().wait(join::wait(case.wait));
        let side = if role == Role::Ping {
            Side::Caller(domain.client_with("work", options)?, None)
        } else {
            let service = domain.serve_with("work", options)?;
            while service.clients() != Some(1) {
                if service.try_recv()?.is_some() {
                    bail!("a request before the run began");
                }
                std::thread::yield_now();
            }
            Side::Worker(service, None)
        };
        join::grow(&pool, case)?;
        Ok(Self {
            side,
            pool,
            payload: case.payload,
            _domain: domain,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        let mut buffer = self.pool.alloc(self.payload)?;
        buffer[..8].copy_from_slice(&stamp.to_le_bytes());
        let buffer = buffer.freeze();
        match &mut self.side {
            Side::Caller(client, call) => *call = Some(client.begin(buffer)?),
            Side::Worker(_, request) => {
                let request = request.take().context("no request to be answered")?;
                request.reply(buffer)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        match &mut self.side {
            Side::Caller(_, call) => {
                let call = call.take().context("no call in flight")?;
                stamp(call.wait()?)
            }
            Side::Worker(service, kept) => {
                let mut request = service.recv()?;
                // Released now, as a channel's receiver does before it answers.
                let body = request.take_body();
                *kept = Some(request);
                let stamp = stamp(Message { word: 0, body })?;
                Ok(stamp)
            }
        }
    }
}
