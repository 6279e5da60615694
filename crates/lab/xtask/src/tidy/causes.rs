//! No `map_err(|_|` in product code: an error keeps its cause, or names the type of one that says nothing (`|_:
//! TryFromIntError|`). A type that is just called `Error` says something.

use crate::findings::Findings;
use crate::source::{TextFile, code_only, crate_of};

/// Places where causes may be thrown away, and how many. Of the block's data nothing can fail, and a fault is a number on
/// the wire. An allocator has nobody to tell, and no memory to tell it in. In the manager serde's error knows less than
/// the text that replaces it.
const KNOWN: [(&str, usize); 5] = [
    ("crates/block/src/data.rs", 1),
    ("crates/heap/malloc/src/link.rs", 5),
    ("crates/core/manager/src/config/access.rs", 1),
    ("crates/core/manager/src/config/hogs.rs", 1),
    ("crates/core/manager/src/config/units.rs", 1),
];

/// Crates that are no product.
const DEVELOPERS: &[&str] = &["bench", "testkit", "xtask"];

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    let product = crate_of(&file.path).is_some_and(|name| !DEVELOPERS.contains(&name));
    if !product || !file.path.contains("/src/") || !file.path.ends_with(".rs") {
        return;
    }
    let code = code_only(&file.text);
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = code.split_whitespace().collect();
    let found = code
        .split("map_err(|_")
        .skip(1)
        .filter(|after| thrown_away(after))
        .count();
    let known = KNOWN.iter().find(|(path, _)| *path == file.path);
    let known = known.map_or(0, |(_, count)| *count);
    if found > known {
        findings.error(format!(
            "{}: {found} times `map_err(|_|` or `map_err(|_: Error|`, {known} may be: keep the cause (`error::of_kind`, `Error::because`), or name the type of one that says nothing",
            file.path
        ));
    } else if found < known {
        findings.error(format!(
            "{}: {found} times `map_err(|_|` or `map_err(|_: Error|`; write that down in xtask/src/tidy/causes.rs, where it says {known}",
            file.path
        ));
    }
}

/// Returns whether the text behind `map_err(|_` throws a cause away: one that has a type that says something.
fn thrown_away(after: &str) -> bool {
    let of = after.split('|').next().unwrap_or_default();
    of.is_empty() || of == ":Error" || of.ends_with("::Error")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> usize {
        let mut findings = Findings::default();
        let (path, text) = (path.to_owned(), text.to_owned());
        check(&TextFile { path, text }, &mut findings);
        findings.errors.len()
    }

    #[test]
    fn a_cause_that_is_thrown_away_is_found_in_products_only() {
        let thrown = "fn f() { g()\n.map_err(\n|_| X)?; }";
        assert_eq!(errors("crates/core/core/src/a.rs", thrown), 1);
        assert_eq!(errors("crates/lab/bench/src/a.rs", thrown), 0);
        assert_eq!(errors("crates/core/core/tests/a.rs", thrown), 0);
        assert_eq!(
            errors(
                "crates/core/core/src/a.rs",
                "g().map_err(error::of_kind(k))"
            ),
            0
        );
        let named = |of| {
            errors(
                "crates/core/core/src/a.rs",
                &format!("g().map_err(|_: {of}| X)"),
            )
        };
        assert_eq!(named("Error"), 1);
        assert_eq!(named("io::Error"), 1);
        assert_eq!(named("std::num::TryFromIntError"), 0);
        let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{ {thrown} }}");
        assert_eq!(errors("crates/core/core/src/a.rs", &tested), 0);
        assert_eq!(errors("crates/core/core/src/a.rs", "// map_err(|_| x)"), 0);
    }
}
