//! Results of the changes, file by file, as docs/testing.md shows them.

use super::list::Mutation;
use super::verdict::Verdict;
use crate::source;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Rows in the order of the lists.
    rows: Vec<(String, Row)>,
}

#[derive(Debug, Default, Clone)]
struct Row {
    changed: usize,
    noticed: usize,
    explained: usize,
    /// Number of changes that each test was the first to notice.
    by: BTreeMap<String, usize>,
}

impl Table {
    pub fn count(&mut self, mutation: &Mutation, verdict: &Verdict) {
        let file = short(&mutation.file);
        let at = self.rows.iter().position(|(its, _)| *its == file);
        let at = at.unwrap_or_else(|| {
            self.rows.push((file, Row::default()));
            self.rows.len() - 1
        });
        let row = &mut self.rows[at].1;
        row.changed += 1;
        let by = match verdict {
            Verdict::Killed(test) if test.contains(' ') => test.clone(),
            Verdict::Killed(test) => format!("`{}`", test.rsplit("::").next().unwrap_or(test)),
            Verdict::Hung => "hung".to_owned(),
            Verdict::Survived => {
                row.explained += usize::from(mutation.why.is_some());
                return;
            }
            Verdict::DoesNotBuild => return,
        };
        row.noticed += 1;
        *row.by.entry(by).or_default() += 1;
    }
}

/// Returns `crates/core/manager/src/state/memory.rs` as `manager/state/memory.rs`.
fn short(file: &str) -> String {
    source::split(file).map_or_else(
        || file.to_owned(),
        |(name, inside)| format!("{name}/{}", inside.trim_start_matches("src/")),
    )
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| file | changed | noticed | explained | by |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        let mut all = Row::default();
        for (file, row) in &self.rows {
            let mut by: Vec<_> = row.by.iter().collect();
            by.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
            let by: Vec<String> = by
                .into_iter()
                .map(|(test, n)| match n {
                    1 => test.clone(),
                    n => format!("{test} {n}"),
                })
                .collect();
            let Row {
                changed,
                noticed,
                explained,
                ..
            } = row;
            let by = by.join(", ");
            writeln!(
                f,
                "| `{file}` | {changed} | {noticed} | {explained} | {by} |"
            )?;
            all.changed += changed;
            all.noticed += noticed;
            all.explained += explained;
        }
        let left = all.changed - all.noticed - all.explained;
        write!(
            f,
            "| all | {} | {} | {} | {left} that nothing notices |",
            all.changed, all.noticed, all.explained
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_file() {
        let mut table = Table::default();
        let mut count = |file: &str, why: Option<&str>, verdict| {
            let mutation = Mutation {
                file: file.to_owned(),
                why: why.map(str::to_owned),
                ..Mutation::default()
            };
            table.count(&mutation, &verdict);
        };
        let killed = |test: &str| Verdict::Killed(test.to_owned());
        count("crates/base/b/src/x.rs", None, killed("m::tests::one"));
        count("crates/base/b/src/x.rs", None, killed("n::two"));
        count("crates/base/b/src/x.rs", None, killed("two"));
        count("crates/base/b/src/x.rs", Some("No."), Verdict::Survived);
        count("crates/base/a/src/y/z.rs", None, Verdict::Hung);
        count(
            "crates/base/a/src/y/z.rs",
            None,
            killed("a program that ended"),
        );
        count("crates/base/a/src/y/z.rs", None, Verdict::Survived);
        let said = table.to_string();
        let rows: Vec<&str> = said.lines().skip(2).collect();
        let shown = [
            "| `b/x.rs` | 4 | 3 | 1 | `two` 2, `one` |",
            "| `a/y/z.rs` | 3 | 2 | 0 | a program that ended, hung |",
            "| all | 7 | 5 | 1 | 1 that nothing notices |",
        ];
        assert_eq!(rows, shown);
    }
}
