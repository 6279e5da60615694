//! No path of the machine that a file was written on.

use crate::findings::Findings;
use crate::source::TextFile;

/// Folders in which people and build machines keep checkouts. Split, so that this file passes its own rule.
const MACHINE: &[&[&str]] = &[
    &["/wo", "rk/"],
    &["/ho", "me/"],
    &["/ro", "ot/"],
    &["/Us", "ers/"],
];

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    for (number, line) in file.text.lines().enumerate() {
        for parts in MACHINE {
            if mentions(line, &parts.concat()) {
                findings.error(format!(
                    "{}:{}: a path of one machine ({})",
                    file.path,
                    number + 1,
                    parts.concat()
                ));
            }
        }
    }
}

/// Returns whether the path begins there: a folder of that name within another path, or after a host, is something
/// else.
fn mentions(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"/._-~}*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> usize {
        let mut findings = Findings::default();
        check(
            &TextFile {
                path: "README.md".into(),
                text: text.into(),
            },
            &mut findings,
        );
        findings.errors.len()
    }

    #[test]
    fn machine_paths_are_found_and_look_alikes_are_not() {
        assert_eq!(errors(&["cd /wo", "rk/main"].concat()), 1);
        assert_eq!(errors(&["(/ro", "ot/.cargo)"].concat()), 1);
        assert_eq!(
            errors(&["docs/wo", "rk/plan.md, https://a.org/ho", "me/x"].concat()),
            0
        );
    }
}
