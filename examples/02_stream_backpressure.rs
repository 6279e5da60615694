//! A fast writer and a slow reader: memory stays within the pool, and the ring tells the writer when it is full.

use std::thread;
use std::time::Duration;
use tranship::{ChannelOptions, Domain, ErrorKind, PoolOptions, Receiver, Sender};

const FRAMES: u64 = 2000;
const FRAME: usize = 64 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let writer = Domain::builder().name("writer").embedded()?;
    let socket = writer.socket_path().ok_or("no socket")?;

    let reader = thread::spawn(move || {
        let reader = Domain::builder().name("reader").socket(socket).connect();
        let reader = reader.expect("connect");
        let mut receiver = reader.open::<Receiver>("frames").expect("open");
        let mut frames = Vec::new();
        while let Ok(message) = receiver.recv() {
            frames.push(message.word);
            let sum: u64 = message.to_vec().iter().map(|b| u64::from(*b)).sum(); // "work"
            assert_eq!(sum, (message.word % 251) * FRAME as u64);
        }
        frames
    });

    // Room for 16 frames in memory, 8 in the ring: 2000 frames are 125 MiB, the pool is 1 MiB.
    let pool = writer.create_pool(PoolOptions::new(16 * FRAME as u64))?;
    let options = ChannelOptions::new().lines(8);
    let listener = writer.listen_with::<Sender>("frames", options)?;
    let mut sender = listener.accept()?;
    sender.assign(&pool)?; // else the first frames would not be sent before the reader has agreed to the pool

    let (mut full, mut waited) = (0u64, 0u64);
    for n in 0..FRAMES {
        // Blocks until the reader lets go of a frame, if all memory is in use.
        let mut frame = pool.alloc(FRAME)?;
        frame.fill(u8::try_from(n % 251)?);
        // Try first, so that we hear of a full ring; the frame and its number come back with the error.
        if let Err(error) = sender.try_send((frame.freeze(), n)) {
            assert_eq!(error.kind(), ErrorKind::Full);
            full += 1;
            sender.send_timeout(error.unsent, Duration::from_secs(60))?;
            waited += 1;
        }
    }
    drop(sender); // sent messages can still be received
    let frames = reader.join().map_err(|_| "the reader panicked")?;
    assert!(frames.into_iter().eq(0..FRAMES), "all frames, in order");
    let stats = pool.stats();
    assert!(stats.chunk_bytes_present <= 16 * FRAME as u64);
    assert_eq!(full, waited);
    println!(
        "{FRAMES} frames of {FRAME} bytes through {} bytes of memory; the ring was full {full} times",
        stats.chunk_bytes_present
    );
    Ok(())
}
