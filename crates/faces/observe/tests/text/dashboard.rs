//! `dist/grafana-tranship.json` is JSON. Every metric that its expressions name exists, and is used as its kind wants.

use serde_json::Value;
use std::collections::BTreeSet;
use tranship_observe::{FAMILIES, Kind};

fn dashboard() -> Value {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../dist/grafana-tranship.json"
    );
    let text = std::fs::read_to_string(file).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

/// All expressions, also those of variables.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text)
                        if ["expr", "definition", "query"].contains(&key.as_str()) =>
                    {
                        found.push(text.clone())
                    }
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|v| expressions(v, found)),
        _ => {}
    }
}

/// Returns the metrics that an expression names, with the text before each.
fn metrics(expression: &str) -> Vec<(&str, &str)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(n) = expression[at..].find("tranship_") {
        let begin = at + n;
        let rest = &expression[begin..];
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        found.push((&expression[..begin], &rest[..end]));
        at = begin + end;
    }
    found
}

#[test]
fn it_asks_for_what_there_is() {
    let mut all = Vec::new();
    expressions(&dashboard(), &mut all);
    let mut used = BTreeSet::new();
    for expression in &all {
        for (before, name) in metrics(expression) {
            let family = FAMILIES.iter().find(|f| f.sample_name() == name);
            let family = family.unwrap_or_else(|| panic!("{name} is not exported: {expression}"));
            used.insert(family.name);
            let rated = before.ends_with("rate(") || before.ends_with("increase(");
            assert_eq!(rated, family.kind == Kind::Counter, "{expression}");
            check_labels(expression, name, family.labels);
        }
    }
    for wanted in [
        "tranship_pool_quota_bytes",
        "tranship_pool_blocked_seconds",
        "tranship_channel_messages",
        "tranship_up",
    ] {
        assert!(used.contains(wanted), "{wanted} is not on it");
    }
}

/// The labels by which a metric is chosen, and those by which it is grouped, are its own or Prometheus' own.
fn check_labels(expression: &str, name: &str, labels: &[&str]) {
    let own = |label: &str| labels.contains(&label) || ["instance", "job", "le"].contains(&label);
    let rest = expression.split(name).nth(1).unwrap_or("");
    if let Some(chosen) = rest.strip_prefix('{').and_then(|r| r.split_once('}')) {
        for matcher in chosen.0.split(',') {
            let label = matcher.split(['=', '!', '~']).next().unwrap_or("").trim();
            assert!(own(label), "{label}: {expression}");
        }
    }
    for group in expression.split(" by (").skip(1) {
        let group = group.split(')').next().unwrap_or("");
        for label in group.split(',').map(str::trim) {
            let known = FAMILIES.iter().any(|f| f.labels.contains(&label));
            assert!(
                known || ["instance", "job"].contains(&label),
                "{label}: {expression}"
            );
        }
    }
}

#[test]
fn panels_have_places_and_numbers_of_their_own() {
    let board = dashboard();
    let panels = board["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels
        .iter()
        .map(|p| p["id"].as_u64().expect("a number"))
        .collect();
    assert_eq!(ids.len(), panels.len());
    let mut places: Vec<[u64; 4]> = Vec::new();
    for panel in panels {
        let at = |k: &str| panel["gridPos"][k].as_u64().expect("a place");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(at);
        assert!(x + w <= 24 && w > 0 && h > 0, "{}", panel["title"]);
        let apart =
            |o: &[u64; 4]| x + w <= o[0] || o[0] + o[2] <= x || y + h <= o[1] || o[1] + o[3] <= y;
        assert!(
            places.iter().all(apart),
            "{} covers another",
            panel["title"]
        );
        places.push([x, y, w, h]);
        let from = panel["datasource"]["uid"].as_str();
        assert!(
            panel["type"] == "row" || from == Some("${datasource}"),
            "{}",
            panel["title"]
        );
    }
    assert_eq!(board["uid"], "tranship");
}

#[test]
fn a_metric_that_is_gone_would_be_noticed() {
    let found =
        metrics("sum by (pool) (rate(tranship_nothing_total[5m])) / tranship_pool_quota_bytes");
    assert_eq!(found[0].1, "tranship_nothing_total");
    assert!(found[0].0.ends_with("rate(") && found[1].1 == "tranship_pool_quota_bytes");
}
