//! Every metric: those of the table of figures, and a few that are computed.

use std::collections::HashMap;
use std::sync::LazyLock;
use tranship_proto::{Figure, Kind as FigureKind, RECORDS, word_of};

/// Meaning of a metric's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only rises, until the counted object begins anew; its samples end in `_total`.
    Counter,
    /// Always 1: its labels carry the information; its samples end in `_info`.
    Info,
}

/// Samples of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// Name without the suffix of its kind.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Unit of its values, unless they count things; the name ends in it.
    pub unit: Option<&'static str>,
    /// Help text, for people.
    pub help: &'static str,
    /// The labels of its samples.
    pub labels: &'static [&'static str],
}

impl Family {
    /// Returns the name of its samples, which queries ask for.
    #[must_use]
    pub fn sample_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Gauge => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        };
        format!("{}{suffix}", self.name)
    }
}

/// Returns the labels by which a record's samples are told apart.
fn labels(record: &str) -> &'static [&'static str] {
    match record {
        "domain" => &["domain", "uid"],
        "pool" => &["pool", "domain"],
        "heap" => &["heap", "domain"],
        "channel" => &["channel", "from", "to"],
        "hold" => &["domain", "pool"],
        _ => &[],
    }
}

macro_rules! families {
    ($($id:ident = $kind:ident $name:literal $(in $unit:literal)? $labels:expr, $help:literal;)*) => {
        $(pub(crate) const $id: Family = Family {
            name: $name,
            kind: Kind::$kind,
            unit: families!(@unit $($unit)?),
            help: $help,
            labels: $labels,
        };)*
        const COMPUTED: &[Family] = &[$($id),*];
    };
    (@unit $unit:literal) => { Some($unit) };
    (@unit) => { None };
}

// Families that are computed from several figures.
families! {
    UP = Gauge "tranship_up" &[], "1: the manager answered; 0: no manager answers, and nothing else is exported.";
    BUILD = Info "tranship_build" &["version"], "The program that exports this.";
    LOOK = Gauge "tranship_look_seconds" in "seconds" &[], "How long the manager took to answer.";
    OMITTED = Gauge "tranship_objects_summed" &["kind"], "Objects beyond the number that is shown one by one; their figures are in the series labelled (others).";
    SHARED = Gauge "tranship_memory_shared_bytes" in "bytes" &["kind"], "Shared memory that there is: data, stranded, tables, rings, control pages.";
    DOMAINS = Gauge "tranship_domains" &["state"], "Domains: connected, or kept without a connection until their process ends.";
    POOLS = Gauge "tranship_pools" &["state"], "Pools: live, or orphaned when their writer is gone.";
    HEAPS = Gauge "tranship_heaps" &[], "Heaps.";
    CHANNELS = Gauge "tranship_channels" &["state"], "Channels: open, exported names without a channel, and awaited names.";
    POOL_ORPHANED = Gauge "tranship_pool_orphaned" &["pool", "domain"], "1 when its writer is gone.";
    DOMAIN_COUNT = Gauge "tranship_domain_processes" &["domain", "uid"], "Domains of this name and user.";
}

/// Families of the table of figures: for each record, in the order of its figures.
static TABLE: LazyLock<HashMap<String, Vec<Option<Family>>>> = LazyLock::new(|| {
    let of = |record: &str, figure: &Figure| {
        let (name, unit) = figure.metric_name(record)?;
        Some(Family {
            name: name.leak(),
            kind: match figure.kind {
                FigureKind::Counter => Kind::Counter,
                _ => Kind::Gauge,
            },
            unit,
            help: figure.help.trim_start(),
            labels: labels(record),
        })
    };
    let record = |(name, _, figures): &(&str, &str, &'static [Figure])| {
        let word = word_of(name);
        let families = figures.iter().map(|figure| of(&word, figure)).collect();
        (word, families)
    };
    RECORDS.iter().map(record).collect()
});

/// Returns the families of a record's figures, in the table's order.
pub(crate) fn of(record: &str) -> &'static [Option<Family>] {
    TABLE.get(record).map_or(&[], Vec::as_slice)
}

/// All families, in the order in which they are printed.
pub static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let words = RECORDS.iter().map(|(name, ..)| word_of(name));
    let table = words.flat_map(|word| of(&word).iter().flatten());
    COMPUTED.iter().chain(table).copied().collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_as_openmetrics_wants_them() {
        let names: BTreeSet<_> = FAMILIES.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), FAMILIES.len(), "one of them twice");
        for f in FAMILIES.iter() {
            let fits = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(
                f.name.starts_with("tranship_") && f.name.chars().all(fits),
                "{f:?}"
            );
            assert!(
                f.unit.is_none_or(|u| f.name.ends_with(&format!("_{u}"))),
                "{f:?}"
            );
            // Suffixes that have another meaning in OpenMetrics.
            for reserved in ["_total", "_info", "_created", "_count", "_sum", "_bucket"] {
                assert!(!f.name.ends_with(reserved), "{f:?}");
            }
            assert!(f.kind != Kind::Info || f.unit.is_none(), "{f:?}");
            assert!(f.help.ends_with('.'), "{f:?}");
        }
    }
}
