//! A component between two queues: it takes an image, works on it, and passes on the result.

use crate::note::Note;
use anyhow::Result;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tranship::component::Component;
use tranship::queue::Producer;

/// Time for one image. A component that takes longer ends itself, and the image is lost.
const LONGEST: Duration = Duration::from_secs(20);

/// Works until the process is stopped. The component then opens nothing any more.
pub(crate) fn run(
    input: &str,
    output: &str,
    mut work: impl FnMut(&mut Note, &[u8]) -> Result<Vec<u8>>,
) -> Result<()> {
    let component = Component::connect()?;
    let mut from = component.consumer(input)?;
    let mut to = component.producer(output)?;
    component.ready()?;
    let watch = watch()?;
    loop {
        let item = from.recv()?;
        // A copy: nothing that the sender changes afterwards is seen.
        let bytes = item.to_vec();
        let (mut note, content) = Note::read(&bytes)?;
        let made = if note.fault.is_some() {
            Vec::new()
        } else if item.redelivered() {
            note.loses(format!("it ended `{}`", component.brief().name))
        } else {
            watch.send(true)?;
            let made = work(&mut note, content);
            watch.send(false)?;
            made.unwrap_or_else(|why| note.loses(format!("{why:#}")))
        };
        send(&mut to, &note, &made)?;
        // The result is this process's memory until the next component is done with it. If this process ends before,
        // the image comes again.
        to.wait_done(None)?;
        // A sender that has gone needs no word.
        let _ = item.ack();
    }
}

/// Sends a note and the bytes that belong to it.
pub(crate) fn send(to: &mut Producer, note: &Note, content: &[u8]) -> Result<()> {
    let note = note.write()?;
    let mut buffer = to.alloc(note.len() + content.len())?;
    buffer[..note.len()].copy_from_slice(&note);
    buffer[note.len()..].copy_from_slice(content);
    to.send(buffer.freeze()).map_err(|failed| failed.error)?;
    Ok(())
}

/// Starts the thread that ends the process when it has worked on one image for too long.
fn watch() -> Result<Sender<bool>> {
    let (say, hear) = channel();
    let watch = std::thread::Builder::new().name("watch".to_owned());
    watch.spawn(move || {
        while let Ok(works) = hear.recv() {
            if works && hear.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
                std::process::abort();
            }
        }
    })?;
    Ok(say)
}
