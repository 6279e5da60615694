//! A program of a test: its folder, its file, and what it wrote.

use crate::component::ENTRY;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tranship_testkit::folder;

const TRANSHIP: &str = env!("CARGO_BIN_EXE_tranship");

pub(crate) struct Stage {
    pub dir: tempfile::TempDir,
}

impl Stage {
    /// Makes a program of this text. `COMPONENT` stands for the tests' components, `DIR` for the program's folder.
    pub(crate) fn new(text: &str) -> Stage {
        let dir = folder().expect("a folder");
        let stage = Stage { dir };
        let text = text
            .replace("\"COMPONENT\"", &entry())
            .replace("DIR", &stage.dir.path().to_string_lossy());
        let text = format!("{text}\n[manager.pressure]\nwatch = false\n");
        std::fs::write(stage.file(), text).expect("a file");
        stage
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("test.toml")
    }

    /// Returns `tranship run FILE` with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TRANSHIP);
        command
            .arg("run")
            .arg(self.file())
            .args(arguments)
            .stdin(Stdio::null())
            // The test looks at this folder afterwards.
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .env_remove("TRANSHIP_SOCKET")
            .env_remove("RUST_LOG");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("tranship runs")
    }

    /// Runs the program, which must end well.
    pub(crate) fn runs_well(&self) {
        let output = self.run(&[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        self.nothing_is_left();
    }

    pub(crate) fn read(&self, file: &str) -> String {
        let path = self.dir.path().join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    }

    /// No process works in the folder, and none of its sockets are there.
    pub(crate) fn nothing_is_left(&self) {
        let left = self.processes();
        assert!(left.is_empty(), "{left:?}");
        let sockets = std::fs::read_dir(self.dir.path().join("tranship"));
        let sockets: Vec<_> = sockets
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        assert!(sockets.is_empty(), "{sockets:?}");
    }

    /// Returns the processes whose arguments or folder are this program's: number and arguments.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let here = self.dir.path().canonicalize().expect("the folder");
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let said = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).replace('\0', " ");
            let works_here =
                std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == here);
            // A zombie has neither.
            if works_here || said.contains(here.to_string_lossy().as_ref()) {
                found.push((pid, said));
            }
        }
        found
    }
}

/// Returns this test program as a component, as the beginning of a list.
fn entry() -> String {
    let test = std::env::current_exe().expect("this test's path");
    let words = std::iter::once(test.to_string_lossy().into_owned());
    let words: Vec<_> = words
        .chain(ENTRY.map(str::to_owned))
        .map(|word| format!("{word:?}"))
        .collect();
    words.join(", ")
}

/// Waits until a file has what is wanted.
pub(crate) fn wait_for(path: &Path, wanted: impl Fn(&str) -> bool) -> String {
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if wanted(&text) {
            return text;
        }
        std::thread::yield_now();
    }
}
