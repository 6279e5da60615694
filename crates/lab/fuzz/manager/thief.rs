//! A thief: a domain that asks for other domains' objects. It is refused, expelled, or not answered at all.

use tranship_manager::state::ClientId;
use tranship_proto::{ChannelId, DomainId, Event, ExportId, PoolId, Req, Request, Trust};

use super::bytes::Bytes;
use super::scenes::{create_pool, export};
use super::world::{CHUNK, UNTRUSTED, World, shape};

/// An id that no domain has.
const UNKNOWN: u32 = 70_000;

impl World {
    pub fn trespass(&mut self, bytes: &mut Bytes<'_>) {
        let which = bytes.below(UNTRUSTED.len());
        let mut thief = self.arrive(which);
        // The thief has been here before, or says so, or does not.
        match bytes.below(3) {
            0 => self.greet(thief, None),
            1 => self.greet(thief, Some(DomainId(UNKNOWN))),
            _ => {
                self.greet(thief, None);
                let known = self.clients.get(&thief).map(|c| (c.process, c.domain));
                if let Some((process, domain)) = known {
                    thief = self.connect(UNTRUSTED[which], process);
                    self.greet(thief, Some(domain));
                }
            }
        }
        self.drain(thief);
        let request = self.theft(thief, bytes);
        let said = format!("{request:?}");
        self.tell(thief, request);
        let heard = self.clients.get(&thief).map(|c| &c.queued);
        let given = |e: &&Event| !matches!(e, Event::Refused { .. });
        let given = heard.and_then(|queued| queued.iter().find(given));
        assert!(given.is_none(), "{given:?} to a thief for {said}");
        if let Some(process) = self.clients.get(&thief).map(|c| c.process) {
            self.die(process, true);
        }
        self.closed(usize::MAX);
    }

    /// Makes a request about the first objects, which belong to the honest domains, or about the newest.
    fn theft(&mut self, thief: ClientId, bytes: &mut Bytes<'_>) -> Request {
        let (newest, what) = (bytes.one_in(2), bytes.below(24));
        let one = |ids: &[u32], at: usize| {
            let id = if newest { ids.last() } else { ids.get(at) };
            id.copied().unwrap_or(0)
        };
        let (req, chunks, lines) = (Req(1), 1, 2);
        let (index, serial) = (bytes.small(2), bytes.number());
        let pool = PoolId(one(&self.seen.pools, 0));
        let heap = PoolId(one(&self.seen.pools, 1));
        let channel = ChannelId(one(&self.seen.channels, 0));
        match what {
            0 => Request::Grant { req, pool, chunks },
            1 => Request::Ungrant { pool, chunks },
            2 => Request::ShowChunks {
                req,
                pool,
                chunks: vec![(index, serial)],
                least: 1,
            },
            3 => Request::ReturnChunk {
                pool,
                index,
                serial,
            },
            4 => Request::DestroyPool { pool },
            5 => Request::AllowForward {
                req,
                pool,
                domain: DomainId(one(&self.seen.domains, 0)),
            },
            // The thief's own pool, for another domain's channel.
            6 => {
                self.tell(thief, create_pool(req));
                self.drain(thief);
                let pool = self.newest_pool();
                Request::Assign { req, channel, pool }
            }
            7 => Request::AcceptPool {
                channel,
                pool,
                with_refs: true,
            },
            8 => Request::VetoPool {
                channel,
                pool,
                levels: None,
            },
            9 => Request::Resync { req, pool },
            10 => Request::SetQuota {
                req,
                pool,
                quota_bytes: CHUNK,
            },
            11 => Request::Admit {
                req,
                heap,
                bytes: CHUNK,
                least_bytes: 1,
            },
            12 => Request::GiveBack { heap, bytes: CHUNK },
            13 => Request::DestroyHeap { heap },
            14 => Request::Unexport {
                export: ExportId(one(&self.seen.exports, index as usize)),
            },
            15 => export(req, "honest"),
            16 => Request::Accept {
                req,
                channel,
                lines,
            },
            17 => Request::Reject { channel },
            18 => Request::CloseChannel { channel },
            19 => Request::Drained { channel },
            20 => Request::WakeFd { req, channel },
            // A pool that does not exist could be claimed by the thief.
            21 => Request::ClaimPool {
                req,
                pool: PoolId(self.seen.pools[0]),
                name: "p".to_owned(),
                shape: shape(Trust::Producer),
            },
            22 => Request::ClaimAssign { req, channel, pool },
            _ => Request::ClaimReaderSet {
                req,
                pool,
                readers: vec![(DomainId(UNKNOWN), 1)],
                queues: vec![],
            },
        }
    }
}
