//! A program of a test: its folder, its file, and what it wrote.

use crate::component::ENTRY;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tempfile::TempDir;
use tranship_testkit::resource::working_in;
use tranship_testkit::{Running, folder};

/// A component of the tests, in a program's text.
const COMPONENT: &str = "\"COMPONENT\"";
/// Name of the components' program in its folder.
const NAME: &str = "component";
const TRANSHIP: &str = env!("CARGO_BIN_EXE_tranship");

pub(crate) struct Stage {
    pub dir: TempDir,
    /// The program of its components.
    copy: Option<Arc<TempDir>>,
}

impl Stage {
    /// Makes a program of this text. `COMPONENT` stands for the tests' components, `DIR` for the program's folder.
    pub(crate) fn new(text: &str) -> Stage {
        let dir = folder().expect("a folder");
        let copy = text.contains(COMPONENT).then(copy);
        let stage = Stage { dir, copy };
        let mut text = text.replace("DIR", &stage.dir.path().to_string_lossy());
        if let Some(copy) = &stage.copy {
            text = text.replace(COMPONENT, &entry(&copy.path().join(NAME)));
        }
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
        working_in(self.dir.path())
    }
}

/// Returns this test program as a component, as the beginning of a list.
fn entry(program: &Path) -> String {
    let words = std::iter::once(program.to_string_lossy().into_owned());
    let words: Vec<_> = words
        .chain(ENTRY.map(str::to_owned))
        .map(|word| format!("{word:?}"))
        .collect();
    words.join(", ")
}

/// Returns the folder of a copy of this test program. A build beside the test may replace the file that cargo made.
/// Stages that live at the same time share the copy.
fn copy() -> Arc<TempDir> {
    static SHARED: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(copy) = shared.upgrade() {
        return copy;
    }
    let dir = folder().expect("a folder");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("its mode");
    // This link is the file that runs, even if it was removed. Another process copies: the kernel runs no file that is
    // open for writing, and a child that another test forks meanwhile would keep this process's files open.
    let own = format!("/proc/{}/exe", std::process::id());
    let mut copies = Command::new("cp");
    Running::start(copies.arg(own).arg(dir.path().join(NAME))).ends_well();
    let copy = Arc::new(dir);
    *shared = Arc::downgrade(&copy);
    copy
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
