//! Sizes, JSON and plain tables on standard output.

use anyhow::Result;
use serde::Serialize;
use std::io::IsTerminal as _;

/// Tells a person at a terminal which stage begins, and how many there are.
pub(crate) fn stage(is_quiet: bool, name: &str, number: usize, of: usize) {
    if !is_quiet && std::io::stderr().is_terminal() {
        eprintln!("{} of {of}: {name}", number + 1);
    }
}

/// Writes one JSON value and a line break.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A size with a binary unit.
#[allow(clippy::cast_precision_loss)] // for people
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Rows of text under a heading, in columns as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table. A heading that begins with `>` is of a column aligned to the right.
    pub(crate) fn new(heading: &[&str]) -> Table {
        let heading = heading.iter().map(|text| (*text).to_owned());
        Table {
            rows: vec![heading.collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn print(&self) {
        let (heading, _) = self.rows.split_first().expect("a heading");
        let right: Vec<bool> = heading.iter().map(|text| text.starts_with('>')).collect();
        let shown = |cell: &String| cell.trim_start_matches('>').to_owned();
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(shown).collect())
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        for row in &rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = width(column).unwrap_or(0);
                line += &match right[column] {
                    true => format!("{cell:>width$}  "),
                    false => format!("{cell:<width$}  "),
                };
            }
            println!("{}", line.trim_end());
        }
        println!();
    }
}
