//! `iceoryx2`: one client and one server of a request-response service of slices.

use anyhow::{Context, Result};
use iceoryx2::active_request::ActiveRequest;
use iceoryx2::pending_response::PendingResponse;
use iceoryx2::port::client::Client;
use iceoryx2::port::server::Server;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::{AllocationStrategy, Node};

use super::{Events, Service, node, text};
use crate::case::{Case, Touch};
use crate::party::Party;
use crate::peer::{Peer, Role};

type Asking = PendingResponse<Service, [u64], (), [u64], ()>;
type Asked = ActiveRequest<Service, [u64], (), [u64], ()>;

enum Side {
    Caller(Client<Service, [u64], (), [u64], ()>, Option<Asking>),
    Worker(Server<Service, [u64], (), [u64], ()>, Option<Asked>),
}

pub struct Served {
    // Ports before the node that they belong to: dropped in this order.
    side: Side,
    events: Events,
    _node: Node<Service>,
    words: usize,
}

impl Peer for Served {
    const NAME: &'static str = "iceoryx2";

    fn refuses(case: &Case) -> Option<String> {
        (case.touch != Touch::Word).then(|| "it carries its stamp in the first word".to_owned())
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let node = node(party.run)?;
        let name = "work".try_into().map_err(text("name"))?;
        let service = node
            .service_builder(&name)
            .request_response::<[u64], [u64]>()
            .max_clients(1)
            .max_servers(1)
            .max_nodes(2)
            .max_active_requests_per_client(1)
            .max_loaned_requests(1)
            .max_response_buffer_size(1)
            .max_borrowed_responses_per_pending_response(1)
            .enable_safe_overflow_for_requests(false)
            .enable_safe_overflow_for_responses(false)
            .open_or_create()
            .map_err(text("service"))?;
        let words = case.payload / 8;
        let side = match role {
            Role::Ping => {
                let client = service.client_builder();
                let client = client
                    .initial_max_slice_len(words)
                    .allocation_strategy(AllocationStrategy::Static)
                    .create();
                Side::Caller(client.map_err(text("client"))?, None)
            }
            Role::Pong => {
                let server = service.server_builder();
                let server = server
                    .max_loaned_responses_per_request(1)
                    .initial_max_slice_len(words)
                    .allocation_strategy(AllocationStrategy::Static)
                    .create();
                Side::Worker(server.map_err(text("server"))?, None)
            }
        };
        let events = Events::open(&node, case.wait, role)?;
        party.barrier()?;
        // Both are there: connect now, not at the first call.
        match &side {
            Side::Caller(client, _) => client.update_connections(),
            Side::Worker(server, _) => server.update_connections(),
        }
        .map_err(text("connect"))?;
        Ok(Self {
            side,
            events,
            _node: node,
            words,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        let words = self.words;
        match &mut self.side {
            Side::Caller(client, pending) => {
                let mut request = client.loan_slice_uninit(words).map_err(text("loan"))?;
                let first = request.payload_mut().first_mut();
                first.context("empty payload")?.write(stamp);
                // SAFETY: words may hold anything, and the segment's pages are there.
                let request = unsafe { request.assume_init() };
                *pending = Some(request.send().map_err(text("send"))?);
            }
            Side::Worker(_, active) => {
                let active = active.take().context("no request to be answered")?;
                let mut answer = active.loan_slice_uninit(words).map_err(text("loan"))?;
                let first = answer.payload_mut().first_mut();
                first.context("empty payload")?.write(stamp);
                // SAFETY: as above.
                let answer = unsafe { answer.assume_init() };
                answer.send().map_err(text("send"))?;
            }
        }
        self.events.tell()
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        loop {
            match &mut self.side {
                Side::Caller(_, pending) => {
                    let call = pending.as_ref().context("no call in flight")?;
                    if let Some(answer) = call.receive().map_err(text("receive"))? {
                        let stamp = *answer.payload().first().context("empty payload")?;
                        drop(answer);
                        *pending = None;
                        return Ok(stamp);
                    }
                }
                Side::Worker(server, active) => {
                    if let Some(request) = server.receive().map_err(text("receive"))? {
                        let stamp = *request.payload().first().context("empty payload")?;
                        *active = Some(request);
                        return Ok(stamp);
                    }
                }
            }
            self.events.wait()?;
        }
    }
}
