//! A program of isolated components, started by `tranship run 27_components.toml`: a camera, an unmodified filter, and a
//! display that can open no file. Each finds its ends by their names.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use tranship::component::Component;

type Failed = Box<dyn std::error::Error>;

const FRAMES: u64 = 100;
const FRAME: usize = 4000;

fn camera() -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut frames = component.sender("frames")?;
    for number in 0..FRAMES {
        let mut frame = frames.alloc(FRAME)?;
        frame.fill(b'a' + (number % 26) as u8);
        frames.send(frame.freeze()).map_err(|failed| failed.error)?;
    }
    frames.finish()?;
    Ok(())
}

fn display() -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut shouted = component.receiver("shouted")?;
    let mut bytes = 0;
    while let Ok(message) = shouted.recv() {
        let text = message.to_vec();
        assert!(text.iter().all(u8::is_ascii_uppercase));
        bytes += text.len();
    }
    assert_eq!(bytes as u64, FRAME as u64 * FRAMES);
    assert!(
        std::fs::File::open("/etc/passwd").is_err(),
        "its file names no path that it may open"
    );
    println!("{bytes} bytes came through three processes");
    Ok(())
}

/// Starts the program, as a shell would: `tranship run 27_components.toml`.
fn run() -> Result<ExitCode, Failed> {
    let here = std::env::current_exe()?;
    let folder = here.parent().ok_or("no folder")?;
    let beside = folder.parent().map(|build| build.join("tranship"));
    let tranship = std::env::var_os("TRANSHIP_BIN")
        .map(PathBuf::from)
        .or(beside);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../examples/27_components.toml"
    );
    let status = Command::new(tranship.ok_or("no program")?)
        .args(["run", file])
        .env("PATH", std::env::join_paths(path)?)
        .status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn main() -> Result<ExitCode, Failed> {
    match std::env::args().nth(1).as_deref() {
        Some("camera") => camera()?,
        Some("display") => display()?,
        _ => return run(),
    }
    Ok(ExitCode::SUCCESS)
}
