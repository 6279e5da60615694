//! A relay between a camera and a viewer. Frames go on by reference, and the viewer's message that it is done with a
//! frame goes back. When a viewer goes, the next one gets the frames that it was not sent.

use std::thread;
use tranship::{
    Body, ChannelOptions, Domain, ErrorKind, PoolOptions, Receiver, Relay, RelayEnd, Released,
    Sender,
};

const FRAMES: u64 = 500;

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
    // Few lines: frames that a viewer was sent, and has not taken, go with it.
    let shown = middle.listen_with::<Sender>("shown", ChannelOptions::new().lines(8))?;

    // Two viewers, one after the other: the first leaves in the middle.
    let viewers = thread::spawn(move || -> Result<u64, tranship::Error> {
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
    let relay = thread::spawn(move || -> Result<u32, tranship::Error> {
        let mut relay = Relay::new(from, shown.accept()?)?;
        let mut sinks = 1;
        loop {
            let stop = relay.run();
            match stop.end {
                RelayEnd::Source => return Ok(sinks), // it closed, and all is handed on
                RelayEnd::Sink => {
                    let next = shown.accept()?;
                    drop(relay.replace_sink(next).map_err(|failed| failed.error)?);
                    sinks += 1;
                }
                _ => return Err(stop.error),
            }
        }
    });

    let pool = camera.create_pool(PoolOptions::new(4 << 20).name("frames"))?;
    pool.allow_forward(to.peer())?; // the relay may hand them on
    let mut done = 0;
    for n in 0..FRAMES {
        let mut frame = pool.alloc(50_000)?;
        frame.fill(u8::try_from(n % 256)?);
        to.send((frame.freeze(), n))?;
        while let Some(said) = to.try_recv_back()? {
            done += u64::from(matches!(said.body, Body::Released(Some(_))));
        }
    }
    drop(to);
    let sinks = relay.join().map_err(|_| "the relay panicked")??;
    let seen = viewers.join().map_err(|_| "a viewer panicked")??;
    // Frames in the ring of a viewer that goes are lost with it.
    assert!(sinks == 2 && seen <= FRAMES && seen + 9 >= FRAMES && done <= seen);
    println!(
        "{seen} of {FRAMES} frames seen by {sinks} viewers; the camera heard of {done} that they were done with"
    );
    Ok(())
}
