//! `tranship-lab papers` at its small scale: figures whose programs need no peer are measured, and the orderings that
//! hold on every machine do. The page has a section for each; a figure that cannot be measured is named.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tranship_testkit::{Watchdog, artifact, skipped};

fn papers(out: &Path, only: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tranship-lab"))
        .args(["papers", "--scale", "small", "--only", only, "--out"])
        .arg(out)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output()
        .expect("running the program")
}

#[test]
fn figures_are_measured_and_their_page_is_whole() {
    let _dog = Watchdog::new();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skipped("benches need two processors");
    }
    assert!(artifact("tranship-bench", "tranship-bench").is_file());
    let out = tempfile::tempdir().expect("a folder");
    let only = ["cbuf-fig7", "bulk-fig5.6", "zcopy-table2", "mbuf-fig7"];
    let output = papers(out.path(), &only.join(","));
    let said = String::from_utf8_lossy(&output.stderr);
    // Orderings that depend on the machine may not hold: 5.
    assert!(matches!(output.status.code(), Some(0 | 5)), "{said}");
    let results = std::fs::read(out.path().join("results.json")).expect("results");
    let results: Value = serde_json::from_slice(&results).expect("JSON");
    let figures = results["figures"].as_array().expect("figures");
    let ids: Vec<_> = figures
        .iter()
        .filter_map(|figure| figure["id"].as_str())
        .collect();
    let mut wanted = only.to_vec();
    wanted.sort_unstable();
    assert_eq!(
        {
            let mut ids = ids.clone();
            ids.sort_unstable();
            ids
        },
        wanted
    );
    let page = std::fs::read_to_string(out.path().join("index.html")).expect("a page");
    for figure in figures {
        let id = figure["id"].as_str().expect("an id");
        let is_skipped = figure["skipped"]
            .as_array()
            .is_some_and(|lines| !lines.is_empty());
        assert!(figure["failed"].is_null(), "{figure}");
        assert!(page.contains(&format!("<h2 id='{id}'>")), "{id}");
        for found in figure["orderings"].as_array().expect("orderings") {
            if found["always"] == true {
                assert!(
                    found["held"] == true || found["held"].is_null() && is_skipped,
                    "{found}"
                );
            }
        }
        if is_skipped {
            skipped(format!("{id}: {}", figure["skipped"]));
        }
    }
    assert!(page.matches("<svg").count() >= 3, "pictures are missing");
    // The page needs no other file.
    assert!(!page.contains("src=") && !page.contains("<link"));
}

#[test]
fn unknown_figures_are_refused_with_the_names_there_are() {
    let out = tempfile::tempdir().expect("a folder");
    let output = papers(out.path(), "cbuf-fig99");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cbuf-fig9, cbuf-fig10"), "{said}");
}
