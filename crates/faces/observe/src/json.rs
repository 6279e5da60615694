//! JSON for the page.

use crate::look::{Snapshot, now_ms};
use serde_json::{Value, json};
use std::collections::HashMap;
use tranship_proto::{DomainId, PoolFigures, PoolId, StatRecord};

/// Version that rises when a field changes its meaning or leaves.
const SCHEMA: u32 = 1;
/// Most records of each sort; the page says how many there are.
const MOST: usize = 2000;

/// Returns one look, as JSON.
#[must_use]
pub fn page_data(looked: Result<&Snapshot, &str>) -> Value {
    let snapshot = match looked {
        Ok(snapshot) => snapshot,
        Err(error) => {
            return json!({ "schema": SCHEMA, "up": false, "at_ms": now_ms(), "error": error });
        }
    };
    let figures: HashMap<PoolId, &PoolFigures> =
        snapshot.figures.iter().map(|f| (f.pool, f)).collect();
    let names: HashMap<DomainId, &str> = (snapshot.records.iter())
        .filter_map(|r| match r {
            StatRecord::Domain(d) => Some((d.domain, d.name.as_str())),
            _ => None,
        })
        .collect();
    let name = |id: &DomainId| names.get(id).copied().unwrap_or("").to_owned();
    let mut all = json!({
        "schema": SCHEMA, "up": true, "at_ms": snapshot.at_ms, "manager": {},
        "domains": [], "pools": [], "heaps": [], "channels": [], "holds": [],
        "counts": { "domains": 0, "pools": 0, "heaps": 0, "channels": 0, "holds": 0 },
    });
    for record in &snapshot.records {
        let (list, value) = match record {
            StatRecord::Manager(m) => {
                all["manager"] = json!(m);
                // 53 bits do not hold this number.
                all["manager"]["instance"] = json!(format!("{:016x}", m.instance));
                continue;
            }
            StatRecord::Domain(d) => ("domains", json!(d)),
            StatRecord::Pool(p) => {
                let mut value = json!(p);
                value["domain"] = json!(name(&p.writer));
                if let Some(f) = figures.get(&p.pool) {
                    value["figures"] = json!(f);
                }
                ("pools", value)
            }
            StatRecord::Heap(h) => {
                let mut value = json!(h);
                value["domain"] = json!(name(&h.owner));
                ("heaps", value)
            }
            StatRecord::Channel(c) if c.channel.0 == 0 => continue,
            StatRecord::Channel(c) => {
                let mut value = json!(c);
                let place = || c.place.clone().unwrap_or_default();
                value["from"] = json!(c.source.as_ref().map_or_else(place, name));
                value["to"] = json!(c.sink.as_ref().map_or_else(place, name));
                ("channels", value)
            }
            StatRecord::Hold(h) if h.buffers == 0 => continue,
            StatRecord::Hold(h) => {
                let mut value = json!(h);
                value["name"] = json!(name(&h.domain));
                ("holds", value)
            }
        };
        let count = all["counts"][list].as_u64().unwrap_or(0) + 1;
        all["counts"][list] = json!(count);
        if let Some(list) = all[list].as_array_mut().filter(|l| l.len() < MOST) {
            list.push(value);
        }
    }
    all
}
