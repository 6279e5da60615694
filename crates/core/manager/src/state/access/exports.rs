//! Exported names, by domain, and the names for which a client may wait.

use crate::state::model::Export;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;
use tranship_proto::{DomainId, ExportId};

#[derive(Debug, Default)]
pub(crate) struct Exports {
    all: BTreeMap<ExportId, Export>,
    // Invariant: of each in `all`.
    by_name: BTreeSet<(String, ExportId)>,
    by_domain: BTreeSet<(DomainId, ExportId)>,
    /// The names for which a client may wait.
    // Invariant: some of `by_domain`.
    wanted: BTreeSet<(DomainId, ExportId)>,
    /// Connections that were shown to exporters.
    given: u64,
}

impl Exports {
    pub fn insert(&mut self, id: ExportId, export: Export) {
        self.by_name.insert((export.name.clone(), id));
        self.by_domain.insert((export.domain, id));
        self.all.insert(id, export);
    }

    pub fn remove(&mut self, id: ExportId) -> Option<Export> {
        let export = self.all.remove(&id)?;
        self.by_name.remove(&(export.name.clone(), id));
        self.by_domain.remove(&(export.domain, id));
        self.wanted.remove(&(export.domain, id));
        Some(export)
    }

    pub fn get(&self, id: ExportId) -> Option<&Export> {
        self.all.get(&id)
    }

    pub fn contains(&self, id: u32) -> bool {
        self.all.contains_key(&ExportId(id))
    }

    /// Returns the exports of a name: one, or several that share it.
    pub fn named(&self, name: &str) -> impl Iterator<Item = (ExportId, &Export)> {
        let its = (name.to_owned(), ExportId(0))..=(name.to_owned(), ExportId(u32::MAX));
        let its = self.by_name.range(its);
        its.filter_map(|(_, id)| Some((*id, self.all.get(id)?)))
    }

    /// Records that a connection was shown to the exporter. The others of the name come first next time.
    pub fn gave(&mut self, id: ExportId) {
        self.given += 1;
        if let Some(export) = self.all.get_mut(&id) {
            export.given = self.given;
        }
    }

    /// Records until when a domain is asked last, because it leaves connections to a name unanswered. Zero: it answers.
    pub fn set_silent(&mut self, name: &str, domain: DomainId, until: Duration) {
        let found = self.named(name).find(|(_, e)| e.domain == domain);
        if let Some(export) = found.map(|(id, _)| id).and_then(|id| self.all.get_mut(&id)) {
            export.silent_until = until;
        }
    }

    /// Makes the next look for waiting connects to an export go on with this number.
    pub fn go_on_from(&mut self, id: ExportId, next: u64) {
        if let Some(export) = self.all.get_mut(&id) {
            export.next = next;
        }
    }

    pub fn of(&self, domain: DomainId) -> Vec<ExportId> {
        let its = (domain, ExportId(0))..=(domain, ExportId(u32::MAX));
        self.by_domain.range(its).map(|(_, id)| *id).collect()
    }

    /// Records that a client may wait for a name.
    pub fn want(&mut self, id: ExportId) {
        if let Some(export) = self.all.get(&id) {
            self.wanted.insert((export.domain, id));
        }
    }

    /// Records that no client waits for a name.
    pub fn unwant(&mut self, id: ExportId) {
        if let Some(export) = self.all.get(&id) {
            self.wanted.remove(&(export.domain, id));
        }
    }

    /// Takes one name of a domain for which a client may wait. The next name has its turn next time.
    pub fn take_wanted(&mut self, domain: DomainId) -> Option<ExportId> {
        let its = (domain, ExportId(0))..=(domain, ExportId(u32::MAX));
        let next = *self.wanted.range(its).next()?;
        self.wanted.remove(&next);
        Some(next.1)
    }

    pub fn after(&self, last: Option<ExportId>) -> Option<ExportId> {
        let from = last.map_or(Unbounded, Excluded);
        self.all.range((from, Unbounded)).next().map(|(id, _)| *id)
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Exports {
        pub fn len(&self) -> usize {
            self.all.len()
        }

        pub fn iter(&self) -> impl Iterator<Item = &Export> {
            self.all.values()
        }

        /// Checks that all maps agree.
        pub fn audit(&self) -> Result<(), String> {
            let names = self.all.iter().map(|(id, e)| (e.name.clone(), *id));
            let alone = |e: &Export| e.shared || self.named(&e.name).count() == 1;
            let domains = self.all.iter().map(|(id, e)| (e.domain, *id));
            let agrees = names.collect::<BTreeSet<_>>() == self.by_name
                && self.all.values().all(alone)
                && domains.collect::<BTreeSet<_>>() == self.by_domain
                && self.wanted.is_subset(&self.by_domain);
            match agrees {
                true => Ok(()),
                false => Err(format!("exports: {self:?}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::NameKind;
    use tranship_proto::Role;

    const DOMAIN: DomainId = DomainId(1);

    /// Makes the exports of one domain, with these numbers.
    fn exports(numbers: &[u32]) -> Exports {
        let mut exports = Exports::default();
        for number in numbers {
            let export = Export {
                name: number.to_string(),
                domain: DOMAIN,
                role: Role::Source,
                kind: NameKind::Channel,
                shared: false,
                given: 0,
                silent_until: Duration::ZERO,
                next: 0,
            };
            exports.insert(ExportId(*number), export);
        }
        exports
    }

    #[test]
    fn each_that_is_wanted_has_its_turn_once() {
        let mut exports = exports(&[1, 2, 3]);
        for number in [3, 1, 9] {
            exports.want(ExportId(number));
        }
        assert_eq!(exports.take_wanted(DomainId(2)), None, "another's");
        let mut next = || exports.take_wanted(DOMAIN);
        let turns = [next(), next(), next()];
        assert_eq!(turns, [Some(ExportId(1)), Some(ExportId(3)), None]);
    }

    #[test]
    fn what_is_wanted_no_more_or_is_gone_has_none() {
        let mut exports = exports(&[1, 2]);
        for number in [1, 2] {
            exports.want(ExportId(number));
        }
        exports.unwant(ExportId(1));
        assert!(exports.remove(ExportId(2)).is_some());
        assert_eq!(exports.audit(), Ok(()));
        assert_eq!(exports.take_wanted(DOMAIN), None);
        assert_eq!(exports.named("2").next().map(|(id, _)| id), None);
        assert_eq!(exports.of(DOMAIN), [ExportId(1)]);
    }
}
