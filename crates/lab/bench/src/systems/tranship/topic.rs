//! A topic each way, with one subscriber: what a message costs that could go to many.

use anyhow::{Context, Result, bail};
use tranship_core::{Body, Domain};
use tranship_topic::{Publisher, Subscriber, SubscriberOptions, TopicOptions, Topics};

use super::join;
use crate::case::{Case, Pattern, Touch, Wait};
use crate::party::Party;
use crate::peer::{Peer, Role};

pub struct Published {
    publisher: Publisher,
    subscriber: Subscriber,
    payload: usize,
    _domain: Domain,
}

impl Peer for Published {
    const NAME: &'static str = "tranship-topic";

    fn refuses(case: &Case) -> Option<String> {
        if case.touch != Touch::Word {
            return Some("it carries its stamp in the first word".to_owned());
        }
        (case.pattern != Pattern::RoundTrip).then(|| "`topic` measures its stream".to_owned())
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let domain = join::domain_with(role.index(), party, case.helper)?;
        let (mine, theirs) = match role {
            Role::Ping => ("out", "back"),
            Role::Pong => ("back", "out"),
        };
        let pool = join::pool_of(case.buffers, case.payload);
        let mut publisher = domain.publish_with(mine, TopicOptions::new().pool(pool))?;
        party.barrier()?;
        let wait = match case.wait {
            Wait::Spin => tranship_core::Wait::Spin,
            Wait::Block => tranship_core::Wait::Sleep,
        };
        let options = SubscriberOptions::new().wait(wait);
        let mut subscriber = domain.subscribe_with(theirs, options)?;
        // Both join at once: each publisher admits while its process waits to be admitted.
        while !subscriber.status().joined || publisher.subscribers() == 0 {
            if subscriber.try_recv()?.is_some() {
                bail!("a message before the run began");
            }
            publisher.tend()?;
            std::thread::yield_now();
        }
        Ok(Self {
            publisher,
            subscriber,
            payload: case.payload,
            _domain: domain,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        let mut message = self.publisher.alloc(self.payload)?;
        message.write(0, &stamp.to_le_bytes())?;
        self.publisher.send(message)?;
        Ok(())
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        match self.subscriber.recv().context("a message")?.body {
            Body::Buffer(buffer) => Ok(buffer.view().read::<u64>(0)?),
            other => bail!("a message without a buffer: {other:?}"),
        }
    }
}
