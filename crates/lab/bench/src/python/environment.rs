//! The interpreter, what it can import, and the product's package for it.

use super::system::{System, source};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Modules, and the packages that pip installs for them. Without a module, the systems that need it are left out.
const PACKAGES: [(&str, &str); 6] = [
    ("numpy", "numpy>=2.1"),
    ("iceoryx2", "iceoryx2==0.10.*"),
    ("joblib", "joblib"),
    ("pyarrow", "pyarrow"),
    ("torch", "torch"),
    ("zmq", "pyzmq>=26"),
];
const LIBRARY: &str = "libtranship_py.so";

/// A Python with what it has.
#[derive(Debug)]
pub(super) struct Environment {
    python: PathBuf,
    /// The programs, and beside them the package.
    folder: TempDir,
    /// Versions by module.
    modules: BTreeMap<String, String>,
}

impl Environment {
    /// `given`, else what there is. None, said aloud: there is no Python.
    pub(super) fn find(
        given: Option<&Path>,
        needs: &BTreeSet<&str>,
    ) -> Result<Option<Environment>> {
        let folder = tempfile::tempdir()?;
        let mut here = Environment {
            python: PathBuf::from("python3"),
            folder,
            modules: BTreeMap::new(),
        };
        if let Some(given) = given {
            here.python = given.to_owned();
        } else if let Some(made) = tests_own() {
            here.python = made;
        }
        if let Err(error) = here.fill() {
            ensure!(given.is_none(), "{error:#}");
            eprintln!("SKIPPED: everything in Python: {error:#}");
            return Ok(None);
        }
        for module in needs
            .iter()
            .filter(|name| !here.modules.contains_key(**name))
        {
            let get = match PACKAGES.iter().find(|(known, _)| known == module) {
                Some((_, package)) => format!("pip install '{package}'"),
                None => "cargo build --release -p tranship-py".into(),
            };
            eprintln!(
                "SKIPPED: what needs {module}: {} has no such module: {get}",
                here.python.display()
            );
        }
        Ok(Some(here))
    }

    /// Copies programs and package, and asks what can be imported.
    fn fill(&mut self) -> Result<()> {
        copy(&source("src/python/programs"), self.folder.path())?;
        // A build of a wheel moves the one beside this program away for a moment.
        let libraries = ["deps", "."].map(|folder| beside(&format!("{folder}/{LIBRARY}")));
        if let Some(library) = libraries.into_iter().flatten().find(|file| file.exists()) {
            let package = self.folder.path().join("tranship");
            let files = source("../../faces/py/python/tranship");
            for part in ["", "mp"] {
                std::fs::create_dir_all(package.join(part))?;
                copy(&files.join(part), &package.join(part))?;
            }
            std::os::unix::fs::symlink(library, package.join("_native.abi3.so"))?;
        }
        let mut command = self.command();
        let done = command.arg(self.program("versions.py")).output();
        let done = done.with_context(|| format!("{}", self.python.display()))?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "{}: {}",
            self.python.display(),
            said.trim()
        );
        self.modules = serde_json::from_slice(&done.stdout)?;
        Ok(())
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command
            .env("PYTHONPATH", self.folder.path())
            .env("OPENBLAS_NUM_THREADS", "1") // so that it forks with one thread
            .env_remove("TRANSHIP_SOCKET");
        command
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn has(&self, system: &System) -> bool {
        system
            .needs
            .iter()
            .all(|name| self.modules.contains_key(*name))
    }

    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        let all = self.modules.iter().filter(|(name, _)| *name != "tranship");
        all.map(|(name, version)| (name.clone(), version.clone()))
            .collect()
    }
}

fn beside(name: &str) -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join(name))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let all = std::fs::read_dir(from).with_context(|| format!("{}", from.display()))?;
    for file in all {
        let file = file?;
        if file.file_type()?.is_file() {
            std::fs::copy(file.path(), to.join(file.file_name()))?;
        }
    }
    Ok(())
}

/// The interpreter of the environment that the tests of the Python face have made under the target folder, which has numpy.
fn tests_own() -> Option<PathBuf> {
    let all = std::fs::read_dir(beside("../python")?).ok()?;
    let all = all.flatten().map(|one| one.path());
    let ready = all.filter(|one| one.join("ready").exists()).max()?;
    Some(ready.join("bin/python"))
}
