//! Programs that know nothing of the allocator work as always: Python's own tests, git, sqlite.

use crate::common::{MIB, Stage, dog};
use std::path::Path;
use std::process::{Command, Output};
use tranship_testkit::skipped;

/// Says whether a program is installed, with everything that it needs.
fn there(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}

#[track_caller]
fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}",
        output.status
    );
    output
}

#[test]
fn python_passes_its_own_tests() {
    let _dog = dog();
    if !there(
        "python3",
        &["-c", "import test.test_list, test.test_thread"],
    ) {
        return skipped("no python3 with its tests (libpython3-testsuite)");
    }
    let stage = Stage::new(4096 * MIB);
    let mut tests = vec![
        "test_list",
        "test_dict",
        "test_gc",
        "test_bytes",
        "test_thread",
        "test_fork1",
    ];
    if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        tests.extend([
            "test_set",
            "test_array",
            "test_json",
            "test_zlib",
            "test_subprocess",
            "test_io",
        ]);
    }
    // Small objects too, which python otherwise takes from mappings of its own.
    for (malloc, tests) in [("pymalloc", &tests[..]), ("malloc", &tests[..3])] {
        let mut python = stage.command("python3");
        python
            .args(["-m", "test", "-q"])
            .args(tests)
            .env("PYTHONMALLOC", malloc);
        succeeds(&mut python);
    }
    stage.wait_until_empty();
}

#[test]
fn git_makes_packs_and_checks_a_repository() {
    let _dog = dog();
    if !there("git", &["--version"]) {
        return skipped("no git");
    }
    let stage = Stage::new(4096 * MIB);
    let dir = tranship_testkit::folder().expect("a folder");
    let git = |args: &[&str]| {
        let mut git = stage.command("git");
        git.args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "gc.auto=0",
        ]);
        let git = git.args(args).current_dir(dir.path());
        let git = git.env("HOME", dir.path()).env("GIT_CONFIG_NOSYSTEM", "1");
        String::from_utf8(succeeds(git).stdout).expect("text")
    };
    git(&["init", "-q", "."]);
    for round in 0..6 {
        fill(dir.path(), round);
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "more"]);
    }
    git(&["gc", "-q", "--aggressive", "--prune=now"]);
    git(&["fsck", "--full", "--strict"]);
    assert_eq!(git(&["rev-list", "--count", "HEAD"]), "6\n");
    assert_eq!(git(&["status", "--porcelain"]), "");
    let archive = git(&["archive", "--format=tar", "HEAD:texts"]);
    assert!(archive.len() > 100_000, "{}", archive.len());
    stage.wait_until_empty();
}

/// Files that change from round to round.
fn fill(folder: &Path, round: usize) {
    let texts = folder.join("texts");
    std::fs::create_dir_all(&texts).expect("a folder");
    for n in 0..40 {
        let lines = (0..100 + 20 * n).map(|line| format!("{n} {line} {}\n", line % (7 + round)));
        let text: String = lines.collect();
        std::fs::write(texts.join(format!("{n}.txt")), text).expect("a file");
    }
}

#[test]
fn sqlite_fills_and_checks_a_database() {
    let _dog = dog();
    if !there("sqlite3", &["--version"]) {
        return skipped("no sqlite3");
    }
    let stage = Stage::new(4096 * MIB);
    let dir = tranship_testkit::folder().expect("a folder");
    let script = "
        create table t(id integer primary key, word text, blob blob);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
            insert into t select i, printf('word %d', i * 7919 % 20011), zeroblob(i % 300) from n;
        create index w on t(word);
        delete from t where id % 3 = 0;
        vacuum;
        pragma integrity_check;
        select count(*), sum(length(blob)) from t;
        select count(*) from t a join t b on a.word = b.word;
    ";
    let fill = |mut sqlite: Command, name: &str| {
        succeeds(sqlite.arg(dir.path().join(name)).arg(script)).stdout
    };
    let ours = fill(stage.command("sqlite3"), "ours");
    assert!(
        ours.starts_with(b"ok\n13334|"),
        "{}",
        String::from_utf8_lossy(&ours)
    );
    assert_eq!(ours, fill(Command::new("sqlite3"), "theirs"));
    stage.wait_until_empty();
}
