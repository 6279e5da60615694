//! A plot for each way to wait and to touch.

use crate::plot::{self, Along};
use crate::report::Row;
use anyhow::Result;
use std::path::Path;

/// Draws into `PREFIX-MODE-OP.svg`.
pub fn save(rows: &[Row], prefix: &Path) -> Result<()> {
    for (mode, waits) in [("spin", "busy-polling"), ("block", "who waits sleeps")] {
        for (op, touched) in [("word", "8 bytes"), ("touched", "all bytes")] {
            let of: Vec<Row> = rows
                .iter()
                .filter(|row| row.key.mode == mode && row.key.op == op)
                .cloned()
                .collect();
            if of.is_empty() {
                continue;
            }
            let lines = plot::lines(
                &of,
                |row| Some(row.system.clone()),
                plot::median_over_payload,
            );
            let title = format!("Arrays to and fro in Python, {touched} written and read, {waits}");
            let file = prefix.with_file_name(format!(
                "{}-{mode}-{op}.svg",
                prefix.file_name().unwrap_or_default().to_string_lossy()
            ));
            plot::save(&file, &title, Along::Bytes, &lines)?;
        }
    }
    Ok(())
}
