//! A pipeline of three: the camera's frames go through a filter to a display. The filter forwards references; the
//! camera reuses a frame when the last of them has let go.

use std::path::PathBuf;
use std::thread;
use tranship::{Body, Domain, PoolOptions, Receiver, Sender};

const FRAMES: u64 = 500;

fn join(name: &str, socket: PathBuf) -> Domain {
    let builder = Domain::builder().name(name).socket(socket);
    builder.connect().expect("connect")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let camera = Domain::builder().name("camera").embedded()?;
    let socket = camera.socket_path().ok_or("no socket")?;

    let here = socket.clone();
    let filter = thread::spawn(move || {
        let filter = join("filter", here);
        let mut input = filter.open::<Receiver>("raw").expect("open");
        let listener = filter.listen::<Sender>("filtered").expect("listen");
        let mut output = listener.accept().expect("accept");
        let mut dropped = 0;
        while let Ok(message) = input.recv() {
            let word = message.word;
            let Body::Buffer(frame) = message.body else {
                continue;
            };
            if frame.view().read::<u8>(0).expect("not empty") % 2 == 1 {
                dropped += 1; // letting go is enough
                continue;
            }
            // The upper half only; the bytes stay where the camera put them.
            let half = frame.len() / 2;
            output.send((frame.slice(..half), word)).expect("forward");
        }
        dropped
    });
    let display = thread::spawn(move || {
        let display = join("display", socket);
        let mut input = display.open::<Receiver>("filtered").expect("open");
        let mut shown = 0;
        while let Ok(message) = input.recv() {
            assert_eq!(message.len(), 50_000);
            assert!(
                message
                    .to_vec()
                    .iter()
                    .all(|b| u64::from(*b) == message.word % 256)
            );
            shown += 1;
        }
        shown
    });

    let pool = camera.create_pool(PoolOptions::new(4 << 20).name("frames"))?;
    let mut sender = camera.listen::<Sender>("raw")?.accept()?;
    // Without this right the filter may read the pool, but not pass it on.
    pool.allow_forward(sender.status().peer)?;
    for n in 0..FRAMES {
        let mut frame = pool.alloc(100_000)?;
        frame.fill(u8::try_from(n % 256)?);
        sender.send((frame.freeze(), n))?;
    }
    drop(sender);
    let dropped: u64 = filter.join().map_err(|_| "the filter panicked")?;
    let shown: u64 = display.join().map_err(|_| "the display panicked")?;
    assert_eq!((shown, dropped), (FRAMES / 2, FRAMES / 2));
    println!("{shown} frames shown, {dropped} filtered out, all of them by reference");
    Ok(())
}
