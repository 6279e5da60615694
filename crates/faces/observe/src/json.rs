//! JSON of records, and of a whole look for the page.

use crate::look::{Snapshot, now_ms};
use serde_json::{Value, json};
use std::collections::HashMap;
use tranship_proto::{DomainId, StatRecord};

/// Version that rises when a field changes its meaning or leaves.
const SCHEMA: u32 = 2;
/// Most records of each sort; the page says how many there are.
const MOST: usize = 2000;

/// Returns a record as an object of its figures, without those that only the statistics page has.
#[must_use]
pub fn record_json(record: &StatRecord) -> Value {
    // Serde writes the variant's name around the record.
    let tagged = match json!(record) {
        Value::Object(tagged) => tagged.into_iter().next(),
        _ => None,
    };
    let (_, mut value) = tagged.unwrap_or_default();
    if let Some(figures) = value.as_object_mut() {
        for (figure, _) in record.record().each().filter(|(f, _)| f.page_only) {
            figures.remove(figure.name);
        }
    }
    value
}

/// Returns one look, as JSON.
#[must_use]
pub fn page_data(looked: Result<&Snapshot, &str>) -> Value {
    let snapshot = match looked {
        Ok(snapshot) => snapshot,
        Err(error) => {
            return json!({ "schema": SCHEMA, "up": false, "at_ms": now_ms(), "error": error });
        }
    };
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
        let (list, mut value) = (record.list(), record_json(record));
        match record {
            StatRecord::Manager(m) => {
                // 53 bits do not hold this number.
                value["instance"] = json!(format!("{:016x}", m.instance));
                all[list] = value;
                continue;
            }
            StatRecord::Domain(_) => {}
            StatRecord::Pool(p) => value["domain"] = json!(name(&p.writer)),
            StatRecord::Heap(h) => value["domain"] = json!(name(&h.owner)),
            StatRecord::Channel(c) if c.channel.0 == 0 => continue,
            StatRecord::Channel(c) => {
                let place = || c.place.clone().unwrap_or_default();
                value["from"] = json!(c.source.as_ref().map_or_else(place, name));
                value["to"] = json!(c.sink.as_ref().map_or_else(place, name));
            }
            StatRecord::Hold(h) if h.buffers == 0 => continue,
            StatRecord::Hold(h) => value["name"] = json!(name(&h.domain)),
        }
        let count = all["counts"][list].as_u64().unwrap_or(0) + 1;
        all["counts"][list] = json!(count);
        if let Some(list) = all[list].as_array_mut().filter(|l| l.len() < MOST) {
            list.push(value);
        }
    }
    all
}
