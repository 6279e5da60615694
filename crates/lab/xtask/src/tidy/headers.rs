//! Every crate's top comment says its purpose and the things that are NOT there.

use crate::findings::Findings;
use crate::source::TextFile;

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    let Some((_, inside)) = crate::source::split(&file.path) else {
        return;
    };
    if inside != "src/lib.rs" && inside != "src/main.rs" {
        return;
    }
    let top: Vec<&str> = file
        .text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect();
    if !top.iter().any(|line| line.contains("NOT here")) {
        findings.error(format!(
            "{}: its top comment does not say what is \"NOT here\"",
            file.path
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::errors_of;
    use super::*;

    fn errors(path: &str, text: &str) -> usize {
        errors_of(check, path, text)
    }

    #[test]
    fn crate_roots_need_it_and_other_files_do_not() {
        assert_eq!(
            errors("crates/base/a/src/lib.rs", "//! For x.\n//! NOT here: y.\n"),
            0
        );
        assert_eq!(
            errors("crates/base/a/src/lib.rs", "//! For x.\n// NOT here: y.\n"),
            1
        );
        assert_eq!(errors("crates/base/a/src/main.rs", "fn main() {}\n"), 1);
        assert_eq!(errors("crates/base/a/src/b.rs", ""), 0);
    }
}
