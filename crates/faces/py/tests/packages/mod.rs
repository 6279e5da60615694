//! Packages that many programs use beside ours: each program of this folder runs where its packages are.
//! `scripts/deps.sh more` installs them: they are large.

use crate::stage::{here, output, staged};
use std::path::{Path, PathBuf};
use std::process::Command;
use tranship_testkit::{Watchdog, skipped};

/// Interpreters that may have the packages: that of the tests, that of `deps.sh more`, and Debian's.
fn interpreter(python: &Path, target: &Path, modules: &str) -> Option<PathBuf> {
    let more = target.join("python/more/bin/python");
    let all = [python.to_owned(), more, "/usr/bin/python3".into()];
    all.into_iter().find(|python| {
        let import = format!("import numpy, {modules}");
        output(Command::new(python).args(["-c", &import])).is_ok()
    })
}

/// Runs a program that needs these modules.
fn run(program: &str, modules: &str) {
    let Some(stage) = staged() else { return };
    let target = stage.package.ancestors().nth(2).expect("a target folder");
    let Some(python) = interpreter(&stage.python, target, modules) else {
        return skipped(format!("no Python has {modules}: scripts/deps.sh more"));
    };
    let _dog = Watchdog::within(crate::stage::HOUR);
    let mut command = Command::new(python);
    command
        .arg(here("tests/packages").join(program))
        .env("PYTHONPATH", &stage.package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("TRANSHIP_SOCKET")
        .env_remove("TRANSHIP_BIN");
    if let Err(failed) = output(&mut command) {
        panic!("{failed}");
    }
}

#[test]
fn torch() {
    run("with_torch.py", "torch");
}

#[test]
fn pyarrow_and_pandas() {
    run("with_pyarrow.py", "pyarrow, pandas");
}

#[test]
fn joblib() {
    run("with_joblib.py", "joblib");
}

#[test]
fn distributed() {
    run("with_distributed.py", "distributed");
}

#[test]
fn safetensors() {
    run("with_safetensors.py", "safetensors, torch");
}

#[test]
fn ray() {
    run("with_ray.py", "ray, torch");
}
