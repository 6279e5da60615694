//! A camera at 60 frames a second over a topic, and viewers that come and go. Each is a program of its own. Start
//! `21_camera_topic camera` once and `21_camera_topic viewer` as often as you like. Kill any of them, and start it again.
//! Without arguments it shows this in a second, with two viewers of which one goes early.
//!
//! ```text
//!            ┌──────────────────────────┐ ──► viewer      each maps the camera's ring and pool read-only,
//! camera ──► │ camera: a ring of frames │                 and reads at a pace of its own
//!            └──────────────────────────┘ ──► viewer      a viewer that is late misses frames, and counts them
//! ```

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tranship::topic::{SubscriberOptions, Topics};
use tranship::{Body, Domain, ErrorKind, Message};

type Any = Box<dyn std::error::Error>;

const WIDTH: usize = 1280;
const HEIGHT: usize = 720;
const FRAME_TIME: Duration = Duration::from_nanos(1_000_000_000 / 60);

fn row_of(number: u64, row: usize) -> [u8; WIDTH] {
    [(number + row as u64).to_le_bytes()[0]; WIDTH]
}

/// Checks that all of it is of one frame, whatever became of the camera since.
fn check(frame: &Message) -> Result<(), Any> {
    let Body::Buffer(picture) = &frame.body else {
        return Err("not a frame".into());
    };
    let mut seen = [0; WIDTH];
    for row in 0..HEIGHT {
        picture.view().copy_to_slice(row * WIDTH, &mut seen)?;
        if seen != row_of(frame.word, row) {
            return Err(format!("frame {} is torn in row {row}", frame.word).into());
        }
    }
    Ok(())
}

fn camera(domain: &Domain, frames: u64) -> Result<(), Any> {
    let mut camera = domain.publish("camera")?;
    for number in 0..frames {
        let mut frame = camera.alloc(WIDTH * HEIGHT)?;
        for row in 0..HEIGHT {
            frame.write(row * WIDTH, &row_of(number, row))?;
        }
        camera.send((frame, number))?; // one line, however many look at it
        std::thread::sleep(FRAME_TIME);
    }
    Ok(())
}

/// Looks until it has seen so many frames, however often the camera is started anew meanwhile.
fn viewer(domain: &Domain, frames: u64) -> Result<(), Any> {
    let mut video = domain.subscribe_with("camera", SubscriberOptions::new())?;
    let mut seen = 0;
    while seen < frames {
        match video.recv() {
            Ok(frame) => check(&frame)?,
            // The next `recv` waits for another camera.
            Err(over) if matches!(over.kind(), ErrorKind::PeerGone | ErrorKind::PeerDied) => {
                println!("viewer: {over}");
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        seen += 1;
        if seen % 60 == 0 {
            println!("viewer: 60 frames");
        }
    }
    println!("viewer: {seen} frames, {} missed", video.missed());
    Ok(())
}

fn again(role: &str, frames: u64, socket: &std::path::Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args([role, &frames.to_string()])
        .env("TRANSHIP_SOCKET", socket)
        .stdin(Stdio::null())
        .spawn()
}

fn main() -> Result<(), Any> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next();
    let frames = arguments.next().map_or(Ok(u64::MAX), |n| n.parse())?;
    match role.as_deref() {
        Some("camera") => return camera(&Domain::connect()?, frames),
        Some("viewer") => return viewer(&Domain::connect()?, frames),
        Some(other) => return Err(format!("{other}: camera or viewer, please").into()),
        None => {}
    }
    let home = Domain::builder().name("home").embedded()?;
    let socket = home.socket_path().ok_or("no socket")?;
    let mut viewers = [again("viewer", 40, &socket)?, again("viewer", 5, &socket)?];
    let mut camera = again("camera", u64::MAX, &socket)?;
    for viewer in &mut viewers {
        assert!(viewer.wait()?.success());
    }
    camera.kill()?;
    camera.wait()?;
    Ok(())
}
