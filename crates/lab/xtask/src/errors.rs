//! The table of kinds in `docs/errors.md` is that of the code: `cargo run -p xtask -- errors write` renews it.

use crate::findings::Findings;
use anyhow::{Context, Result};
use std::path::Path;
use tranship_error::ErrorKind;

const PAGE: &str = "docs/errors.md";
const BEGIN: &str = "<!-- kinds: made by `cargo run -p xtask -- errors write` -->\n";
const END: &str = "<!-- end of kinds -->\n";

/// Checks that the page's table is that of the code.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.saw();
    let page = read(root)?;
    if renewed(&page)? != page {
        findings.error(format!(
            "{PAGE}: its table is not that of crates/base/error/src/kind.rs; `cargo run -p xtask -- errors write` renews it"
        ));
    }
    Ok(findings)
}

/// Makes it so.
pub(crate) fn write(root: &Path) -> Result<()> {
    let page = renewed(&read(root)?)?;
    std::fs::write(root.join(PAGE), page).context(PAGE)
}

fn read(root: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(PAGE)).context(PAGE)
}

fn renewed(page: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("no place for the table")?;
    let (_, after) = rest.split_once(END).context("no end of the table")?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", table()))
}

fn table() -> String {
    let head = "| number | kind | errno | what it means | what to do |\n|---|---|---|---|---|\n";
    let rows = ErrorKind::ALL.iter().map(|kind| {
        format!(
            "| {} | `{}` | `{}` | {} | {} |\n",
            kind.number(),
            kind.name(),
            kind.errno_name(),
            kind.meaning(),
            kind.advice()
        )
    });
    head.to_owned() + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_the_table_stays() {
        let page = format!("before\n{BEGIN}OUTDATED\n{END}after\n");
        let new = renewed(&page).expect("a place");
        assert!(new.starts_with("before\n") && new.ends_with("after\n"));
        assert!(new.contains("| 9 | `Full` | `EAGAIN` |") && !new.contains("OUTDATED"));
        assert_eq!(renewed(&new).expect("a place"), new);
        assert!(renewed("nothing").is_err());
    }
}
