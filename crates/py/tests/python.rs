//! Runs the tests that are in Python, and the type checkers, in a virtual environment of their own under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tranship_testkit::{Watchdog, artifact, skipped};

/// What the environment gets, from the package index.
const NEEDS: &[&str] = &[
    "numpy>=2.1",
    "pytest>=8",
    "mypy",
    "pyright[nodejs]",
    "maturin>=1.9,<2",
];

/// A Python with all that, and a folder that has the package.
struct Stage {
    python: PathBuf,
    package: PathBuf,
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn output(command: &mut Command) -> Result<Output, String> {
    let output = command.output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Err(format!("{command:?}: {}\n{out}{err}", output.status))
}

/// The first that is new enough, and its version.
fn interpreter() -> Option<(String, String)> {
    let named = std::env::var("TRANSHIP_PYTHON").ok();
    let known = [
        "python3",
        "python3.14",
        "python3.13",
        "python3.12",
        "python3.11",
    ];
    let all = named.into_iter().chain(known.map(String::from));
    let version = |python: &String| {
        let say = "import sys; print('%d.%d' % sys.version_info[:2]) if sys.version_info >= (3, 11) else sys.exit(1)";
        let said = output(Command::new(python).args(["-c", say])).ok()?;
        Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
    };
    all.into_iter().find_map(|python| {
        let version = version(&python)?;
        Some((python, version))
    })
}

/// Made once, and kept for later runs.
fn environment(target: &Path) -> Result<PathBuf, String> {
    let (python, version) = interpreter().ok_or("there is no Python 3.11 or newer")?;
    let folder = target.join(format!("python/{version}"));
    let ready = folder.join("ready");
    let needs = NEEDS.join("\n");
    let inside = folder.join("bin/python");
    if fs::read_to_string(&ready).is_ok_and(|there| there == needs) {
        return Ok(inside);
    }
    let _ = fs::remove_dir_all(&folder); // of a run that was cut off
    output(Command::new(python).args(["-m", "venv"]).arg(&folder))?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ];
    output(Command::new(&inside).args(pip).args(NEEDS))?;
    fs::write(ready, needs).map_err(|error| error.to_string())?;
    Ok(inside)
}

/// The package, as the wheel has it.
fn package(target: &Path, library: &Path) -> PathBuf {
    let folder = target.join("python/package");
    let _ = fs::remove_dir_all(&folder);
    let package = folder.join("tranship");
    fs::create_dir_all(&package).expect("a folder");
    for file in fs::read_dir(here("python/tranship")).expect("the package") {
        let file = file.expect("a file").path();
        let name = file.file_name().expect("a name");
        if file.is_file() {
            fs::copy(&file, package.join(name)).expect("copy");
        }
    }
    fs::copy(library, package.join("_native.abi3.so")).expect("copy");
    folder
}

fn stage() -> &'static Result<Stage, String> {
    static STAGE: OnceLock<Result<Stage, String>> = OnceLock::new();
    STAGE.get_or_init(|| {
        let library = artifact("tranship-py", "libtranship_py.so");
        let target = library.ancestors().nth(2).expect("a target folder");
        let python = environment(target)?;
        let package = package(target, &library);
        Ok(Stage { python, package })
    })
}

/// Runs a module of Python's over the staged package; or says why not.
fn run(module: &str, arguments: &[&str]) {
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let mut command = Command::new(&stage.python);
    command
        .args(["-m", module])
        .args(arguments)
        .current_dir(here("tests/python"))
        .env("PYTHONPATH", &stage.package)
        .env("MYPYPATH", &stage.package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("TRANSHIP_SOCKET")
        .env_remove("TRANSHIP_BIN");
    if let Err(failed) = output(&mut command) {
        panic!("{failed}");
    }
}

#[test]
fn pytest() {
    let _dog = Watchdog::new();
    run(
        "pytest",
        &[
            "-q",
            "-p",
            "no:cacheprovider",
            // Not a bound on speed: what takes so long hangs, and is shown.
            "-o",
            "faulthandler_timeout=300",
            "-o",
            "faulthandler_exit_on_timeout=true",
            ".",
        ],
    );
}

#[test]
fn the_stubs_say_what_the_module_has() {
    let _dog = Watchdog::new();
    let allowed = here("tests/python/stubtest.txt");
    let allowed = allowed.to_str().expect("a path");
    run(
        "mypy.stubtest",
        &[
            "tranship._native",
            "--concise",
            "--ignore-unused-allowlist",
            "--allowlist",
            allowed,
        ],
    );
}

#[test]
fn mypy_takes_a_users_program() {
    let _dog = Watchdog::new();
    let nowhere = ["--strict", "--cache-dir=/dev/null", "typed.py"];
    run("mypy", &nowhere);
}

#[test]
fn pyright_takes_a_users_program() {
    let _dog = Watchdog::new();
    let python = match stage() {
        Ok(stage) => stage.python.to_str().expect("a path"),
        Err(why) => return skipped(why),
    };
    run("pyright", &["--pythonpath", python, "typed.py"]);
}

/// What the user of a clone does: `pip install .`, in an environment that has nothing, and three lines in two terminals.
#[test]
fn the_wheel_is_all_that_is_needed() {
    // It builds the program, too.
    let _dog = Watchdog::within(std::time::Duration::from_secs(3600));
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let root = here("../..");
    let folder = tranship_testkit::folder().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    let profile = match cfg!(debug_assertions) {
        true => "dev",
        false => "release",
    };
    let bin = stage.python.parent().expect("its folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).expect("a path");
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(&stage.python);
        command
            .args(["-m", "pip", "--disable-pip-version-check"])
            .args(arguments)
            .current_dir(&root)
            .env("PATH", &path)
            .env("TRANSHIP_PROFILE", profile);
        command
    };
    let to = folder.path().to_str().expect("text");
    let build = ["wheel", ".", "--no-deps", "--no-build-isolation", "-w", to];
    output(&mut pip(&build)).expect("a wheel");
    let wheel = fs::read_dir(folder.path()).expect("the wheel").flatten();
    let wheel = wheel.map(|entry| entry.path()).next().expect("the wheel");
    let name = wheel.file_name().expect("a name").to_string_lossy();
    assert!(name.contains("-cp311-abi3-"), "{name}");

    let fresh = at("fresh");
    let venv = ["-m", "venv", "--without-pip"];
    output(Command::new(&stage.python).args(venv).arg(&fresh)).expect("an environment");
    let python = fresh.join("bin/python");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let install = [
        "--python",
        &text(&python),
        "install",
        "--no-index",
        &text(&wheel),
    ];
    output(&mut pip(&install)).expect("installed");

    let run_time = at("run");
    fs::create_dir(&run_time).expect("a folder");
    let terminal = |program: &str| {
        let mut command = Command::new(&python);
        command
            .args(["-c", &format!("import tranship\n{program}")])
            .current_dir(folder.path())
            .env("XDG_RUNTIME_DIR", &run_time)
            .env_remove("TRANSHIP_SOCKET")
            .env_remove("TRANSHIP_BIN");
        command
    };
    let mut sends = terminal(
        "with tranship.connect() as d, d.listen('a', 'send') as l, l.accept() as s:\n s.send(d.pool('p', 1 << 20).copy(b'x' * 5000))",
    )
    .spawn()
    .expect("the first terminal");
    let said = output(&mut terminal(
        "with tranship.connect() as d, d.receiver('a') as r:\n for buffer in r: print(len(buffer), bytes(memoryview(buffer)[:1]))",
    ));
    let status = sends.wait().expect("the first terminal");
    let said = said.expect("the second terminal");
    assert!(status.success());
    assert_eq!(String::from_utf8_lossy(&said.stdout), "5000 b'x'\n");
    // The manager that they started would stay for a minute.
    let mut end = terminal(
        "import os, signal\nwith tranship.connect(autostart=False) as d: pid = d.stat()['manager']['pid']\nos.kill(pid, signal.SIGTERM)",
    );
    output(&mut end).expect("its end");
}
