//! `unsafe` stays in the crates that were made for it.

use crate::findings::Findings;
use crate::source::{TextFile, code_only};

const MAY: &[&str] = &[
    "sys",
    "sync",
    "ring",
    "region",
    "ledger",
    "zone",
    "items",
    "session",
    "core",
    "mbuf",
    "zcopy",
    "malloc",
    "preload",
    "zcopy-preload",
    "capi",
    "py",
];

/// Single places elsewhere, each with its reason.
const ALSO: &[&str] = &[
    // The demonstration's consumer trusts its producer, and its intruder attacks with raw calls.
    "crates/faces/cli/src/demo/",
    // This crate keeps track of the holder of each buffer, so that slices of it are proved there.
    "crates/block/src/disk/step.rs",
    "crates/block/src/disk/uring.rs",
    // The example shows how a reader trusts a writer.
    "examples/03_aggregate.rs",
];

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    if !file.path.ends_with(".rs") {
        return;
    }
    // Tests, benches and the hostile-peer harness attack with raw calls; they are held to SAFETY comments by clippy.
    let for_developers = file.path.contains("/tests/");
    let name = crate::source::crate_of(&file.path).unwrap_or("");
    let excepted = ALSO.iter().any(|place| file.path.starts_with(place));
    if for_developers
        || excepted
        || MAY.contains(&name)
        || matches!(name, "bench" | "testkit" | "fuzz")
    {
        return;
    }
    for (number, line) in code_only(&file.text).lines().enumerate() {
        if has_word(line, "unsafe") {
            findings.error(format!(
                "{}:{}: `unsafe` belongs in {}",
                file.path,
                number + 1,
                MAY.join(", ")
            ));
        }
    }
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::super::errors_of;
    use super::*;

    fn errors(path: &str, text: &str) -> usize {
        errors_of(check, path, text)
    }

    #[test]
    fn only_the_named_crates() {
        let code = "fn f() { unsafe { g() } }\n";
        assert_eq!(errors("crates/base/sys/src/mm.rs", code), 0);
        assert_eq!(errors("crates/faces/cli/src/main.rs", code), 1);
        assert_eq!(errors("crates/faces/cli/src/demo/worker.rs", code), 0);
        assert_eq!(errors("examples/01_hello.rs", code), 1);
        assert_eq!(errors("crates/core/core/tests/hostile.rs", code), 0);
        assert_eq!(
            errors(
                "crates/faces/cli/src/main.rs",
                "// unsafe\nlet unsafe_op = \"unsafe\";\n"
            ),
            0
        );
    }
}
