//! A camera's frames go from shared memory to TCP clients. A server process gets each frame by reference and sends it
//! with a header before it and a part of a file behind it. The camera gets a frame back when the kernel is done with
//! it, not before.
//!
//! To another machine frames go out without being copied (MSG_ZEROCOPY). To one of this machine, as here, the kernel
//! copies them, and the file's pages go by reference.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use tranship::zcopy::{Piece, Sender, Socket};
use tranship::{Body, ChannelOptions, Domain, PoolOptions, Receiver};

const FRAME: usize = 300_000;
const FRAMES: u64 = 100;
const TRAILER: &[u8] = b"from a file: all rights reserved\n";

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs the process between the camera and the network.
fn serve(manager: PathBuf, client: TcpStream, trailer: File) -> Fallible<(u64, u64)> {
    let domain = Domain::builder().name("server").socket(manager).connect()?;
    let mut frames = domain.open::<Receiver>("film")?;
    let mut sender = Sender::new()?;
    let mut socket = Socket::new(&client)?;
    while let Ok(message) = frames.recv() {
        let word = message.word;
        let Body::Buffer(frame) = message.body else {
            continue;
        };
        let head = format!("frame {word} of {} bytes\n", frame.len());
        let pieces = [
            Piece::Bytes(head.as_bytes()),
            Piece::Buffer(&frame),
            Piece::File(&trailer, 0..TRAILER.len() as u64),
        ];
        let all: usize = pieces.iter().map(Piece::len).sum();
        let mut sent = 0;
        while sent < all {
            sent += sender.send(&client, &mut socket, &Piece::after(&pieces, sent))?;
        }
        // `frame` is dropped here; the part that the kernel still needs is kept in `socket`.
    }
    // Otherwise kept buffers would reset the connection when this program ends.
    socket.finish(Duration::from_secs(60))?;
    let counts = sender.counts();
    Ok((counts.referred_bytes, counts.copied_bytes))
}

fn main() -> Fallible<()> {
    let camera = Domain::builder().name("camera").embedded()?;
    let manager = camera.socket_path().ok_or("no socket")?;
    let mut trailer = tempfile::tempfile()?;
    trailer.write_all(TRAILER)?;

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (accepted, _) = listener.accept()?;
    let server = std::thread::spawn(move || serve(manager, accepted, trailer));
    let reader = std::thread::spawn(move || -> Fallible<u64> {
        let mut seen = 0;
        for n in 0..FRAMES {
            let head = format!("frame {n} of {FRAME} bytes\n");
            let mut got = vec![0; head.len() + FRAME + TRAILER.len()];
            client.read_exact(&mut got)?;
            let frame = &got[head.len()..][..FRAME];
            assert!(got.starts_with(head.as_bytes()) && got.ends_with(TRAILER));
            assert!(frame.iter().all(|byte| u64::from(*byte) == n));
            seen += 1;
        }
        Ok(seen)
    });

    // Four frames at most: the camera waits for those that are under way.
    let frames = ChannelOptions::new().pool(PoolOptions::new(2 << 20).name("frames"));
    let listener = camera.listen_with::<tranship::Sender>("film", frames)?;
    let mut film = listener.accept()?;
    for n in 0..FRAMES {
        let mut frame = film.alloc(FRAME)?;
        frame.fill(u8::try_from(n)?);
        film.send((frame.freeze(), n))?;
    }
    drop(film);
    let (referred, copied) = server.join().map_err(|_| "the server panicked")??;
    let seen = reader.join().map_err(|_| "the client panicked")??;
    println!("{seen} frames, {copied} bytes copied by the kernel, {referred} by reference");
    assert_eq!(seen, FRAMES);
    Ok(())
}
