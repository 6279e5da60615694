//! The documentation as a site (`make site`): `mkdocs.yml` lists its pages.
//!
//! The checks need no mkdocs: every page of `docs/` is listed, every listed page is there, and the Rust that pages show
//! is compiled by a test of some crate. (C and Python: the tests of `capi` and `py` compile, or run, the code of all
//! pages.)

mod nav;
mod stage;

use crate::findings::Findings;
use crate::source::{self, TextFile};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) use stage::stage;

const MENU: &str = "mkdocs.yml";

/// Checks that all pages are listed, and that their Rust code is compiled.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let files = source::files(root)?;
    let menu = std::fs::read_to_string(root.join(MENU)).context(MENU)?;
    let mut findings = Findings::default();
    listed(&nav::pages(&menu), &files, &mut findings);
    for page in files.iter().filter(|file| is_page(&file.path)) {
        findings.saw();
        compiled(page, &files, &mut findings);
    }
    Ok(findings)
}

/// Returns whether a page has to be listed.
fn is_page(path: &str) -> bool {
    path.ends_with(".md") && (path.starts_with("docs/") || path == "README.md")
}

fn listed(pages: &[String], files: &[TextFile], findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for page in pages {
        findings.saw();
        if !files.iter().any(|file| file.path == *page) {
            findings.error(format!("{MENU}: {page} is not there"));
        }
        if !seen.insert(page.as_str()) {
            findings.error(format!("{MENU}: {page} is listed twice"));
        }
    }
    for file in files.iter().filter(|file| is_page(&file.path)) {
        if !seen.contains(file.path.as_str()) {
            findings.error(format!("{}: {MENU} does not list it", file.path));
        }
    }
}

/// Returns the info strings of a page's fenced blocks, with line numbers.
fn fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let fences = text.lines().zip(1..);
    let fences = fences.filter_map(|(line, number)| Some((number, line.strip_prefix("```")?)));
    fences.step_by(2)
}

fn compiled(page: &TextFile, files: &[TextFile], findings: &mut Findings) {
    let include = format!("/../{}\")", page.path);
    let is_included = || {
        let mut sources = files.iter().filter(|file| file.path.ends_with(".rs"));
        sources.any(|file| file.text.contains(&include))
    };
    let shown = fences(&page.text).filter(|(_, info)| info.split(',').next() == Some("rust"));
    for (number, info) in shown {
        if info.contains("ignore") {
            findings.error(format!(
                "{}:{number}: Rust that nothing compiles: make it a program (no_run will do), or ```text",
                page.path
            ));
        } else if !is_included() {
            findings.error(format!(
                "{}:{number}: nothing compiles this: a crate that it is about says `#[cfg(doctest)] #[doc = {include}]`",
                page.path
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn pages_that_are_not_listed_not_there_or_listed_twice_are_errors() {
        let files = ["docs/a.md", "docs/b/c.md", "README.md", "other/d.md"];
        let files: Vec<_> = files.iter().map(|path| file(path, "")).collect();
        let errors = |pages: &[&str]| {
            let pages: Vec<_> = pages.iter().map(|&page| page.to_owned()).collect();
            let mut findings = Findings::default();
            listed(&pages, &files, &mut findings);
            findings.errors
        };
        assert_eq!(errors(&["README.md", "docs/a.md", "docs/b/c.md"]), [""; 0]);
        let wrong = errors(&["README.md", "docs/a.md", "docs/a.md", "docs/none.md"]);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].contains("docs/a.md is listed twice"));
        assert!(wrong[1].contains("docs/none.md is not there"));
        assert!(wrong[2].starts_with("docs/b/c.md: "));
    }

    #[test]
    fn rust_that_nothing_compiles_is_an_error() {
        let source = file(
            "crates/x/src/lib.rs",
            "#[doc = include_str!(\"../../../docs/a.md\")]",
        );
        let page = |path: &str, info: &str| file(path, &format!("x\n```{info}\n```\n"));
        let errors = |page: TextFile| {
            let mut findings = Findings::default();
            compiled(&page, std::slice::from_ref(&source), &mut findings);
            findings.errors.len()
        };
        assert_eq!(errors(page("docs/a.md", "rust")), 0);
        assert_eq!(errors(page("docs/a.md", "rust,no_run")), 0);
        assert_eq!(errors(page("docs/a.md", "rust,ignore")), 1);
        assert_eq!(errors(page("docs/b.md", "rust")), 1);
        assert_eq!(errors(page("docs/b.md", "text")), 0);
    }
}
