//! The package as its documentation says how to install it: in a new environment, out of this folder, with the program
//! in it.

use crate::stage::{HOUR, Stage, blocks, here, output, staged};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tranship_testkit::{Watchdog, artifact, forget_who_asks, skipped};

/// Source of the packages that pip needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The package index, as the page says.
    Index,
    /// The environment of the tests, without a network.
    Stage,
}

/// A new environment with the package.
struct Fresh {
    folder: TempDir,
    python: PathBuf,
}

impl Fresh {
    /// Installs as docs/python.md says, in this folder, with a Python whose environment has maturin: [`Stage`]'s, or
    /// another one.
    fn new(stage: &Stage, base: &Path, from: Source) -> Result<Fresh, String> {
        let folder = tranship_testkit::folder().map_err(|error| error.to_string())?;
        let install = blocks("docs/python.md", "sh").remove(0);
        assert_eq!(
            install,
            "python3 -m venv env && env/bin/pip install '.[numpy]'"
        );
        let env = folder.path().join("env");
        let python = env.join("bin/python");
        let profile = match cfg!(debug_assertions) {
            true => "dev",
            false => "release",
        };
        // A free-threaded interpreter gets a module of its own.
        let as_built = base == stage.python && std::env::var_os("TRANSHIP_BUILT").is_some();
        let step = |program: &Path, words: &[&str]| -> Result<String, String> {
            // Build tools are found, and files that were built before are used.
            let bin = stage.python.parent().unwrap_or(Path::new("/"));
            let path = std::env::var_os("PATH").unwrap_or_default();
            let path = std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path));
            let path = std::env::join_paths(path).map_err(|error| error.to_string())?;
            let target = stage.package.ancestors().nth(2).expect("a target folder");
            let mut command = Command::new(program);
            command
                .args(words)
                .current_dir(here("../../.."))
                .env("PATH", path)
                .env("CARGO_TARGET_DIR", target)
                .env("TRANSHIP_PROFILE", profile);
            if from == Source::Stage {
                let program = artifact("tranship-cli", "tranship");
                command.env("TRANSHIP_BUILT_PROGRAM", program);
            }
            forget_who_asks(&mut command);
            if from == Source::Stage && as_built {
                command.env("CARGO", with_all_features(folder.path()));
            }
            let said = output(&mut command)?;
            if words.contains(&"install") {
                // The output is not hidden by pip: the build takes minutes where nothing was built.
                let words = "tranship: building the extension module";
                assert!(said.err.contains(words), "no progress: {}", said.err);
            }
            Ok(said.out.trim().to_owned())
        };
        let text = env.to_str().ok_or("a path that is no text")?;
        step(base, &["-m", "venv", text])?;
        match from {
            Source::Index => step(&python, &["-m", "pip", "install", ".[numpy]"])?,
            Source::Stage => {
                // It finds there the package that it would install.
                let say = "import sysconfig; print(sysconfig.get_path('purelib'))";
                let theirs = step(&stage.python, &["-c", say])?;
                let ours = step(&python, &["-c", say])?;
                fs::write(Path::new(&ours).join("stage.pth"), theirs)
                    .map_err(|error| error.to_string())?;
                let same = base == stage.python;
                let what = if same { ".[numpy]" } else { "." };
                // As `make wheels` does.
                let checked = format!(
                    "--config-settings=maturin.build-args=--profile {profile} --compatibility pypi --auditwheel check"
                );
                let offline = ["--no-index", "--no-build-isolation", &checked, what];
                let all = ["-m", "pip", "install"].iter().chain(&offline);
                step(&python, &all.copied().collect::<Vec<_>>())?;
                let wheel = "import importlib.metadata as m; print(m.distribution('tranship').read_text('WHEEL'))";
                let tags = step(&python, &["-c", wheel])?;
                assert!(tags.contains("-manylinux_"), "{tags}");
                tags
            }
        };
        fs::create_dir(folder.path().join("run")).map_err(|error| error.to_string())?;
        Ok(Fresh { folder, python })
    }

    /// A program, in a terminal of its own.
    fn terminal(&self, name: &str, program: &str) -> Command {
        let file = self.folder.path().join(name);
        fs::write(&file, program).expect("a program");
        let mut command = Command::new(&self.python);
        command
            .arg(file)
            .current_dir(self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path().join("run"))
            .env_remove("PYTHONPATH")
            .env_remove("TRANSHIP_SOCKET")
            .env_remove("TRANSHIP_BIN");
        command
    }

    /// Runs the code that README and docs/python.md show, the latter in two terminals, with a manager that they start.
    fn runs_what_is_shown(&self) {
        let readme = blocks("README.md", "python").remove(0);
        let said = output(&mut self.terminal("video.py", &readme)).expect("the README's program");
        let shown = "[0 0 0] <tranship.Buffer of 8388608 bytes";
        assert!(said.out.starts_with(shown), "{said:?}");
        let page = blocks("docs/python.md", "python");
        let [sends, receives, ..] = &page[..] else {
            panic!("two programs");
        };
        let mut both = [("sends.py", sends), ("receives.py", receives)].map(|(name, page)| {
            let mut terminal = self.terminal(name, page);
            terminal.stdout(Stdio::piped()).spawn().expect("a terminal")
        });
        // Each waits for the other: when one fails, both end.
        loop {
            let ends = both.each_mut().map(|one| one.try_wait().expect("its end"));
            if ends.iter().flatten().any(|end| !end.success()) {
                for one in &mut both {
                    let _ = one.kill();
                }
                panic!("the terminals: {ends:?}");
            }
            if ends.iter().all(Option::is_some) {
                break;
            }
            std::thread::yield_now();
        }
        let [_, second] = both;
        let said = second.wait_with_output().expect("what it said");
        let said = String::from_utf8_lossy(&said.stdout);
        assert!(said.starts_with("255.0 uint8 (1080, 1920, 3)"), "{said}");
        self.runs_what_is_typed();
        self.ends_its_manager();
    }

    /// A line that a page shows, typed into a shell where the package's programs are found.
    fn typed(&self, line: &str) -> Command {
        let bin = self.python.parent().unwrap_or(Path::new("/"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path));
        let mut command = Command::new("sh");
        command
            .args(["-ec", line])
            .current_dir(self.folder.path())
            .env("PATH", std::env::join_paths(path).expect("a path"))
            .env("XDG_RUNTIME_DIR", self.folder.path().join("run"))
            .env_remove("TRANSHIP_SOCKET");
        command
    }

    /// The commands of README and docs/guide.md that need nothing but `tranship`.
    fn runs_what_is_typed(&self) {
        let lines = |page: &str, count: usize| -> Vec<String> {
            let blocks = blocks(page, "sh");
            assert_eq!(
                blocks.len(),
                count,
                "all of {page} are run: here, by `make demo`, or in a container"
            );
            let lines = blocks.iter().flat_map(|block| block.lines());
            let ours = lines.filter(|line| line.starts_with("tranship "));
            ours.map(str::to_owned).collect()
        };
        let [receives, sends] = &lines("README.md", 1)[..] else {
            panic!("two commands");
        };
        let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        fs::write(self.folder.path().join("some-large-file"), &large).expect("a file");
        let mut first = self.typed(receives).spawn().expect("a terminal");
        let said = output(&mut self.typed(sends));
        if said.is_err() {
            let _ = first.kill(); // it waits for the other
        }
        let status = first.wait().expect("the first terminal");
        said.expect("the second terminal");
        assert!(status.success());
        let copy = fs::read(self.folder.path().join("copy")).expect("the copy");
        assert!(copy == large, "{} bytes of {}", copy.len(), large.len());
        let certificates = lines("docs/guide.md", 2);
        assert_eq!(certificates.len(), 2);
        for line in certificates {
            output(&mut self.typed(&line)).expect(&line);
        }
        assert!(self.folder.path().join("camera.local").is_dir());
    }

    /// The manager that they started would stay for a minute.
    fn ends_its_manager(&self) {
        let end = "import os, signal, tranship\nwith tranship.connect(autostart=False) as d: pid = d.admin().stat()['manager']['pid']\nos.kill(pid, signal.SIGTERM)";
        output(&mut self.terminal("end.py", end)).expect("its end");
    }
}

/// Writes a program that maturin calls as cargo. It builds the extension module with the features of the whole workspace, and without
/// maturin's and pip's variables, as `scripts/tests.sh` has built it. Otherwise crates would be built again, among them the module
/// and the test program that others run meanwhile.
fn with_all_features(folder: &Path) -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let release = if cfg!(debug_assertions) {
        ""
    } else {
        " --release"
    };
    // The build of the Python bindings depends on it.
    let path = std::env::var("PATH").unwrap_or_default();
    let path = path.replace('\'', r"'\''");
    let text = format!(
        "#!/bin/sh
[ \"$1\" = rustc ] || exec {cargo} \"$@\"
export PATH='{path}'
unset PYTHON_SYS_EXECUTABLE $(env | sed -n 's/^\\(PYO3_[A-Z_]*\\)=.*/\\1/p')
exec {cargo} build --workspace --all-targets{release} --message-format json-render-diagnostics
"
    );
    let program = folder.join("cargo");
    fs::write(&program, text).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    program
}

fn installs(from: Source) {
    let Some(stage) = staged() else { return };
    let _dog = Watchdog::within(HOUR);
    let fresh = Fresh::new(stage, &stage.python, from).expect("installed");
    fresh.runs_what_is_shown();
}

#[test]
fn pip_installs_it_without_a_network() {
    installs(Source::Stage);
}

/// The documented install builds everything once more where nothing was built. It gets numpy and the build tools from
/// the package index.
#[test]
fn the_documented_install_is_all_that_is_needed() {
    if std::env::var_os("TRANSHIP_TORTURE").is_none() {
        return; // `make wheel`
    }
    installs(Source::Index);
}

/// One without a global lock, if there is one.
fn free_threaded() -> Option<PathBuf> {
    let named = std::env::var("TRANSHIP_PYTHON_FREE_THREADED").ok();
    let known = ["python3.15t", "python3.14t", "python3.13t"];
    let all = named.into_iter().chain(known.map(String::from));
    let say = "import sys, sysconfig; print(sys.executable) if sysconfig.get_config_var('Py_GIL_DISABLED') else sys.exit(1)";
    let found = |python: String| {
        let said = output(Command::new(python).args(["-c", say])).ok()?;
        Some(said.out.trim().into())
    };
    all.into_iter().find_map(found)
}

/// Both ends in one process, each in a thread; importing the package brings no lock back.
const WITHOUT_LOCK: &str = "
import sys, threading, tranship
assert not sys._is_gil_enabled()
with tranship.embedded() as domain, domain.listen('numbers', tranship.Sender) as listener:
    def receive():
        with domain.open('numbers', tranship.Receiver) as receiver:
            for number, buffer in enumerate(receiver):
                assert bytes(memoryview(buffer)) == number.to_bytes(8, 'big') * 1000
            print(number + 1)
    pool = domain.pool('numbers', 16 << 20)
    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    def send(sender):
        with sender:
            for number in range(1000):
                sender.send(pool.copy(number.to_bytes(8, 'big') * 1000))
    senders = [threading.Thread(target=send, args=[listener.accept()]) for _ in threads]
    for thread in senders:
        thread.start()
    for thread in senders + threads:
        thread.join()
";

#[test]
fn an_interpreter_without_a_global_lock_gets_a_wheel_of_its_own() {
    let Some(stage) = staged() else { return };
    let Some(base) = free_threaded() else {
        return skipped(
            "no Python without a global lock (python3.14t, python3.13t, or TRANSHIP_PYTHON_FREE_THREADED)",
        );
    };
    let _dog = Watchdog::within(HOUR);
    let fresh = Fresh::new(stage, &base, Source::Stage).expect("installed");
    let said = output(&mut fresh.terminal("threads.py", WITHOUT_LOCK)).expect("it runs");
    assert_eq!(said.out, "1000\n".repeat(4));
}
