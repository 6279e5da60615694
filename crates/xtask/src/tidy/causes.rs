//! No `map_err(|_|` in product code: an error keeps its cause, or names the type of one that says nothing (`|_: TryFromIntError|`).

use crate::findings::Findings;
use crate::source::{TextFile, code_only, crate_of};

/// Where they may be: how many, and why.
const KNOWN: &[(&str, usize, &str)] = &[
    (
        "crates/cache/src/store/mod.rs",
        1,
        "full is an answer of the protocol",
    ),
    (
        "crates/malloc/src/link.rs",
        5,
        "an allocator has nobody to tell, and no memory to tell it in",
    ),
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
    let found = code.matches("map_err(|_|").count();
    let known = KNOWN.iter().find(|(path, ..)| *path == file.path);
    let known = known.map_or(0, |(_, count, _)| *count);
    if found > known {
        findings.error(format!(
            "{}: {found} times `map_err(|_|`, {known} may be: keep the cause (`Error::of`, `Error::because`), or name the type of one that says nothing",
            file.path
        ));
    } else if found < known {
        findings.error(format!(
            "{}: {found} times `map_err(|_|`; write that down in xtask/src/tidy/causes.rs, where it says {known}",
            file.path
        ));
    }
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
        assert_eq!(errors("crates/core/src/a.rs", thrown), 1);
        assert_eq!(errors("crates/bench/src/a.rs", thrown), 0);
        assert_eq!(errors("crates/core/tests/a.rs", thrown), 0);
        assert_eq!(
            errors("crates/core/src/a.rs", "g().map_err(Error::of(k))"),
            0
        );
        let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{ {thrown} }}");
        assert_eq!(errors("crates/core/src/a.rs", &tested), 0);
        assert_eq!(errors("crates/core/src/a.rs", "// map_err(|_| x)"), 0);
    }
}
