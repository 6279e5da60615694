//! A relay between a camera and a viewer. Frames go on by reference. A frame that the viewer releases is released to the
//! camera, too. When a viewer goes, the next one gets all frames that it has not released.

use std::collections::VecDeque;
use std::thread;
use tranship::{
    Body, Buffer, ChannelOptions, Domain, Error, ErrorKind, Listener, PollItem, PoolOptions,
    Receiver, Released, Sender, poll,
};

const FRAMES: u64 = 500;
/// Frames that a viewer may hold. The channel to it has a line for each, so the relay never waits for room.
const HELD: u32 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let camera = Domain::builder()
        .name("camera")
        .helper_thread(true)
        .embedded()?;
    let socket = camera.socket_path().ok_or("no socket")?;
    let join = |name: &str| {
        let builder = Domain::builder().name(name).socket(&socket);
        builder.helper_thread(true).connect()
    };
    let (middle, house) = (join("relay")?, join("viewers")?);

    // The camera's end, and the relay's two.
    let raw = middle.listen::<Receiver>("raw")?;
    let opening = thread::spawn(move || camera.open::<Sender>("raw").map(|to| (camera, to)));
    let from = raw.accept()?;
    let (camera, mut to) = opening.join().map_err(|_| "the camera panicked")??;
    let shown = middle.listen_with::<Sender>("shown", ChannelOptions::new().lines(HELD))?;

    // Two viewers, one after the other: the first leaves in the middle.
    let viewers = thread::spawn(move || -> Result<u64, Error> {
        let mut seen = 0;
        for wants in [FRAMES / 4, FRAMES] {
            let mut from = house.open::<Receiver>("shown")?;
            for _ in 0..wants {
                let Ok(message) = from.recv() else { break };
                assert!(
                    message
                        .to_vec()
                        .iter()
                        .all(|byte| u64::from(*byte) == message.word % 256)
                );
                seen += 1;
                match from.send_back((Released(message.body), message.word)) {
                    Ok(()) => {} // and the camera hears of it
                    // The peer has too many messages to take, or has sent all and gone: the frame is released all the
                    // same.
                    Err(failed)
                        if matches!(failed.kind(), ErrorKind::Full | ErrorKind::PeerGone) => {}
                    Err(failed) => return Err(failed.error),
                }
            }
        }
        Ok(seen)
    });
    let relay = thread::spawn(move || relay(from, &shown));

    let pool = camera.create_pool(PoolOptions::new(4 << 20).name("frames"))?;
    pool.allow_forward(to.status().peer)?; // the relay may hand them on
    let mut done = 0;
    for n in 0..FRAMES {
        let mut frame = pool.alloc(50_000)?;
        frame.fill(u8::try_from(n % 256)?);
        to.send((frame.freeze(), n))?;
        while let Some(said) = to.try_recv_back()? {
            done += u64::from(matches!(said.body, Body::Released(Some(_))));
        }
    }
    drop(to); // the relay still hands on all that was sent
    let sinks = relay.join().map_err(|_| "the relay panicked")??;
    let seen = viewers.join().map_err(|_| "a viewer panicked")??;
    // A frame may be shown twice: to a viewer that went before the relay heard that it was released, and to the next.
    assert!(sinks == 2 && seen >= FRAMES && done <= FRAMES);
    println!(
        "{seen} of {FRAMES} frames seen by {sinks} viewers; the camera heard of {done} that they were done with"
    );
    Ok(())
}

/// Hands on frames to one viewer after the other until the camera is gone and every frame is released. Returns the number
/// of viewers.
fn relay(mut from: Receiver, viewers: &Listener<Sender>) -> Result<u32, Error> {
    // Frames that no viewer has released, with their words, oldest first.
    let mut held = VecDeque::new();
    let mut camera_is_there = true;
    for viewers_so_far in 1.. {
        let mut to = viewers.accept()?;
        let mut sent = 0; // of the frames in `held`, to this viewer
        while camera_is_there || !held.is_empty() {
            let mut idle = true;
            // From the viewer to the camera. The camera may be gone: then the frame is just released.
            while let Some(said) = to.try_recv_back()? {
                let of = |(_, word): &(Buffer, u64)| *word == said.word;
                if let Some((frame, word)) = held.iter().position(of).and_then(|at| held.remove(at))
                {
                    (sent, idle) = (sent - 1, false);
                    let _ = from.send_back((Released(frame), word));
                }
            }
            if to.status().peer_gone {
                break;
            }
            // From the camera to the viewer.
            if camera_is_there && held.len() < HELD as usize {
                match from.try_recv() {
                    Ok(Some(message)) => {
                        let word = message.word;
                        let frame = message.into_buffer().ok_or(ErrorKind::PeerViolation)?;
                        held.push_back((frame, word));
                    }
                    Ok(None) => {}
                    Err(error) if error == ErrorKind::PeerGone => {
                        (camera_is_there, idle) = (false, false)
                    }
                    Err(error) => return Err(error),
                }
            }
            for (frame, word) in held.range(sent..) {
                match to.send((frame.clone(), *word)) {
                    Ok(_) => (sent, idle) = (sent + 1, false),
                    Err(failed) if failed.kind() == ErrorKind::PeerGone => break,
                    Err(failed) => return Err(failed.error),
                }
            }
            if idle {
                let from = PollItem::receiver(&mut from);
                let to = PollItem::control(&mut to);
                match camera_is_there && held.len() < HELD as usize {
                    true => poll(&mut [from, to], None)?,
                    false => poll(&mut [to], None)?,
                };
            }
        }
        if !camera_is_there && held.is_empty() {
            return Ok(viewers_so_far);
        }
    }
    Ok(0)
}
