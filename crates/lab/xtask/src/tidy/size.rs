//! Small files: a warning above 600 lines, an error above 1000.

use crate::findings::Findings;
use crate::source::TextFile;

const SOFT: usize = 600;
const HARD: usize = 1000;

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    let counted = [".rs", ".py", ".sh", ".c", ".h"]
        .iter()
        .any(|end| file.path.ends_with(end));
    let lines = file.text.lines().count();
    if counted && lines > HARD {
        findings.error(format!(
            "{}: {lines} lines, at most {HARD}: split it",
            file.path
        ));
    } else if counted && lines > SOFT {
        findings.warn(format!(
            "{}: {lines} lines, better at most {SOFT}",
            file.path
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lines: usize) -> (usize, usize) {
        let mut findings = Findings::default();
        let file = TextFile {
            path: "a.rs".into(),
            text: "x\n".repeat(lines),
        };
        check(&file, &mut findings);
        (findings.errors.len(), findings.warnings.len())
    }

    #[test]
    fn the_limits() {
        assert_eq!(count(600), (0, 0));
        assert_eq!(count(601), (0, 1));
        assert_eq!(count(1000), (0, 1));
        assert_eq!(count(1001), (1, 0));
    }
}
