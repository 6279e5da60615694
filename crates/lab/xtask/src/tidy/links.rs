//! Relative links in Markdown files lead to something.

use crate::findings::Findings;
use crate::source::TextFile;
use std::path::Path;

pub(super) fn check(root: &Path, file: &TextFile, findings: &mut Findings) {
    if !file.path.ends_with(".md") {
        return;
    }
    let folder = root.join(&file.path);
    let folder = folder.parent().unwrap_or(root);
    for (number, target) in targets(&file.text) {
        let path = target.split('#').next().unwrap_or("");
        let elsewhere = target.contains("://") || target.starts_with("mailto:");
        if !elsewhere && !path.is_empty() && !folder.join(path).exists() {
            findings.error(format!(
                "{}:{number}: the link to {path} leads nowhere",
                file.path
            ));
        }
    }
}

/// Returns the targets of `[text](target)` outside fenced and inline code, with line numbers.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in prose.split("](").skip(1) {
            if let Some((target, _)) = piece.split_once(')') {
                let target = target.split_whitespace().next().unwrap_or("");
                found.push((number + 1, target.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_code_are_found() {
        let text = "[a](b.md#c) `[x](y)` [d](e \"title\")\n```\n[n](o)\n```\n[p](https://q)\n";
        let found: Vec<String> = targets(text)
            .into_iter()
            .map(|(_, target)| target)
            .collect();
        assert_eq!(found, ["b.md#c", "e", "https://q"]);
    }

    #[test]
    fn a_dead_link_is_an_error() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = TextFile {
            path: "x.md".into(),
            text: "[a](Cargo.toml) [b](none.md) [c](#d)\n".into(),
        };
        let mut findings = Findings::default();
        check(root, &file, &mut findings);
        assert_eq!(findings.errors.len(), 1);
    }
}
