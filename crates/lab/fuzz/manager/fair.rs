//! Each user's limits, by the rules of the documents and not by the state's own checks. An input changes nothing of
//! other users than its sender's. The state's audit checks its sums.

use std::collections::BTreeMap;

use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Input, State};
use tranship_proto::{DomainId, PoolId, Request};

use super::simulated::CHUNK;

pub const TOTAL: u64 = 64 * CHUNK;
/// Users: the manager's own, the honest domains', the untrusted domains'.
pub const OWNER: u32 = 1;
pub const HONEST: u32 = 2;
pub const UNTRUSTED: [u32; 2] = [3, 4];

/// Connections, pools and heaps, ends of channels, names, descriptors, records, bytes, domains that record.
pub type Counts = [u64; 8];

const NAMES: [&str; 8] = [
    "connections",
    "pools",
    "channels",
    "names",
    "descriptors",
    "records",
    "bytes",
    "domains that record",
];
const CHANNELS: usize = 2;
const WAITS: usize = 3;
const DESCRIPTORS: usize = 4;
const RECORDS: usize = 5;
const BYTES: usize = 6;

/// The limits of one user, whatever the limits of all are.
const LIMITS: Counts = [6, 8, 24, 8, 60, 200, u64::MAX, u64::MAX];
/// The limits of all users together.
const ALL: Counts = [
    u64::MAX,
    u64::MAX,
    u64::MAX,
    u64::MAX,
    400,
    4 * LIMITS[RECORDS],
    TOTAL,
    256,
];
/// The memory limit of one domain, and the first quota of a pool or heap.
const DOMAIN: u64 = 24 * CHUNK;
pub const QUOTA: u64 = 12 * CHUNK;

pub fn limits() -> Limits {
    let [
        connections,
        pools,
        channels,
        names,
        descriptors,
        records,
        ..,
    ] = LIMITS.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    Limits {
        connections,
        pools,
        channels,
        names,
        descriptors,
        records,
        memory: None,
        domain_memory: Some(DOMAIN),
    }
}

/// Says whether a user has half of the descriptors that it may have.
pub fn are_many(counts: Counts) -> bool {
    counts[DESCRIPTORS] > LIMITS[DESCRIPTORS] / 2
}

pub fn descriptors() -> usize {
    usize::try_from(ALL[DESCRIPTORS]).expect("few")
}

/// Returns the client that an input comes from.
pub fn speaker(input: &Input) -> Option<ClientId> {
    match input {
        Input::Connected { client, .. }
        | Input::Hello { client, .. }
        | Input::Request { client, .. }
        | Input::Violation { client, .. }
        | Input::Crippled { client, .. }
        | Input::HungUp { client }
        | Input::Sent { client }
        | Input::Blocked { client } => Some(*client),
        _ => None,
    }
}

/// Each user's share of everything, at one moment.
pub struct Books {
    users: BTreeMap<u32, Counts>,
    memory: Vec<(DomainId, PoolId, u64)>,
}

impl Books {
    pub fn of(state: &State) -> Books {
        Books {
            users: state.accounts(),
            memory: state.grants(),
        }
    }

    fn has(&self, uid: u32, of: usize) -> u64 {
        self.users.get(&uid).map_or(0, |counts| counts[of])
    }

    fn others(&self, uid: u32, of: usize) -> u64 {
        let others = self.users.iter().filter(|(other, _)| **other != uid);
        others.map(|(_, counts)| counts[of]).sum()
    }

    fn domain(&self, domain: DomainId) -> u64 {
        let its = self.memory.iter().filter(|(d, ..)| *d == domain);
        its.map(|(.., bytes)| bytes).sum()
    }

    fn pool(&self, pool: PoolId) -> u64 {
        let its = self.memory.iter().filter(|(_, p, _)| *p == pool);
        its.map(|(.., bytes)| bytes).sum()
    }

    /// Checks that a step of `uid`, or of no user, changed nothing of other users.
    pub fn check(&self, after: &Books, input: &Input, uid: Option<u32>, honest: bool) {
        let claims = matches!(input, Input::Request { request, .. } if is_claim(request));
        // The payer of memory out of use changes with its holders. Claimed memory exists already.
        let asks = matches!(
            input,
            Input::Request {
                request: Request::Grant { .. } | Request::Admit { .. } | Request::CreateHeap { .. },
                ..
            }
        );
        for (user, counts) in &after.users {
            for (of, now) in counts.iter().enumerate() {
                let (was, what) = (self.has(*user, of), NAMES[of]);
                if *now <= was {
                    continue;
                }
                let mine = uid == Some(*user);
                // A client that waited for a name has a channel now.
                let waited = self.has(*user, WAITS) > after.has(*user, WAITS);
                let passes_on = matches!(of, RECORDS | BYTES);
                let passes_on = passes_on || of == CHANNELS && (claims || waited);
                assert!(mine || passes_on, "{what} of {user}: {was}, then {now}");
                // A connection that is refused has a descriptor until it is closed.
                let comes = of == DESCRIPTORS && matches!(input, Input::Connected { .. });
                if of == BYTES && !asks || of == CHANNELS && claims || comes {
                    continue;
                }
                let others = self.others(*user, of).min(after.others(*user, of));
                let most = LIMITS[of].min(share(*user, ALL[of].saturating_sub(others)));
                assert!(*now <= most, "{what} of {user}: {now} of {most}");
            }
        }
        if asks {
            for (domain, pool, bytes) in &after.memory {
                let more = *bytes > self.pool(*pool);
                assert!(!more || *bytes <= QUOTA, "{pool}: {bytes} of {QUOTA}");
                let its = after.domain(*domain);
                let more = its > self.domain(*domain);
                assert!(!more || its <= DOMAIN, "{domain}: {its} of {DOMAIN}");
            }
        }
        let closes = matches!(input, Input::Closed { .. } | Input::Parted { .. });
        if honest && uid != Some(HONEST) && !closes {
            let (was, now) = (self.users.get(&HONEST), after.users.get(&HONEST));
            assert_eq!(now, was, "what the honest have, by somebody else's doing");
        }
    }
}

/// Returns three quarters of the rest that others leave; for the manager's own user, all of it.
fn share(uid: u32, left: u64) -> u64 {
    match uid {
        OWNER => left,
        _ if left == u64::MAX => left,
        _ => left - left.div_ceil(4),
    }
}

fn is_claim(request: &Request) -> bool {
    matches!(
        request,
        Request::ClaimPool { .. }
            | Request::ClaimChunk { .. }
            | Request::ClaimReader { .. }
            | Request::ClaimReaderSet { .. }
            | Request::ClaimChannel { .. }
            | Request::ClaimAssign { .. }
            | Request::ClaimDone { .. }
    )
}
