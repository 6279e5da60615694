//! Loans that take back what subscribers have returned: iceoryx2's collection.

use std::mem::MaybeUninit;

use anyhow::{Context, Result, ensure};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::{AllocationStrategy, Node};
use iceoryx2::sample_mut_uninit::SampleMutUninit;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use super::{Iceoryx2, Service, node, text};
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

fn service(node: &Node<Service>, size: Size) -> Result<PortFactory<Service, [u64], ()>> {
    node.service_builder(&"collect".try_into().map_err(text("name"))?)
        .publish_subscribe::<[u64]>()
        .max_publishers(1)
        .max_subscribers(size.receivers)
        .max_nodes(size.receivers + 1)
        .history_size(0)
        .subscriber_max_buffer_size(size.buffers)
        .subscriber_max_borrowed_samples(1)
        .enable_safe_overflow(false)
        .open_or_create()
        .map_err(text("service"))
}

impl Collect for Iceoryx2 {
    const NAME: &'static str = <Self as Peer>::NAME;
    type Owner = Owner;
    type Receiver = Receiver;

    fn owner(size: Size, party: &Party) -> Result<Owner> {
        let node = node(party.run)?;
        let publisher = service(&node, size)?
            .publisher_builder()
            .max_loaned_samples(size.buffers)
            .initial_max_slice_len(size.payload / 8)
            .allocation_strategy(AllocationStrategy::Static)
            .create()
            .map_err(text("publisher"))?;
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
        let subscriber = service(&node, size)?
            .subscriber_builder()
            .buffer_size(size.buffers)
            .create()
            .map_err(text("subscriber"))?;
        party.barrier()?;
        subscriber.update_connections().map_err(text("connect"))?;
        Ok(Receiver {
            subscriber,
            _node: node,
        })
    }

    fn cached(owner: &mut Owner) -> Result<()> {
        let words = owner.size.payload / 8;
        drop(
            owner
                .publisher
                .loan_slice_uninit(words)
                .map_err(text("loan"))?,
        );
        Ok(())
    }

    fn take(owner: &mut Owner) -> Result<()> {
        let words = owner.size.payload / 8;
        owner.taken.push(
            owner
                .publisher
                .loan_slice_uninit(words)
                .map_err(text("loan"))?,
        );
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
        while receiver
            .subscriber
            .receive()
            .map_err(text("receive"))?
            .is_none()
        {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn clean(run: u64) {
        <Self as Peer>::clean(run);
    }
}
