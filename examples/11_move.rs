//! One frame, three processes' worth of work, no copy: a camera moves its frames to a filter, which changes them where
//! they are and moves them on to a display. Each has a frame to itself while it has it. That needs a pool that all of
//! them may write.

use std::path::PathBuf;
use std::thread;
use tranship::{Body, Domain, PoolOptions, Receiver, Sender, Trust};

const FRAMES: u64 = 300;
const BYTES: usize = 100_000;

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
        while let Ok(message) = input.recv() {
            let word = message.word;
            let Body::BufferMut(mut frame) = message.body else {
                continue;
            };
            // At level `producer` the frame would be a `Body::Buffer`, because only the camera could write.
            frame.write(0, &[255; BYTES / 2]).expect("ours to write");
            output.send((frame, word)).expect("move on");
        }
    });
    let display = thread::spawn(move || {
        let display = join("display", socket);
        let mut input = display.open::<Receiver>("filtered").expect("open");
        let mut shown = 0;
        while let Ok(message) = input.recv() {
            let bytes = message.to_vec();
            assert!(bytes[..BYTES / 2].iter().all(|b| *b == 255));
            assert!(
                bytes[BYTES / 2..]
                    .iter()
                    .all(|b| u64::from(*b) == message.word % 256)
            );
            shown += 1;
            // The frame goes back to the camera's pool here.
        }
        shown
    });

    // Room for ten frames or so: the camera waits until one has come back.
    let options = PoolOptions::new(1 << 20).name("frames").trust(Trust::Full);
    let pool = camera.create_pool(options)?;
    let mut sender = camera.listen::<Sender>("raw")?.accept()?;
    pool.allow_forward(sender.status().peer)?;
    for n in 0..FRAMES {
        let mut frame = pool.alloc(BYTES)?;
        frame.write(0, &[u8::try_from(n % 256)?; BYTES])?;
        sender.send((frame, n))?;
    }
    drop(sender);
    filter.join().map_err(|_| "the filter panicked")?;
    let shown: u64 = display.join().map_err(|_| "the display panicked")?;
    assert_eq!(shown, FRAMES);
    println!("{shown} frames shown, each of them changed on its way, none copied");
    Ok(())
}
