//! The tables of the papers cite files and tests that exist.

use crate::findings::Findings;
use crate::source::TextFile;
use std::collections::BTreeSet;
use std::path::Path;

const TABLES: &str = "docs/papers/";
/// A gap begins there: what is missing need not exist.
const GAP: &str = "missing:";

/// Checks each row of each table.
pub(super) fn check(root: &Path, files: &[TextFile], findings: &mut Findings) {
    let code = files.iter().filter(|file| file.path.ends_with(".rs"));
    let tests: BTreeSet<&str> = code.flat_map(|file| functions(&file.text)).collect();
    let exists = |path: &str| root.join("crates").join(path).exists() || root.join(path).exists();
    for file in files.iter().filter(|file| file.path.starts_with(TABLES)) {
        for (number, line) in (1..).zip(file.text.lines()) {
            for wrong in wrong(line, exists, |name| tests.contains(name)) {
                findings.error(format!("{}:{number}: {wrong}", file.path));
            }
        }
    }
}

/// The names of functions that begin a line.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let name = line
            .trim_start()
            .trim_start_matches("pub ")
            .strip_prefix("fn ")?;
        name.split(['(', '<']).next()
    })
}

/// Returns citations of a row that are not there: paths of the last two columns, and tests of the last.
fn wrong(line: &str, exists: impl Fn(&str) -> bool, is_test: impl Fn(&str) -> bool) -> Vec<String> {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
    let [number, _, here, tests] = cells[..] else {
        return Vec::new();
    };
    if !number.ends_with(|c: char| c.is_ascii_digit()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (cell, has_tests) in [(here, false), (tests, true)] {
        let cell = cell.split(GAP).next().unwrap_or(cell);
        for word in cell.split('`').skip(1).step_by(2) {
            let is_path = word.contains('/') && !word.contains(' ');
            let is_name = word.matches('_').count() >= 2
                && word
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit());
            if is_path && !exists(word) {
                found.push(format!("no file {word}"));
            } else if has_tests && is_name && !is_path && !is_test(word) {
                found.push(format!("no test {word}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_cites_what_there_is() {
        let of = |line: &str| wrong(line, |path| path == "a/b.rs", |name| name == "it_is_so");
        let none: [String; 0] = [];
        assert_eq!(
            of("| C1 | the paper `x/y` | `a/b.rs` | `it_is_so`; missing: `c/d.rs` |"),
            none
        );
        assert_eq!(
            of("| C1 | x | `a/c.rs` | `it_is_not` |"),
            ["no file a/c.rs", "no test it_is_not"]
        );
        assert_eq!(of("| | the paper | here | `it_is_not` |"), none);
        assert_eq!(
            functions("    fn a_b_c() {\npub fn d<T>() {}\n").collect::<Vec<_>>(),
            ["a_b_c", "d"]
        );
    }
}
