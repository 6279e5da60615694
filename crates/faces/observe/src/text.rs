//! Samples as text: OpenMetrics 1.0, or the older text of Prometheus (version 0.0.4).
//!
//! Sources: OpenMetrics 1.0.0; Prometheus, "Text-based format".

use crate::collect::Samples;
use crate::families::{FAMILIES, Family, Kind};
use crate::tally::Labels;
use std::fmt::Write;

/// Format of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The older text of Prometheus, which node_exporter's textfile collector reads, too.
    Prometheus,
}

impl Format {
    /// Returns the content type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub(crate) fn encode(samples: &Samples, format: Format) -> String {
    let mut out = String::new();
    for family in FAMILIES.iter() {
        let series = samples.0.get(family.name);
        let Some(series) = series.filter(|s| !s.is_empty()) else {
            continue;
        };
        head(&mut out, family, format);
        let name = family.sample_name();
        for (labels, value) in series {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{name}{} {value}", Escaped(labels));
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn head(out: &mut String, family: &Family, format: Format) {
    let (name, kind) = match (format, family.kind) {
        (Format::OpenMetrics, Kind::Gauge) => (family.name.to_owned(), "gauge"),
        (Format::OpenMetrics, Kind::Counter) => (family.name.to_owned(), "counter"),
        (Format::OpenMetrics, Kind::Info) => (family.name.to_owned(), "info"),
        (Format::Prometheus, Kind::Counter) => (family.sample_name(), "counter"),
        (Format::Prometheus, _) => (family.sample_name(), "gauge"),
    };
    let help = family.help.replace('\\', r"\\").replace('\n', r"\n");
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if let (Format::OpenMetrics, Some(unit)) = (format, family.unit) {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {help}");
}

struct Escaped<'a>(&'a Labels);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            f.write_char(if i == 0 { '{' } else { ',' })?;
            write!(f, "{name}=\"")?;
            for c in value.chars() {
                match c {
                    '\\' => f.write_str(r"\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str(r"\n")?,
                    c => f.write_char(c)?,
                }
            }
            f.write_char('"')?;
        }
        if self.0.is_empty() {
            Ok(())
        } else {
            f.write_char('}')
        }
    }
}
