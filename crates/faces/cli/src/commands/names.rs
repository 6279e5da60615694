//! Names of domains and pools.

use std::collections::HashMap;
use tranship_proto::{DomainId, PoolId, StatRecord, shown};

/// Names of domains and pools. Where there is no name, the number is shown.
pub(super) struct Names {
    pub(super) domains: HashMap<DomainId, String>,
    /// The name of each pool, and the domain that writes it.
    pub(super) pools: HashMap<PoolId, (String, DomainId)>,
}

impl Names {
    pub(super) fn of(records: &[StatRecord]) -> Self {
        let mut names = Self {
            domains: HashMap::new(),
            pools: HashMap::new(),
        };
        for record in records {
            match record {
                StatRecord::Domain(d) => drop(names.domains.insert(d.domain, d.name.clone())),
                StatRecord::Pool(p) => {
                    names.pools.insert(p.pool, (p.name.clone(), p.writer));
                }
                _ => {}
            }
        }
        names
    }

    pub(super) fn domain(&self, id: DomainId) -> String {
        let name = self.domains.get(&id).map_or("", String::as_str);
        format!("{}#{}", shown(name), id.0)
    }

    /// Returns the domain that writes a pool; nothing, if the pool is gone.
    #[cfg(feature = "top")]
    pub(super) fn writer(&self, id: PoolId) -> String {
        let pool = self.pools.get(&id);
        pool.map_or_else(String::new, |(_, writer)| self.domain(*writer))
    }

    pub(super) fn pool(&self, id: PoolId) -> String {
        let name = self.pools.get(&id).map_or("", |(name, _)| name.as_str());
        format!("{}#{}", shown(name), id.0)
    }
}
