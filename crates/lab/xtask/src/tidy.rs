//! Rules about single files; one module a rule.

mod causes;
mod cited;
mod headers;
mod links;
mod paths;

use crate::findings::Findings;
use crate::source;
use anyhow::Result;
use std::path::Path;

/// Runs every rule over every file.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    let files = source::files(root)?;
    for file in &files {
        findings.saw();
        causes::check(file, &mut findings);
        headers::check(file, &mut findings);
        paths::check(file, &mut findings);
        links::check(root, file, &mut findings);
    }
    cited::check(root, &files, &mut findings);
    Ok(findings)
}

/// Returns how many errors a rule finds in a file.
#[cfg(test)]
fn errors_of(rule: fn(&source::TextFile, &mut Findings), path: &str, text: &str) -> usize {
    let mut findings = Findings::default();
    let file = source::TextFile {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    rule(&file, &mut findings);
    findings.errors.len()
}
