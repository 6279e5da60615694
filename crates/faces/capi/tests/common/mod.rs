//! The library as it is installed, and C programs over it.
#![allow(dead_code)] // each test file uses a part of it

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
pub use tranship_testkit::Running;
use tranship_testkit::{Said, artifact, skipped};

/// Warnings that no program of ours has.
pub const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic", "-g"];

pub const SANITIZED: &[&str] = &[
    "-std=c11",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];

pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The tree that `make install` would make, of the library as it is now.
pub fn installed() -> &'static Path {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    TREE.get_or_init(|| {
        let library = artifact("tranship-capi", "libtranship.a");
        let file = std::env::current_exe().expect("this test's path");
        let tree = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file.file_name().expect("a name"));
        for steps in [&["link", "library"][..], &["library"]] {
            good(
                Command::new(source("../../../scripts/install.sh"))
                    .args(steps)
                    .env("TARGET", library.parent().expect("a folder"))
                    .env("LINKED", tree.join("linked"))
                    .env("DESTDIR", &tree)
                    .env("PREFIX", "/usr")
                    .env_remove("LIBDIR")
                    .env("CC", if steps.len() > 1 { "cc" } else { "false" }),
            );
        }
        tree.join("usr")
    })
}

pub fn there(program: &str) -> bool {
    let said = Command::new(program).arg("--version").output();
    said.is_ok_and(|said| said.status.success())
}

/// Runs a command, which must end well; returns its output.
#[track_caller]
pub fn good(command: &mut Command) -> String {
    Said::of(command).well()
}

/// Runs a program that takes no arguments, which must end well; returns its output.
#[track_caller]
pub fn runs(program: &Path) -> String {
    good(&mut Command::new(program))
}

/// Returns the output of pkg-config for the installed library.
pub fn pkg_config(what: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(what).arg("tranship");
    let said = good(command.env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig")));
    said.split_whitespace().map(str::to_owned).collect()
}

/// Where headers and library are, for those who have no pkg-config.
pub fn flags() -> Vec<String> {
    let tree = installed().display();
    vec![
        format!("-I{tree}/include"),
        format!("-L{tree}/lib"),
        "-ltranship".into(),
    ]
}

/// Compiles a program of ours, once; it finds the library where it is installed.
#[track_caller]
pub fn compiled(compiler: &str, path: &str, more: &[&str]) -> PathBuf {
    let name = Path::new(path)
        .file_stem()
        .expect("a name")
        .to_string_lossy();
    // Paths make no file's name.
    let with: Vec<_> = more
        .iter()
        .filter(|flag| !flag.contains('/'))
        .copied()
        .collect();
    let program = installed().join(format!("{name}-{compiler}{}", with.concat()));
    // Tests run at the same time: one must not write what another runs.
    static DONE: Mutex<Option<HashMap<PathBuf, Arc<OnceLock<()>>>>> = Mutex::new(None);
    let done = {
        let mut all = DONE.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        Arc::clone(all.entry(program.clone()).or_default())
    };
    done.get_or_init(|| {
        good(
            Command::new(compiler)
                .args(STRICT)
                .args(["-D_GNU_SOURCE", "-pthread"])
                .args(more)
                .arg(source(path))
                .args(flags())
                .arg(format!("-Wl,-rpath,{}/lib", installed().display()))
                .arg("-o")
                .arg(&program),
        );
    });
    program
}

/// A C program of ours.
#[track_caller]
pub fn c(path: &str) -> PathBuf {
    compiled("cc", path, &["-std=c11"])
}

/// It, as one that joins this manager.
pub fn with_manager(program: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("TRANSHIP_SOCKET", socket).stdin(Stdio::null());
    command
}

/// Starts a program whose output is kept.
#[track_caller]
pub fn start(command: &mut Command) -> Running {
    Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Says so if there is no such program.
#[track_caller]
pub fn has(program: &str, package: &str) -> bool {
    let has = there(program);
    if !has {
        skipped(format!("no {program} (Debian: {package})"));
    }
    has
}
