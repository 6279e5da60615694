//! The written list.
//!
//! ```text
//! # A comment.
//! tests -p tranship-manager          what `cargo test` is told, after variables; holds until the next such line
//! file crates/core/manager/src/state/memory.rs
//!
//! - let total = self.free_bytes();   found in exactly one place; several lines may follow each other
//! + let total = self.total_bytes;
//! = Why nobody can notice.           only where one lives, and may
//! ```
//! Space at the ends of lines does not count. A part of one line is enough.

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;

/// One file of the list, as far as one `tests` line reaches.
#[derive(Debug)]
pub(super) struct Group {
    pub name: String,
    pub tests: Vec<String>,
    pub mutations: Vec<Mutation>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Mutation {
    pub file: String,
    /// Line in the list.
    pub line: usize,
    pub old: Vec<String>,
    pub new: Vec<String>,
    /// Reason for which it may live.
    pub why: Option<String>,
}

impl Mutation {
    /// Returns whether a filter matches: it is a part of the list's name, of the file's or of the changed text, or
    /// names the place of the mutation (`at`).
    pub fn matches(&self, group: &Group, filters: &[String]) -> bool {
        let at = self.at(group);
        let texts = [&group.name, &self.file];
        let texts = || texts.into_iter().chain(&self.old).chain(&self.new);
        let fits = |filter: &String| *filter == at || texts().any(|text| text.contains(filter));
        filters.is_empty() || filters.iter().any(fits)
    }

    /// Returns the place where it stands.
    pub fn at(&self, group: &Group) -> String {
        format!("{}.txt:{}", group.name, self.line)
    }

    pub fn shown(&self) -> String {
        format!("{} -> {}", self.old.join(" "), self.new.join(" "))
    }

    /// Returns the text with the change.
    pub fn apply(&self, text: &str) -> Result<String> {
        let lines: Vec<&str> = text.lines().collect();
        let fits = |at: &usize| {
            let here = &lines[*at..*at + self.old.len()];
            match &self.old[..] {
                [one] => here[0].contains(one.as_str()),
                all => here.iter().zip(all).all(|(line, old)| line.trim() == old),
            }
        };
        let last = (lines.len() + 1).saturating_sub(self.old.len());
        let found: Vec<usize> = (0..last).filter(fits).collect();
        let [at] = found[..] else {
            bail!(
                "found {} times in {}: {}",
                found.len(),
                self.file,
                self.old.join("\n")
            );
        };
        let mut out: Vec<String> = lines[..at].iter().map(|line| (*line).to_owned()).collect();
        match &self.old[..] {
            [one] => out.push(lines[at].replacen(one.as_str(), &self.new.join("\n"), 1)),
            _ => out.extend(self.new.iter().cloned()),
        }
        out.extend(
            lines[at + self.old.len()..]
                .iter()
                .map(|line| (*line).to_owned()),
        );
        Ok(out.join("\n") + "\n")
    }
}

/// Reads all lists of a folder, in order.
pub(super) fn read(folder: &Path) -> Result<Vec<Group>> {
    let files = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<_> = files.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    paths.sort();
    let mut groups = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&path)?;
        parse(&name, &text, &mut groups).with_context(|| path.display().to_string())?;
    }
    Ok(groups)
}

fn parse(name: &str, text: &str, groups: &mut Vec<Group>) -> Result<()> {
    let mut file = String::new();
    let mut begun: Option<Mutation> = None;
    let first = groups.len();
    for (line, text) in (1..).zip(text.lines().chain([""])) {
        let (mark, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim().to_owned();
        let over = begun
            .as_ref()
            .is_some_and(|m| !m.new.is_empty() && mark != "+" && mark != "=");
        if (over || mark.is_empty())
            && let Some(mutation) = begun.take()
        {
            ensure!(
                !mutation.new.is_empty(),
                "line {}: nothing in its place",
                mutation.line
            );
            let group = groups.get_mut(first..).and_then(<[Group]>::last_mut);
            group
                .context("no tests before the first change")?
                .mutations
                .push(mutation);
        }
        match (mark, &mut begun) {
            ("" | "#", _) => {}
            ("tests", None) => groups.push(Group {
                name: name.to_owned(),
                tests: rest.split_whitespace().map(str::to_owned).collect(),
                mutations: Vec::new(),
            }),
            ("file", None) => file = rest,
            ("-", Some(mutation)) => mutation.old.push(rest),
            ("-", None) => {
                begun = Some(Mutation {
                    file: file.clone(),
                    line,
                    old: vec![rest],
                    ..Mutation::default()
                });
            }
            ("+", Some(mutation)) => mutation.new.push(rest),
            ("=", Some(mutation)) => {
                let why = mutation
                    .why
                    .take()
                    .map_or(rest.clone(), |why| format!("{why} {rest}"));
                mutation.why = Some(why);
            }
            _ => bail!("line {line}: {text}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
# A comment.
tests -p one --lib
file a.rs

- a < b
+ a <= b
- first
- second
+ second
= Nobody
= can.

tests -p two
- gone();
+
";

    fn parsed() -> Vec<Group> {
        let mut groups = Vec::new();
        parse("list", LIST, &mut groups).expect("right");
        groups
    }

    #[test]
    fn a_list_is_read() {
        let groups = parsed();
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].tests, ["-p", "one", "--lib"]);
        let [less, swapped] = &groups[0].mutations[..] else {
            panic!("{groups:?}")
        };
        assert_eq!(
            (less.file.as_str(), less.line, &less.why),
            ("a.rs", 5, &None)
        );
        assert_eq!(swapped.old, ["first", "second"]);
        assert_eq!(swapped.why.as_deref(), Some("Nobody can."));
        assert_eq!(groups[1].mutations[0].new, [""]);
        for wrong in [
            "- a\n+ b",
            "tests -p x\n- a\n",
            "tests -p x\nnonsense",
            "tests -p x\n+ b",
        ] {
            assert!(parse("list", wrong, &mut Vec::new()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_filter_is_a_part_or_a_place() {
        let group = &parsed()[0];
        let fitting = |filters: &[&str]| {
            let filters: Vec<String> = filters.iter().map(|f| (*f).to_owned()).collect();
            let all = group.mutations.iter();
            all.map(|m| m.matches(group, &filters)).collect::<Vec<_>>()
        };
        assert_eq!(fitting(&[]), [true, true]);
        assert_eq!(fitting(&["list"]), [true, true]);
        assert_eq!(fitting(&["list.txt:5"]), [true, false]);
        assert_eq!(fitting(&["second"]), [false, true]);
        assert_eq!(fitting(&["list.txt:5", "first"]), [true, true]);
        assert_eq!(fitting(&["list.txt:6", "b.rs"]), [false, false]);
    }

    #[test]
    fn a_change_is_made_in_its_only_place() {
        let groups = parsed();
        let [less, swapped] = &groups[0].mutations[..] else {
            panic!("{groups:?}")
        };
        let text = "if a < b {\n    first\n    second\n}\nfirst\n";
        assert_eq!(less.apply(text).expect("there"), text.replace('<', "<="));
        let without = "if a < b {\nsecond\n}\nfirst\n";
        assert_eq!(swapped.apply(text).expect("there"), without);
        let gone = &groups[1].mutations[0];
        assert_eq!(gone.apply("x();\ngone();\n").expect("there"), "x();\n\n");
        assert!(gone.apply("gone();\ngone();\n").is_err());
        assert!(gone.apply("x();\n").is_err());
    }
}
