//! A limit that pages repeat stands there with its name, as in "40 bytes (`INLINE_BYTES`)", and is the code's.

use crate::findings::Findings;
use anyhow::{Context, Result};
use std::path::Path;
use tranship_ring::INLINE_BYTES;

/// Word that follows a number that is such a limit.
const UNIT: &str = " bytes";
const NAMES: [&str; 2] = ["INLINE_BYTES", "TRANSHIP_INLINE_BYTES"];

/// Checks that each such number is the code's, and named.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    let docs = root.join("docs");
    let mut pages = vec![root.join("README.md")];
    for entry in std::fs::read_dir(&docs).context("docs")? {
        let path = entry.context("docs")?.path();
        if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    for page in pages {
        findings.saw();
        let text = std::fs::read_to_string(&page)?;
        let name = page.strip_prefix(root).unwrap_or(&page).display();
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(wrong) = wrong(line) {
                findings.error(format!("{name}:{number}: {wrong}"));
            }
        }
    }
    Ok(findings)
}

/// Returns the error in a line.
fn wrong(line: &str) -> Option<String> {
    line.match_indices(UNIT).find_map(|(at, _)| {
        let before = &line[..at];
        let digits = before
            .chars()
            .rev()
            .take_while(|c| c.is_ascii_digit() || *c == ',')
            .count();
        let says = &before[before.len() - digits..];
        let after = line[at + UNIT.len()..].trim_start_matches([' ', ',', '(', '`']);
        let named = NAMES.iter().any(|name| {
            after
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('`'))
        });
        match (named, says == INLINE_BYTES.to_string()) {
            (true, false) => Some(format!("{says} bytes, but INLINE_BYTES is {INLINE_BYTES}")),
            (false, true) => Some(format!(
                "{says} bytes without a name: write \"{says} bytes (`INLINE_BYTES`)\""
            )),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_codes_and_named() {
        assert_eq!(wrong("up to 40 bytes (`INLINE_BYTES`) inline"), None);
        assert_eq!(wrong("up to 40 bytes (`TRANSHIP_INLINE_BYTES`)"), None);
        assert_eq!(wrong("inline (40 bytes, `INLINE_BYTES`), 4096 bytes"), None);
        assert_eq!(wrong("2,048 bytes and 148 bytes"), None);
        let other = wrong("up to 56 bytes (`INLINE_BYTES`)");
        assert_eq!(other.as_deref(), Some("56 bytes, but INLINE_BYTES is 40"));
        let bare = wrong("64 bytes, or 40 bytes").expect("no name");
        assert!(bare.starts_with("40 bytes without a name"), "{bare}");
    }
}
