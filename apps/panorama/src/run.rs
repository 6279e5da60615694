//! Programs, views, and runs of both kinds.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A photograph of the Debian package `lomiri-wallpapers-16.04`, by Aitzol Berasategi, CC BY 4.0.
pub(crate) const PHOTO: &str = "/usr/share/backgrounds/picosdeeuropa_by_Aitzol_Berasategi.jpg";
const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A folder with everything that a run needs.
pub(crate) struct Setup {
    pub(crate) folder: PathBuf,
    threads: u32,
    path: OsString,
    /// Processors of every run, as taskset(1) has them.
    cores: String,
}

impl Setup {
    /// Builds the C++ programs, and cuts the photograph into views.
    pub(crate) fn new(
        folder: Option<PathBuf>,
        photo: &Path,
        width: u32,
        threads: u32,
        cores: String,
    ) -> Result<Setup> {
        ensure!(
            photo.exists(),
            "there is no photograph {} (Debian: lomiri-wallpapers-16.04): name another one with --photo",
            photo.display()
        );
        let program = std::env::current_exe()?;
        let beside = program.parent().context("this program is in no folder")?;
        let folder = folder.unwrap_or_else(|| beside.join("panorama"));
        for name in ["views", "out"] {
            std::fs::create_dir_all(folder.join(name))?;
        }
        let folder = folder.canonicalize()?;
        let setup = |name: &str| format!("{name}={}", folder.display());
        done(
            Command::new("make")
                .args(["--silent", "-C", HERE, &setup("OUT")])
                .arg(format!("TRANSHIP={}", beside.display())),
        )
        .context(
            "the stages need OpenCV 4 (Debian: libopencv-stitching-dev, libopencv-imgcodecs-dev)",
        )?;
        done(
            Command::new(folder.join("panorama-views"))
                .arg(photo)
                .arg(folder.join("views"))
                .arg(width.to_string()),
        )?;
        std::fs::copy(
            Path::new(HERE).join("panorama.toml"),
            folder.join("panorama.toml"),
        )?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = [folder.clone(), beside.to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&path));
        Ok(Setup {
            path: std::env::join_paths(path)?,
            folder,
            threads,
            cores,
        })
    }

    /// Makes the panorama once, with everything that the components say.
    pub(crate) fn picture(&self) -> Result<()> {
        done(&mut self.isolated(1))?;
        println!("{}", self.folder.join("out/panorama.png").display());
        Ok(())
    }

    fn pinned(&self, program: &OsStr) -> Command {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &self.cores]).arg(program);
        command.env("PATH", &self.path);
        command
    }

    /// The program of isolated components, which makes so many panoramas.
    pub(crate) fn isolated(&self, times: usize) -> Command {
        let mut command = self.pinned("tranship".as_ref());
        command
            .arg("run")
            .arg(self.folder.join("panorama.toml"))
            .env("PANORAMA_TIMES", times.to_string())
            .env("PANORAMA_THREADS", self.threads.to_string())
            .stdin(Stdio::null());
        command
    }

    /// Makes the command that runs all stages in one process.
    pub(crate) fn alone(&self, times: usize) -> Result<Command> {
        let mut views = Vec::new();
        for entry in std::fs::read_dir(self.folder.join("views"))? {
            views.push(entry?.path());
        }
        views.retain(|path| path.extension().is_some_and(|end| end == "png"));
        views.sort();
        let mut command = self.pinned(self.folder.join("panorama-alone").as_os_str());
        command
            .arg(self.folder.join("out/alone.png"))
            .args([self.threads.to_string(), times.to_string()])
            .args(views)
            .stdin(Stdio::null());
        Ok(command)
    }
}

fn done(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| name.clone())?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}
