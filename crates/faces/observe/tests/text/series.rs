//! Number of series, and their sums.

use super::kit::{channel, domain, manager, of, pool, pool_with, samples, text, whole};
use tranship_observe::{Format, Snapshot, Tally, render};
use tranship_proto::{DomainId, HoldStat, PoolId, StatRecord};

/// Limit as in `collect.rs`.
const SHOWN: usize = 500;

fn crowd(n: u32) -> Snapshot {
    let mut records = vec![manager()];
    for id in 1..=n {
        let name = format!("p{id}");
        records.push(domain(id, &name));
        records.push(pool_with(id, &name, id, u64::from(id) << 12, 10));
        records.push(channel(id, &name, id.into()));
        records.push(StatRecord::Hold(HoldStat {
            domain: DomainId(id),
            pool: PoolId(id),
            buffers: 1,
            bytes: id.into(),
            ..HoldStat::default()
        }));
    }
    of(records)
}

#[test]
fn a_crowd_is_summed_up() {
    let n = 1200;
    let all = samples(&text(&crowd(n), Format::OpenMetrics));
    for (metric, sum) in [
        (
            "tranship_pool_granted_bytes",
            (1..=u64::from(n)).map(|i| i << 12).sum::<u64>(),
        ),
        ("tranship_pool_allocations_total", u64::from(n) * 10),
        ("tranship_channel_messages_total", (1..=u64::from(n)).sum()),
        ("tranship_domain_processes", n.into()),
        ("tranship_held_bytes", (1..=u64::from(n)).sum()),
    ] {
        let of_it: Vec<_> = all
            .iter()
            .filter(|(name, _)| name.starts_with(&format!("{metric}{{")))
            .collect();
        assert_eq!(of_it.len(), SHOWN + 1, "{metric}");
        let total: f64 = of_it.iter().map(|(_, v)| v).sum();
        #[allow(clippy::cast_precision_loss)]
        let sum = sum as f64;
        assert!((total - sum).abs() < 0.5, "{metric}: {total} of {sum}");
    }
    let value = |name: &str| all.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    assert_eq!(value("tranship_objects_summed{kind=\"pool\"}"), Some(700.0));
    // The largest are those with names.
    let named = |pool: &str| {
        let begin = format!("tranship_pool_granted_bytes{{pool=\"{pool}\",");
        all.iter().any(|(n, _)| n.starts_with(&begin))
    };
    assert!(named("p1200") && named("p701"));
    assert!(!named("p1") && !named("p700"));
    assert!(value("tranship_pool_granted_bytes{pool=\"(others)\",domain=\"(others)\"}").is_some());
}

#[test]
fn nothing_is_said_of_nobody() {
    let all = samples(&text(&of(vec![manager()]), Format::OpenMetrics));
    let value = |name: &str| all.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    assert_eq!(value("tranship_pools{state=\"live\"}"), Some(0.0));
    assert!(
        all.iter().all(|(name, _)| !name.contains("pool=")),
        "{all:?}"
    );
}

#[test]
fn of_one_name_there_is_one_series_whose_counters_do_not_fall() {
    let mut tally = Tally::default();
    let mut look = |ids: &[(u32, u64)]| {
        let mut records = vec![manager(), domain(1, "camera")];
        let pools = ids.iter();
        records.extend(pools.map(|(id, allocs)| pool_with(*id, "frames", 1, 1 << 20, *allocs)));
        let text = render(Ok(&of(records)), &mut tally, Format::OpenMetrics);
        let all = samples(&text);
        let value = |metric: &str| {
            let name = format!("{metric}{{pool=\"frames\",domain=\"camera\"}}");
            all.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
        };
        (
            value("tranship_pool_granted_bytes"),
            value("tranship_pool_allocations_total"),
        )
    };
    let mib = 1_048_576.0;
    assert_eq!(look(&[(1, 10), (2, 5)]), (Some(2.0 * mib), Some(15.0)));
    assert_eq!(look(&[(2, 6)]), (Some(mib), Some(16.0)));
    assert_eq!(look(&[]), (None, None));
}

#[test]
fn long_names_are_cut_between_characters() {
    let name = "ü".repeat(200);
    let records = vec![manager(), domain(1, &name), pool(1, &name, 1, 4096)];
    let text = text(&of(records), Format::OpenMetrics);
    let longest = text.lines().filter(|l| l.contains('ü')).map(str::len).max();
    assert!(longest.is_some_and(|n| n < 400), "{longest:?}");
    assert!(text.contains("ü…\""));
}

#[test]
fn who_asks_is_not_there() {
    let records = vec![manager(), domain(1, "camera"), domain(2, "tranship-stat")];
    let snapshot = Snapshot::new(std::time::Instant::now(), records, 1002);
    assert_eq!(snapshot.records.len(), 2);
    assert!(!text(&snapshot, Format::OpenMetrics).contains("tranship-stat"));
    assert!(whole().records.len() > 10);
}
