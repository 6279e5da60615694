//! A camera at 60 frames a second, and viewers that come and go. Each is a program of its own. Start `20_camera camera`
//! once and `20_camera viewer` as often as you like. Kill any of them, stop it, start it again; kill the manager, too.
//! The camera waits for nobody: a slow viewer holds up only itself. Without arguments it shows this in two seconds,
//! with two viewers of which one goes early.
//!
//! ```text
//!              ╔═ video, 4 lines ═► viewer      a line that is not free in time: the viewer misses this frame
//! camera ══════╣
//!              ╚═ video, 4 lines ═► viewer      one copy of each frame, whoever looks at it
//! ```

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tranship::{
    Body, Buffer, BufferMut, ChannelOptions, Domain, Error, ErrorKind, Listener, Message, Pool,
    PoolOptions, Receiver, Sender, WhenFull,
};

type Any = Box<dyn std::error::Error>;

const WIDTH: usize = 1280;
const HEIGHT: usize = 720;
const FRAME_TIME: Duration = Duration::from_nanos(1_000_000_000 / 60);

/// Draws a grey picture whose rows each contain the number of the frame.
fn draw(frame: &mut BufferMut, number: u64) -> Result<(), Error> {
    for row in 0..HEIGHT {
        frame.write(row * WIDTH, &row_of(number, row))?;
    }
    Ok(())
}

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

/// Takes in who comes until it is time for the next frame.
fn newcomers(
    listener: &Listener<Sender>,
    until: Instant,
    all: &mut Vec<Sender>,
) -> Result<(), Error> {
    loop {
        match listener.accept_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(viewer) => {
                println!("camera: a viewer, process {}", viewer.status().peer_pid);
                all.push(viewer);
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(()),
            // No viewer can come before there is a manager again. The frames go on.
            Err(error) if error.kind() == ErrorKind::ManagerAway => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Shows a frame to a viewer. A new viewer has to agree to the pool first, which it does when it runs: until then it
/// misses frames.
fn show(viewer: &mut Sender, pool: &Pool, frame: &Buffer, number: u64) -> Result<(), Error> {
    match viewer.try_assign(pool) {
        Ok(false) => return Ok(()),
        // No manager brings the two together before there is one again.
        Err(error) if error.kind() == ErrorKind::ManagerAway => return Ok(()),
        assigned => assigned?,
    };
    viewer.send((frame.clone(), number))?;
    Ok(())
}

/// Sends so many frames, or frames without end.
fn camera(domain: &Domain, frames: u64) -> Result<(), Any> {
    // Room for the frames that the viewers hold: the lines of a few of them, and the frames that they look at.
    let pool = domain.create_pool(PoolOptions::new(32 << 20).name("frames"))?;
    let options = ChannelOptions::new()
        .lines(4)
        .when_full(WhenFull::DropOldest);
    let listener = domain.listen_with::<Sender>("video", options)?;
    let mut viewers: Vec<Sender> = Vec::new();
    let (mut next, mut skipped) = (Instant::now(), 0);
    for number in 0..frames {
        // A camera that was stopped for a while does not make up for it.
        next = (next + FRAME_TIME).max(Instant::now());
        newcomers(&listener, next, &mut viewers)?;
        let mut frame = match pool.try_alloc(WIDTH * HEIGHT) {
            Ok(frame) => frame,
            // Viewers have it all: they will have to do without this one.
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                skipped += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        draw(&mut frame, number)?;
        let frame = frame.freeze();
        // A viewer that is gone is forgotten; the buffers that it held come back when its process has ended.
        viewers.retain_mut(|viewer| match show(viewer, &pool, &frame, number) {
            Ok(()) => true,
            Err(gone) => {
                println!("camera: {gone}");
                false
            }
        });
        if number % 60 == 59 {
            let missed: u64 = viewers.iter().map(|viewer| viewer.status().dropped).sum();
            println!("camera: 60 frames; {skipped} not made, {missed} missed by viewers");
        }
    }
    Ok(())
}

/// Looks until it has seen so many frames, however often the camera is started anew meanwhile.
fn viewer(domain: &Domain, frames: u64) -> Result<(), Any> {
    let mut seen = 0;
    while seen < frames {
        // Waits until there is a camera, and a manager that knows it.
        let mut video = domain.open_with::<Receiver>("video", ChannelOptions::new().lines(4))?;
        while seen < frames {
            match video.recv() {
                Ok(frame) => check(&frame)?,
                Err(over) if is_over(over.kind()) => {
                    println!("viewer: {over}");
                    break;
                }
                Err(error) => return Err(error.into()),
            }
            seen += 1;
            if seen % 60 == 0 {
                println!("viewer: 60 frames");
            }
        }
    }
    Ok(())
}

/// Returns whether the camera has ended, in order or not, perhaps before it took this viewer in. Anything else would be
/// an error.
fn is_over(kind: ErrorKind) -> bool {
    use ErrorKind::{Lost, NotConnected, PeerDied, PeerGone};
    matches!(kind, PeerGone | PeerDied | Lost | NotConnected)
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
    let mut viewers = [again("viewer", 60, &socket)?, again("viewer", 5, &socket)?];
    let mut camera = again("camera", u64::MAX, &socket)?;
    for viewer in &mut viewers {
        assert!(viewer.wait()?.success());
    }
    camera.kill()?;
    camera.wait()?;
    Ok(())
}
