//! `tranship-lab papers` at its small scale: figures whose programs need no peer are measured, and the orderings that
//! hold on every machine do. The page has a section for each; a figure that cannot be measured is named. A program that
//! never ends is killed, with all that it started.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use tranship_testkit::{Running, Watchdog, artifact, skipped};

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

/// A folder with tranship-lab and, in the place of tranship-bench, a program that never ends. It starts a process that
/// leaves its process group. Both hold the pipe `alive`, and say there that they have begun.
fn never_ending() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let (lab, at) = (env!("CARGO_BIN_EXE_tranship-lab"), dir.path());
    let linked = std::fs::hard_link(lab, at.join("tranship-lab"));
    linked
        .or_else(|_| std::fs::copy(lab, at.join("tranship-lab")).map(drop))
        .expect("the program");
    // `tranship-bench zc-fault` is then a shell that reads this file.
    std::os::unix::fs::symlink("/bin/sh", at.join("tranship-bench")).expect("a link");
    let script = "exec 3>alive; setsid sleep 1000 & echo begun >&3; sleep 1000";
    std::fs::write(at.join("zc-fault"), script).expect("a script");
    mknodat(CWD, at.join("alive"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    dir
}

fn papers_of(dir: &TempDir, more: &[&str]) -> Running {
    Running::start(
        Command::new(dir.path().join("tranship-lab"))
            .args(["papers", "--only", "zcopy-table2", "--out", "out"])
            .args(more)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.path().join("said")).expect("a file"))
            .env_remove("RUST_LOG"),
    )
}

/// Waits until the program has begun.
fn begun(dir: &TempDir) -> File {
    let mut alive = File::open(dir.path().join("alive")).expect("the pipe");
    let mut said = [0; 6];
    alive.read_exact(&mut said).expect("a word");
    assert_eq!(&said, b"begun\n");
    alive
}

/// Waits until no process has the pipe. Returns what tranship-lab said.
fn all_ended(dir: &TempDir, mut alive: File, mut running: Running) -> String {
    let status = running.0.wait().expect("its end");
    let mut rest = String::new();
    alive.read_to_string(&mut rest).expect("the pipe's end");
    let said = std::fs::read_to_string(dir.path().join("said")).expect("its words");
    assert_eq!((status.code(), &*rest), (Some(2), ""), "{said}");
    said
}

#[test]
fn a_program_that_never_ends_is_killed_at_the_limit_with_all_that_it_started() {
    let _dog = Watchdog::new();
    let dir = never_ending();
    let running = papers_of(&dir, &["--limit", "10"]);
    let said = all_ended(&dir, begun(&dir), running);
    assert!(said.contains("did not end within 10 s"), "{said}");
    let page = std::fs::read_to_string(dir.path().join("out/index.html")).expect("a page");
    assert!(page.contains("did not end within 10 s"), "{page}");
}

#[test]
fn a_signal_ends_a_program_with_all_that_it_started() {
    let _dog = Watchdog::new();
    let dir = never_ending();
    let running = papers_of(&dir, &[]);
    let alive = begun(&dir);
    running.signal(rustix::process::Signal::INT.as_raw());
    let said = all_ended(&dir, alive, running);
    assert!(said.contains("stopped by a signal"), "{said}");
}
