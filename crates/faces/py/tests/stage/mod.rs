//! Common needs of the tests: an environment with Python and the package as the wheel has it, C programs over the
//! library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tranship_testkit::{Said, Watchdog, artifact, prepare, skipped};

/// Packages that the environment gets from the package index.
const NEEDS: &[&str] = &[
    "numpy>=2.1",
    "ml_dtypes",
    "pytest>=8",
    "mypy",
    "pyright[nodejs]",
    "maturin>=1.9,<2",
];

pub const HOUR: Duration = Duration::from_secs(3600);

/// A Python with all that, and a folder that has the package.
#[derive(Debug)]
pub struct Stage {
    pub python: PathBuf,
    pub package: PathBuf,
}

pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a command, which must end well.
pub fn output(command: &mut Command) -> Result<Said, String> {
    let output = command.output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let (status, said) = (output.status, Said::from(output));
    match status.success() {
        true => Ok(said),
        false => Err(format!("{command:?}: {status}\n{}{}", said.out, said.err)),
    }
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
        Some(said.out.trim().to_owned())
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

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for file in fs::read_dir(from).expect("the package") {
        let file = file.expect("a file").path();
        let name = file.file_name().expect("a name");
        if file.is_file() {
            fs::copy(&file, to.join(name)).expect("copy");
        }
    }
}

/// The package, as the wheel has it.
fn package(target: &Path, library: &Path) -> PathBuf {
    let folder = target.join("python/package");
    let _ = fs::remove_dir_all(&folder);
    let package = folder.join("tranship");
    for part in ["", "mp"] {
        copy(&here("python/tranship").join(part), &package.join(part));
    }
    fs::copy(library, package.join("_native.abi3.so")).expect("copy");
    folder
}

fn stage() -> &'static Result<Stage, String> {
    static STAGE: OnceLock<Result<Stage, String>> = OnceLock::new();
    STAGE.get_or_init(|| {
        // The install downloads packages.
        let _dog = Watchdog::within(HOUR);
        let library = artifact("tranship-py", "libtranship_py.so");
        let target = library.ancestors().nth(2).expect("a target folder");
        let python = prepare(|| environment(target))?;
        let package = package(target, &library);
        Ok(Stage { python, package })
    })
}

/// Returns the stage. Reports the skip where there is none.
pub fn staged() -> Option<&'static Stage> {
    stage().as_ref().map_err(skipped).ok()
}

/// Returns the text between two lines of a page.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(here("../../..").join(page)).expect("the page");
    let begin = format!("\n```{language}\n");
    let parts = text.split(&begin).skip(1);
    let block = |part: &str| part.split("\n```").next().unwrap_or_default().to_owned();
    parts.map(block).collect()
}

/// A C program of ours, in `folder`, with the library beside it.
pub fn compiled(source: &str, folder: &Path) -> PathBuf {
    compiled_with(source, folder, &[])
}

/// As [`compiled`], with further arguments of the compiler.
pub fn compiled_with(source: &str, folder: &Path, arguments: &[&str]) -> PathBuf {
    let library = artifact("tranship-capi", "libtranship.so");
    let beside = library.parent().expect("its folder").display().to_string();
    // The library's name that programs ask for.
    let link = folder.join("libtranship.so.0");
    if !link.exists() {
        std::os::unix::fs::symlink(&library, link).expect("a link");
    }
    let source = here(source);
    let program = folder.join(source.file_stem().expect("a name"));
    output(
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(&program)
            .arg(source)
            .arg(format!("-I{}", here("../capi/include").display()))
            .arg(format!("-L{beside}"))
            .args(["-Wl,-rpath,$ORIGIN", "-ltranship"])
            .args(arguments),
    )
    .expect("compiled");
    program
}
