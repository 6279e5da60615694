//! The library as it is installed, and C programs over it.
#![allow(dead_code)] // each test file uses a part of it

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tranship_testkit::{artifact, skipped};

/// Warnings that no program of ours has.
pub const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic", "-g"];

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
            let output = Command::new(source("../../../scripts/install.sh"))
                .args(steps)
                .env("TARGET", library.parent().expect("a folder"))
                .env("LINKED", tree.join("linked"))
                .env("DESTDIR", &tree)
                .env("PREFIX", "/usr")
                .env_remove("LIBDIR")
                .env("CC", if steps.len() > 1 { "cc" } else { "false" })
                .output();
            good(output.expect("install.sh"));
        }
        tree.join("usr")
    })
}

pub fn there(program: &str) -> bool {
    let said = Command::new(program).arg("--version").output();
    said.is_ok_and(|said| said.status.success())
}

#[track_caller]
pub fn good(output: Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}:\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Returns the output of pkg-config for the installed library.
pub fn pkg_config(what: &[&str]) -> Vec<String> {
    let said = Command::new("pkg-config")
        .args(what)
        .arg("tranship")
        .env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"))
        .output();
    let said = good(said.expect("pkg-config"));
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
        let output = Command::new(compiler)
            .args(STRICT)
            .args(["-D_GNU_SOURCE", "-pthread"])
            .args(more)
            .arg(source(path))
            .args(flags())
            .arg(format!("-Wl,-rpath,{}/lib", installed().display()))
            .arg("-o")
            .arg(&program)
            .output();
        good(output.expect("a compiler"));
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

/// Its output is kept; it ends with this.
#[derive(Debug)]
pub struct Running(Option<Child>);

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Running(Some(child.expect("it starts")))
    }

    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it runs")
    }

    #[track_caller]
    pub fn ends_well(self) -> String {
        good(self.ends())
    }

    #[track_caller]
    pub fn ends(mut self) -> Output {
        let child = self.0.take().expect("it runs");
        child.wait_with_output().expect("it ends")
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        let mut child = self.0.take().expect("it runs");
        child.kill().expect("kill");
        child.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
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
