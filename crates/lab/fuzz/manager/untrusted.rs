//! The untrusted domains' messages: bytes, and requests that are right except for their numbers.

use tranship_manager::state::{ClientId, Facts, Fd, Header, Input, Sealed};
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, ExportId, PoolId, PoolShape, Refusal, RefusalCode, Req,
    Request, Role, Trust, decode,
};

use super::bytes::Bytes;
use super::simulated::Simulated;
use super::world::{CHUNK, HONEST, SLOTS, World};

/// Connections of untrusted domains at a time.
const MOST: usize = 10;

impl World {
    pub fn untrusted(&mut self, bytes: &mut Bytes<'_>) -> ClientId {
        let all = self.clients.iter().filter(|(_, c)| c.uid != HONEST);
        let all: Vec<ClientId> = all.map(|(id, _)| *id).collect();
        let at = bytes.below(MOST);
        match all.get(at) {
            Some(client) => *client,
            None if all.len() >= MOST => all[at % all.len()],
            None => {
                let client = self.arrive(at);
                if !bytes.one_in(16) {
                    let resume = bytes.one_in(6);
                    let resume = resume.then(|| DomainId(bytes.pick(&self.seen.domains)));
                    self.greet(client, resume);
                }
                client
            }
        }
    }

    /// Sends a request with the descriptors that it should have.
    pub fn tell(&mut self, client: ClientId, request: Request) {
        let fds = self.belonging(&request);
        self.say(client, request, fds);
    }

    /// Sends a message as it comes off the wire: a length, bytes, and descriptors.
    pub fn datagram(&mut self, client: ClientId, bytes: &mut Bytes<'_>) {
        let len = usize::from(bytes.byte());
        match decode::<Request>(bytes.take(len)) {
            Ok(request) => self.utter(client, request, bytes),
            Err(_) => {
                let refusal = Refusal {
                    code: RefusalCode::BadArgument,
                    asked: len as u64,
                    available: 0,
                };
                self.feed(Input::Violation { client, refusal });
            }
        }
    }

    /// Sends a request with the descriptors that it should have, or with others.
    pub fn utter(&mut self, client: ClientId, request: Request, bytes: &mut Bytes<'_>) {
        let mut fds = self.belonging(&request);
        if bytes.one_in(12) {
            match bytes.below(3) {
                0 => {
                    fds = (0..bytes.below(5)).map(|_| self.strange(bytes)).collect();
                }
                1 => fds.iter_mut().for_each(|fd| fd.facts.sealed = Sealed::No),
                _ => fds.iter_mut().for_each(|fd| fd.facts.header = None),
            }
            // Descriptors that were thrown away belong to nobody.
            let kept: Vec<_> = fds.iter().map(|fd| fd.token).collect();
            self.forget_but(&kept);
        }
        match request {
            Request::Hello { .. } if fds.is_empty() => self.hello(client, request),
            request => self.say(client, request, fds),
        }
    }

    fn strange(&mut self, bytes: &mut Bytes<'_>) -> Fd {
        let header = Header {
            kind: bytes.number(),
            count: bytes.number(),
            max_bytes: bytes.wide(),
            chunk_bytes: bytes.wide(),
        };
        let facts = Facts {
            sealed: match bytes.one_in(4) {
                true => Sealed::No,
                false => Sealed::OneWriter,
            },
            size: bytes.wide(),
            header: bytes.one_in(2).then_some(header),
            made_here: false,
            inode: bytes.wide(),
        };
        let token = self.token();
        Fd { token, facts }
    }

    /// Makes a chunk; every other one is sealed as in a pool that all domains write.
    fn chunk(&mut self, serial: u32) -> Fd {
        let mut chunk = self.object(0, 0, CHUNK);
        if serial.is_multiple_of(2) {
            chunk.facts.sealed = Sealed::Shared;
        }
        chunk
    }

    fn belonging(&mut self, request: &Request) -> Vec<Fd> {
        let half = |role: Role| if role == Role::Source { 6 } else { 7 };
        match request {
            Request::CreatePool { shape, .. } | Request::ClaimPool { shape, .. } => {
                vec![self.object(2, shape.slots, 8192)]
            }
            Request::ShowChunks { chunks, .. } => {
                let all = chunks.iter().map(|(_, serial)| self.chunk(*serial));
                all.collect()
            }
            Request::ClaimChunk { serial, .. } => vec![self.chunk(*serial)],
            Request::Connect { role, lines, .. } => vec![self.object(half(*role), *lines, 8192)],
            Request::Accept { lines, .. } => vec![self.object(6, *lines, 8192)],
            Request::ClaimChannel { claim, .. } => {
                vec![self.object(half(claim.role), claim.lines, 8192)]
            }
            Request::Assign { .. } | Request::ClaimAssign { .. } => {
                vec![self.object(4, SLOTS, 4096)]
            }
            Request::AcceptPool { with_refs, .. } => {
                let mut fds = vec![self.object(5, SLOTS, 4096)];
                if *with_refs {
                    fds.push(self.object(3, SLOTS, 4096));
                }
                fds
            }
            Request::ClaimReader { .. } => vec![self.object(3, SLOTS, 4096)],
            _ => Vec::new(),
        }
    }

    /// Makes any request, about objects that exist or do not.
    pub fn request(&mut self, bytes: &mut Bytes<'_>) -> Request {
        let req = Req(bytes.number());
        let pool = PoolId(bytes.pick(&self.seen.pools));
        let channel = ChannelId(bytes.pick(&self.seen.channels));
        let domain = DomainId(bytes.pick(&self.seen.domains));
        let (index, serial) = (bytes.number(), bytes.number());
        let names = ["honest", "a", "b", "c", "", "a\n", "honest-not"];
        let name = names[bytes.below(names.len())].to_owned();
        let role = if bytes.one_in(2) {
            Role::Source
        } else {
            Role::Sink
        };
        let lines = if bytes.one_in(8) { bytes.number() } else { 2 };
        let (max_bytes, slots, chunk_bytes) = if bytes.one_in(8) {
            (bytes.wide(), bytes.number(), bytes.wide())
        } else {
            (16 * CHUNK, SLOTS, CHUNK)
        };
        let shape = PoolShape {
            max_bytes,
            slots,
            chunk_bytes,
            // The number decides, so that inputs that were found before mean the same.
            trust: Trust::ALL[(req.0 % 4) as usize],
        };
        match bytes.below(40) {
            0..=2 => Request::CreatePool {
                req,
                name: "p".to_owned(),
                shape,
            },
            3 => Request::DestroyPool { pool },
            4 | 5 => Request::Grant {
                req,
                pool,
                chunks: index,
            },
            6 => Request::Ungrant {
                pool,
                chunks: index,
            },
            7 | 8 => {
                let count = 1 + bytes.small(18);
                let next = |n: u32| (index.wrapping_add(n), serial.wrapping_add(2 * n));
                Request::ShowChunks {
                    req,
                    pool,
                    chunks: (0..count).map(next).collect(),
                    least: bytes.small(count + 2),
                }
            }
            9 => Request::ReturnChunk {
                pool,
                index,
                serial,
            },
            10 => Request::Unmapped {
                pool,
                index,
                serial,
            },
            11 => Request::Resync { req, pool },
            12 => Request::AllowForward { req, pool, domain },
            13..=15 => Request::Export { req, name, role },
            16 => Request::Unexport {
                export: ExportId(bytes.pick(&self.seen.exports)),
            },
            17..=19 => Request::Connect {
                req,
                name,
                role,
                lines,
                wait: bytes.one_in(2),
            },
            20 => Request::CancelConnect { req },
            21 | 22 => Request::Accept {
                req,
                channel,
                lines,
            },
            23 => Request::Reject { channel },
            24 => Request::Assign { req, channel, pool },
            25 => Request::AcceptPool {
                channel,
                pool,
                with_refs: bytes.one_in(2),
            },
            26 => Request::VetoPool {
                channel,
                pool,
                levels: None,
            },
            27 => Request::Drained { channel },
            28 => Request::CloseChannel { channel },
            29 => Request::WakeFd { req, channel },
            30 => Request::Stat { req },
            31 => Request::ClaimPool {
                req,
                pool,
                name: "p".to_owned(),
                shape,
            },
            32 => Request::ClaimChunk {
                req,
                pool,
                index,
                serial,
            },
            33 => self.claim(bytes, req, pool),
            34 => {
                let claim = ChannelClaim {
                    channel,
                    name,
                    role,
                    peer: domain,
                    lines,
                    peer_inode: bytes.wide(),
                };
                Request::ClaimChannel { req, claim }
            }
            35 => self.heap(bytes, req, pool),
            36 => Request::SetQuota {
                req,
                pool,
                quota_bytes: bytes.wide(),
            },
            37 if bytes.one_in(3) => Request::Goodbye,
            38 => match bytes.below(6) {
                3 => Request::Trace {
                    req,
                    pool,
                    on: bytes.one_in(2),
                    while_here: bytes.one_in(2),
                },
                4 => Request::NextTrace {
                    req,
                    after: bytes.number(),
                },
                5 => Request::ShowTrace,
                0 => Request::Figures { req, after: pool },
                1 => Request::Steer {
                    req,
                    take: bytes.one_in(2),
                },
                _ => Request::SetQuotas {
                    req,
                    quotas: vec![(pool, bytes.wide()), (PoolId(pool.0 + 1), bytes.wide())],
                },
            },
            _ => Request::ClaimAssign { req, channel, pool },
        }
    }

    fn claim(&mut self, bytes: &mut Bytes<'_>, req: Req, pool: PoolId) -> Request {
        let n = bytes.below(20);
        match bytes.below(3) {
            0 => Request::ClaimDone { req },
            1 => Request::ClaimReader {
                req,
                pool,
                slots: SLOTS,
                table: bytes.wide(),
                trust: Trust::ALL[(req.0 % 4) as usize],
                mapped: (0..n).map(|_| (bytes.number(), bytes.number())).collect(),
            },
            _ => Request::ClaimReaderSet {
                req,
                pool,
                readers: (0..n)
                    .map(|_| (DomainId(bytes.pick(&self.seen.domains)), bytes.wide()))
                    .collect(),
                queues: (0..n)
                    .map(|_| {
                        let channel = ChannelId(bytes.pick(&self.seen.channels));
                        let domain = DomainId(bytes.pick(&self.seen.domains));
                        (channel, domain, bytes.wide())
                    })
                    .collect(),
            },
        }
    }

    fn heap(&mut self, bytes: &mut Bytes<'_>, req: Req, heap: PoolId) -> Request {
        match bytes.below(4) {
            0 => Request::CreateHeap {
                req,
                name: "h".to_owned(),
                max_bytes: bytes.wide(),
                held_bytes: bytes.wide(),
            },
            1 => Request::DestroyHeap { heap },
            2 => Request::Admit {
                req,
                heap,
                bytes: bytes.wide(),
                least_bytes: bytes.wide(),
            },
            _ => Request::GiveBack {
                heap,
                bytes: bytes.wide(),
            },
        }
    }
}
