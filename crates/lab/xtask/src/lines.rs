//! Counts the product's lines: `cargo run -p xtask -- lines` for every crate and sums of crates, `lines core block` for
//! these and their sum.
//!
//! Counted are the Rust files below `crates/*/*/src`; for the sum of tests the files beside `src`, and the testkit,
//! too. A file's tests are its module `tests`, in it or beside it, and what the feature `audit` has; a comment is a
//! line that begins as one.

use crate::source::{self, code_only};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::AddAssign;
use std::path::Path;

/// Lines of some files, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    comments: usize,
    blank: usize,
    tests: usize,
}

impl Lines {
    fn product(self) -> usize {
        self.code + self.comments + self.blank
    }

    fn row(self, name: &str) -> String {
        let (product, all) = (self.product(), self.product() + self.tests);
        let Lines {
            code,
            comments,
            tests,
            ..
        } = self;
        format!("{name:<16}{all:>8}{tests:>8}{product:>10}{comments:>10}{code:>8}\n")
    }
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Lines) {
        self.code += other.code;
        self.comments += other.comments;
        self.blank += other.blank;
        self.tests += other.tests;
    }
}

/// The crates of `core` without which there are channels.
const BESIDE_CHANNELS: &[&str] = &[
    "component",
    "queue",
    "readers",
    "service",
    "topic",
    "typed",
    "typed-derive",
];

/// Returns the sums to which a file of a crate belongs.
fn sums(path: &str, name: &str, is_test: bool) -> &'static [&'static str] {
    let is_in = |part: &str| path.starts_with(&format!("crates/{part}/"));
    match () {
        () if is_test || name == "testkit" => &["tests"],
        () if is_in("lab") => &["lab"],
        () if BESIDE_CHANNELS.contains(&name) => &["product"],
        () if is_in("base") || is_in("core") => &["base + core", "product"],
        () => &["product"],
    }
}

/// Returns the table: of all crates and their sums, or of those that are named.
pub(crate) fn table(root: &Path, named: &[String]) -> Result<String> {
    let mut crates: BTreeMap<String, Lines> = BTreeMap::new();
    let mut groups: BTreeMap<&str, Lines> = BTreeMap::new();
    for file in source::files(root)? {
        let Some((name, inside)) = source::split(&file.path) else {
            continue;
        };
        if named.is_empty() && inside.ends_with(".rs") {
            let lines = count(&file.path, &file.text);
            let sums = sums(&file.path, name, !inside.starts_with("src/"));
            for sum in sums {
                *groups.entry(sum).or_default() += lines;
            }
            if !sums.contains(&"tests") {
                groups.entry("tests").or_default().tests += lines.tests;
            }
        }
        let product = inside.starts_with("src/") && inside.ends_with(".rs");
        if product && (named.is_empty() || named.iter().any(|n| n == name)) {
            *crates.entry(name.to_owned()).or_default() += count(&file.path, &file.text);
        }
    }
    if let Some(missing) = named.iter().find(|name| !crates.contains_key(*name)) {
        bail!("no crate `{missing}` below crates/");
    }
    let mut text = format!(
        "{:<16}{:>8}{:>8}{:>10}{:>10}{:>8}\n",
        "crate", "lines", "tests", "product", "comments", "code"
    );
    let mut sum = Lines::default();
    for (name, lines) in crates {
        sum += lines;
        write!(text, "{}", lines.row(&name))?;
    }
    write!(text, "{}", sum.row("together"))?;
    for (name, lines) in groups {
        write!(text, "{}", lines.row(name))?;
    }
    Ok(text)
}

fn count(path: &str, text: &str) -> Lines {
    let mut lines = Lines::default();
    if path.ends_with("/tests.rs") || path.contains("/tests/") || text.contains(AUDIT_FILE) {
        lines.tests = text.lines().count();
        return lines;
    }
    let code = code_only(text);
    let mut depth = 0; // of braces, inside of a module of tests
    let mut begins = false;
    for (line, code) in text.lines().zip(code.lines()) {
        let trimmed = line.trim_start();
        let open = code.matches('{').count();
        if depth > 0 || begins && trimmed.starts_with("mod ") && open > 0 {
            depth += open;
            depth -= code.matches('}').count().min(depth);
            begins = false;
            lines.tests += 1;
        } else if is_for_tests(code.trim(), trimmed) {
            begins = true;
            lines.tests += 1;
        } else if trimmed.is_empty() {
            lines.blank += 1;
        } else if trimmed.starts_with("//") {
            lines.comments += 1;
        } else {
            // Declared here, it is a file of its own; any other code for tests alone counts as code.
            begins = begins && trimmed.starts_with('#');
            lines.code += 1;
        }
    }
    lines
}

/// Before code that no program has: only tests build it.
const AUDIT: &str = "#[cfg(feature = \"audit\")]";
/// At the top of a file of such code.
const AUDIT_FILE: &str = "\n#![cfg(feature = \"audit\")]\n";

/// Returns whether there is `#[cfg(test)]`, `#[cfg(all(test, ...))]`, or the feature that only tests have.
fn is_for_tests(code: &str, line: &str) -> bool {
    let begins = |with: &str| code.starts_with(with);
    begins("#[cfg(test)") || begins("#[cfg(all(test,") || begins("#[cfg(") && line == AUDIT
}

#[cfg(test)]
mod tests {
    use super::{Lines, count};

    const FILE: &str = r#"//! A file.

use a::b;

/// Doubles.
fn f() -> &'static str {
    "{ // no comment" // but this is one, behind code
}

#[cfg(all(test, not(loom)))]
#[allow(dead_code)]
mod tests {
    #[test]
    fn g() {
        assert_eq!(f(), "}");
    }
}
"#;

    #[test]
    fn a_crate_belongs_to_the_sums_of_its_part() {
        let of = |path: &str, name| super::sums(path, name, path.contains("/tests/"));
        let base = ["base + core", "product"];
        assert_eq!(of("crates/base/ring/src/a.rs", "ring"), base);
        assert_eq!(of("crates/core/core/src/a.rs", "core"), base);
        assert_eq!(of("crates/core/topic/src/a.rs", "topic"), ["product"]);
        assert_eq!(of("crates/lab/bench/src/a.rs", "bench"), ["lab"]);
        assert_eq!(of("crates/lab/testkit/src/a.rs", "testkit"), ["tests"]);
        assert_eq!(of("crates/core/core/tests/a.rs", "core"), ["tests"]);
    }

    #[test]
    fn audits_are_no_product() {
        let module = FILE.replace("#[cfg(all(test, not(loom)))]", super::AUDIT);
        assert_eq!(count("crates/a/src/b.rs", &module).tests, 7);
        let file = FILE.replacen('\n', super::AUDIT_FILE, 1);
        assert_eq!(count("crates/a/src/b.rs", &file).code, 0);
    }

    #[test]
    fn tests_are_no_product() {
        let lines = count("crates/a/src/b.rs", FILE);
        let expected = Lines {
            code: 5,
            comments: 2,
            blank: 3,
            tests: 7,
        };
        assert_eq!(lines, expected);
        assert_eq!(lines.product() + lines.tests, FILE.lines().count());
    }

    #[test]
    fn a_module_of_tests_may_be_a_file_of_its_own() {
        assert_eq!(count("crates/a/src/b/tests.rs", FILE).product(), 0);
        assert_eq!(count("crates/a/src/tests/c.rs", FILE).product(), 0);
        let declared = count(
            "crates/a/src/b.rs",
            "#[cfg(test)]\nmod tests;\n\nfn f() {\n}\n",
        );
        assert_eq!((declared.code, declared.tests), (3, 1));
    }
}
