//! A message is a plain struct, written and read where it lies. Programs of different definitions refuse each other, and the error names the field.

use std::thread;
use tranship::typed::{Message, Receiver, Sender};
use tranship::{Domain, error::TypeMismatch};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What comes before the pixels of each frame.
#[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Frame {
    taken_ns: u64,
    width: u32,
    height: u32,
}

/// The definition of a program that was built earlier.
mod earlier {
    use super::*;

    #[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct Frame {
        taken_ns: u64,
        width: u16,
        height: u16,
        exposure_us: u32,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::builder().name("camera").helper_thread(true);
    let camera = domain.embedded()?;
    let socket = camera.socket_path().ok_or("no socket")?;
    let viewer = Domain::builder().name("viewer").socket(socket);
    let viewer = viewer.helper_thread(true).connect()?;
    println!("{}", Frame::layout());

    let listener = camera.listen::<Sender<Frame, [u8]>>("video")?;
    thread::scope(|s| -> Result<(), Box<dyn std::error::Error>> {
        let opening = s.spawn(|| viewer.open::<Receiver<Frame, [u8]>>("video"));
        let mut video = listener.accept()?;
        let mut frames = opening.join().expect("the viewer")?;

        // The header and its pixels lie in one buffer, and nothing converts them.
        let mut frame = video.alloc(640 * 480)?;
        let header = Frame {
            taken_ns: 1,
            width: 640,
            height: 480,
        };
        frame.write(&header)?;
        frame.items_mut()?.fill(200);
        video.send(frame)?;

        let frame = frames.recv()?;
        // The camera could still change the bytes: they are copied out before they are believed.
        let header = frame.read()?;
        assert_eq!((header.width, header.height), (640, 480));
        assert_eq!((frame.len(), frame.item(1000)?), (640 * 480, 200));
        println!("a frame of {} x {} pixels", header.width, header.height);

        // A viewer that was built with another definition is refused, and so is the camera at the viewer's side.
        let opening = s.spawn(|| viewer.open::<Receiver<earlier::Frame, [u8]>>("video"));
        let error = listener.accept().expect_err("another definition");
        println!("the camera: {error}");
        let error = opening.join().expect("the viewer").expect_err("refused");
        let mismatch = error.find::<TypeMismatch>().ok_or("another error")?;
        let (own, theirs) = mismatch.field.clone().ok_or("no field")?;
        assert_eq!(own.as_deref(), Some("width: u16 at 8"));
        assert_eq!(theirs.as_deref(), Some("width: u32 at 8"));
        Ok(())
    })
}
