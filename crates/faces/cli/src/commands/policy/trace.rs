//! Traces: JSON lines; the first describes the trace.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::io::BufRead;
use std::path::Path;
use tranship_policy::Snapshot;

/// The version of the format.
pub(super) const VERSION: u32 = 1;
/// Longest line: thousands of pools fit.
const LINE_BYTES: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    tranship_trace: u32,
}

/// Reads a whole trace.
pub(super) fn load(path: &Path) -> Result<Vec<Snapshot>> {
    let shown = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("opening {shown}"))?;
    read(std::io::BufReader::new(file), &shown.to_string())
}

fn read(mut from: impl BufRead, name: &str) -> Result<Vec<Snapshot>> {
    let mut trace = Vec::new();
    let mut line = String::new();
    for number in 1u64.. {
        line.clear();
        let mut bounded = std::io::Read::take(&mut from, LINE_BYTES);
        let read = bounded.read_line(&mut line);
        let read = read.with_context(|| format!("{name}:{number}"))?;
        if read as u64 == LINE_BYTES && !line.ends_with('\n') {
            bail!("{name}:{number}: a line of more than {LINE_BYTES} bytes");
        }
        let text = line.trim();
        if number == 1 {
            let first: First = serde_json::from_str(text).with_context(|| {
                format!("{name}:1: a trace begins with {{\"tranship_trace\":{VERSION}}}")
            })?;
            if first.tranship_trace != VERSION {
                let version = first.tranship_trace;
                bail!(
                    "{name}:1: a trace of version {version}; this program reads version {VERSION}"
                );
            }
        } else if !text.is_empty() {
            let snapshot = serde_json::from_str(text);
            trace.push(snapshot.with_context(|| format!("{name}:{number}: no snapshot"))?);
        }
        if read == 0 {
            break;
        }
    }
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::read;

    fn error(text: &str) -> String {
        format!("{:#}", read(text.as_bytes(), "t").expect_err("no trace"))
    }

    #[test]
    fn what_is_read_and_what_is_not() {
        let line = r#"{"at_ns":5,"limit_bytes":9,"pools":[{"id":1,"weight":3}]}"#;
        let trace = read(
            format!("{{\"tranship_trace\":1}}\n{line}\n\n{line}").as_bytes(),
            "t",
        );
        let trace = trace.expect("a trace");
        assert_eq!((trace.len(), trace[1].pools[0].rule.weight), (2, 3));
        assert!(error("").starts_with("t:1: a trace begins with"));
        assert!(error("{\"tranship_trace\":7}").contains("version 7"));
        let wrong = error("{\"tranship_trace\":1}\n{\"at_ns\":1,\"pool\":2}");
        assert!(
            wrong.starts_with("t:2: no snapshot: unknown field `pool`"),
            "{wrong}"
        );
    }
}
