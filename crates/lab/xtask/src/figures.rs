//! The types of figures in Python's stub are those of the table: `cargo run -p xtask -- figures write` renews them.

use crate::findings::Findings;
use anyhow::{Context, Result};
use std::path::Path;

const STUB: &str = "crates/faces/py/python/tranship/_native.pyi";
const BEGIN: &str = "# Figures: made by `cargo run -p xtask -- figures write`.\n";
const END: &str = "# End of figures.\n";
const TABLE: &str = "crates/core/proto/src/stat.rs";

/// Checks that the stub's types are those of the table.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.saw();
    let stub = read(root)?;
    if renewed(&stub)? != stub {
        findings.error(format!(
            "{STUB}: its figures are not those of {TABLE}; `cargo run -p xtask -- figures write` renews them"
        ));
    }
    Ok(findings)
}

/// Makes it so.
pub(crate) fn write(root: &Path) -> Result<()> {
    let stub = renewed(&read(root)?)?;
    std::fs::write(root.join(STUB), stub).context(STUB)
}

fn read(root: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(STUB)).context(STUB)
}

fn renewed(stub: &str) -> Result<String> {
    let (before, rest) = stub.split_once(BEGIN).context("no place for figures")?;
    let (_, after) = rest.split_once(END).context("no end of figures")?;
    let types = tranship_proto::python_types();
    Ok(format!("{before}{BEGIN}{types}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_without_a_figure_is_renewed() {
        let whole = renewed(&format!("a\n{BEGIN}{END}b\n")).expect("a place");
        assert!(whole.starts_with("a\n") && whole.ends_with("b\n"));
        assert!(
            whole.contains("class _PoolStat(TypedDict):")
                && whole.contains("    quota_bytes: int\n")
        );
        let without = whole.replacen("    quota_bytes: int\n", "", 1);
        assert_eq!(renewed(&without).expect("a place"), whole);
        assert!(renewed("nothing").is_err());
    }
}
