//! Loans that take back what subscribers have returned: iceoryx2's collection.

use std::mem::MaybeUninit;

use anyhow::{Context, Result, ensure};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::Node;
use iceoryx2::sample_mut_uninit::SampleMutUninit;

use super::{Iceoryx2, Service, Shape, Slices, node, publisher, slices, subscriber, text};
use crate::party::Party;
use crate::peer::{Collect, Peer, Size};

type Loan = SampleMutUninit<Service, [MaybeUninit<u64>], ()>;

pub struct Owner {
    taken: Vec<Loan>,
    publisher: Publisher<Service, [u64], ()>,
    _node: Node<Service>,
    size: Size,
}

pub struct Receiver {
    subscriber: Subscriber<Service, [u64], ()>,
    _node: Node<Service>,
}

fn service(node: &Node<Service>, size: Size) -> Result<Slices<()>> {
    let shape = Shape {
        subscribers: size.receivers,
        nodes: size.receivers + 1,
        queue: size.buffers,
        borrowed: 1,
        overflows: false,
    };
    slices(node, "collect", &shape)
}

fn loan(owner: &Owner) -> Result<Loan> {
    let loan = owner.publisher.loan_slice_uninit(owner.size.payload / 8);
    loan.map_err(text("loan"))
}

impl Collect for Iceoryx2 {
    const NAME: &'static str = <Self as Peer>::NAME;
    type Owner = Owner;
    type Receiver = Receiver;

    fn owner(size: Size, party: &Party) -> Result<Owner> {
        let node = node(party.run)?;
        let publisher = publisher(&service(&node, size)?, size.buffers, size.payload / 8)?;
        party.barrier()?;
        publisher.update_connections().map_err(text("connect"))?;
        Ok(Owner {
            taken: Vec::with_capacity(size.buffers),
            publisher,
            _node: node,
            size,
        })
    }

    fn receiver(size: Size, party: &Party) -> Result<Receiver> {
        let node = node(party.run)?;
        let subscriber = subscriber(&service(&node, size)?, size.buffers)?;
        party.barrier()?;
        subscriber.update_connections().map_err(text("connect"))?;
        Ok(Receiver {
            subscriber,
            _node: node,
        })
    }

    fn cached(owner: &mut Owner) -> Result<()> {
        loan(owner).map(drop)
    }

    fn take(owner: &mut Owner) -> Result<()> {
        owner.taken.push(loan(owner)?);
        Ok(())
    }

    fn send_all(owner: &mut Owner) -> Result<()> {
        for mut loan in owner.taken.drain(..) {
            loan.payload_mut()
                .first_mut()
                .context("empty payload")?
                .write(1);
            // SAFETY: words may hold anything, and the segment's pages are there.
            let receivers = unsafe { loan.assume_init() }.send().map_err(text("send"))?;
            ensure!(
                receivers == owner.size.receivers,
                "iceoryx2: delivered to {receivers}"
            );
        }
        Ok(())
    }

    fn receive(receiver: &mut Receiver) -> Result<()> {
        let subscriber = &receiver.subscriber;
        while subscriber.receive().map_err(text("receive"))?.is_none() {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn clean(run: u64) {
        <Self as Peer>::clean(run);
    }
}
