//! A user that asks for much more of something than it may have, over up to three connections.

use tranship_proto::{DomainId, PoolId, Req, Request, Trust};

use super::bytes::Bytes;
use super::scenes::{connect, create_pool, export};
use super::world::{CHUNK, SLOTS, UNTRUSTED, World, shape};

/// Objects that are asked for, four times each: more than any user may have.
const ROUNDS: u32 = 64;
/// Ids that no object has.
const UNKNOWN: u32 = 60_000;

#[derive(Clone, Copy, PartialEq)]
enum Of {
    Connections,
    Pools,
    Heaps,
    Names,
    Waits,
    Cancelled,
    Channels,
    Claims,
    Rights,
}

const ALL: [Of; 9] = [
    Of::Connections,
    Of::Pools,
    Of::Heaps,
    Of::Names,
    Of::Waits,
    Of::Cancelled,
    Of::Channels,
    Of::Claims,
    Of::Rights,
];

impl World {
    pub fn hoard(&mut self, bytes: &mut Bytes<'_>) {
        let which = bytes.below(UNTRUSTED.len());
        let (of, little) = (ALL[bytes.below(ALL.len())], bytes.small(20));
        let returns = matches!(of, Of::Claims | Of::Rights);
        let crew = [0, 1, 2].map(|n| {
            let client = self.arrive(which);
            let unknown = UNKNOWN + 4 * UNTRUSTED[which] + n;
            self.greet(client, returns.then_some(DomainId(unknown)));
            client
        });
        let crew = &crew[..1 + little as usize % 3];
        for n in 0..ROUNDS {
            let client = crew[n as usize % crew.len()];
            if of == Of::Connections {
                self.arrive(which);
            }
            for step in 0..4 {
                if let Some(request) = self.greed(of, which, n, step, little) {
                    self.tell(client, request);
                }
            }
            self.drain(client);
        }
    }

    fn greed(&self, of: Of, which: usize, n: u32, step: u32, little: u32) -> Option<Request> {
        let (req, pool) = (Req(4 * n + step), self.newest_pool());
        let name = format!("hoard-{which}");
        let request = match (of, step) {
            (Of::Pools, 0) => create_pool(req),
            (Of::Pools, 1 | 2) => {
                let chunks = 12 + little;
                Request::Grant { req, pool, chunks }
            }
            (Of::Heaps, 0) => Request::CreateHeap {
                req,
                name,
                max_bytes: 16 * CHUNK,
                held_bytes: u64::from(little) * CHUNK,
            },
            (Of::Heaps, _) => Request::Admit {
                req,
                heap: pool,
                bytes: 7 * CHUNK,
                least_bytes: 1,
            },
            (Of::Names, 0) => export(req, &format!("{name}-{n}")),
            (Of::Waits | Of::Cancelled, 0) => connect(req, &name),
            (Of::Cancelled, 1) => Request::CancelConnect {
                req: Req(req.0 - 1),
            },
            // A connect waits for a second name, which is exported when all channels exist already.
            (Of::Channels, 0) if n == 0 => export(req, &name),
            (Of::Channels, 0) if n == 1 => connect(req, &format!("{name}-later")),
            (Of::Channels, 0) if n == ROUNDS - 1 => export(req, &format!("{name}-later")),
            (Of::Channels, 0) => connect(req, &name),
            (Of::Claims, _) => Request::ClaimReader {
                req,
                pool: PoolId(UNKNOWN + req.0),
                slots: SLOTS,
                table: 0,
                trust: Trust::Producer,
                mapped: (0..little).map(|i| (i, i)).collect(),
            },
            (Of::Rights, step) => {
                let its = n % (1 + little % 3);
                let pool = PoolId(UNKNOWN + 4 * UNTRUSTED[which] + its);
                let domain = DomainId(req.0);
                match step {
                    0 if its == n => Request::ClaimPool {
                        req,
                        pool,
                        name,
                        shape: shape(Trust::Producer),
                    },
                    0 if little >= 10 => Request::ClaimReaderSet {
                        req,
                        pool,
                        readers: (0..4).map(|i| (DomainId(req.0 + i), 1)).collect(),
                        queues: vec![],
                    },
                    _ => Request::AllowForward { req, pool, domain },
                }
            }
            _ => return None,
        };
        Some(request)
    }
}
