//! `tranship-panorama`: builds the stages of the panorama, cuts a photograph into views, stitches them in isolated
//! processes, and compares that with the same stages in one process.
//!
//! NOT here: the stages, and their components (`stages.cpp`, `stage.cpp`, `photos.cpp`).

mod compare;
mod run;

use clap::{Parser, Subcommand};
use run::Setup;
use std::path::PathBuf;
use std::process::ExitCode;

/// OpenCV's image stitching, with each stage in a process of its own.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Task,
    /// Folder for programs, views and pictures [default: `panorama` beside this program].
    #[arg(long, global = true)]
    folder: Option<PathBuf>,
    /// Photograph that is cut into views.
    #[arg(long, global = true, default_value = run::PHOTO)]
    photo: PathBuf,
    /// Width of a view, in pixels.
    #[arg(long, global = true, default_value_t = 1600)]
    width: u32,
    /// Threads of OpenCV in each process.
    #[arg(long, global = true, default_value_t = 1)]
    threads: u32,
    /// Processors for all processes of a run. On a single one no two stages run at once.
    #[arg(long, global = true, default_value = "0")]
    cores: String,
}

#[derive(Subcommand)]
enum Task {
    /// Makes out/panorama.png, and shows how far each stage is.
    Picture,
    /// Compares time and memory with one process. Exit code 5: a bound does not hold, or the pictures differ.
    Compare {
        /// Pairs of runs.
        #[arg(long, default_value_t = 9)]
        pairs: usize,
        /// Panoramas of a run, after a first one that is not counted.
        #[arg(long, default_value_t = 3)]
        times: usize,
    },
}

/// A bound does not hold.
const NOT_SHOWN: u8 = 5;

fn main() -> ExitCode {
    let args = Args::parse();
    let made = Setup::new(
        args.folder,
        &args.photo,
        args.width,
        args.threads,
        args.cores,
    );
    let held = made.and_then(|setup| match args.command {
        Task::Picture => setup.picture().map(|()| true),
        Task::Compare { pairs, times } => compare::run(&setup, pairs, times),
    });
    match held {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_SHOWN),
        Err(error) => {
            eprintln!("tranship-panorama: {error:#}");
            ExitCode::FAILURE
        }
    }
}
