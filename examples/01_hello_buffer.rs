//! A buffer goes from one domain to another without being copied.
//!
//! Two domains in one program, to keep it short; in life they are processes that join the same manager.

use std::thread;
use tranship::{Body, Domain, Receiver, Sender};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The manager runs inside the first domain; the second joins by its socket.
    let writer = Domain::builder().name("writer").embedded()?;
    let socket = writer.socket_path().ok_or("no socket")?;

    let reader = thread::spawn(move || -> Result<String, String> {
        let say = |e: &dyn std::fmt::Display| e.to_string();
        let reader = Domain::builder().name("reader").socket(socket).connect();
        let reader = reader.map_err(|e| say(&e))?;
        let mut receiver = reader.open::<Receiver>("greetings").map_err(|e| say(&e))?;
        let message = receiver.recv().map_err(|e| say(&e))?;
        let Body::Buffer(buf) = &message.body else {
            return Err("not a buffer".into());
        };
        // Memory that another process wrote is read through a view: that process could still change it.
        let text = buf.view().to_vec();
        String::from_utf8(text).map_err(|e| say(&e))
    });

    let mut sender = writer.listen::<Sender>("greetings")?.accept()?;

    let mut buf = sender.alloc(5)?; // writable, in a pool that the receiver alone can read
    buf.copy_from_slice(b"hello");
    let frozen = buf.freeze(); // read-only from here on, may be cloned, cut and sent
    sender.send(frozen.clone())?;

    let heard = reader.join().map_err(|_| "the reader panicked")??;
    assert_eq!(heard, "hello");
    assert_eq!(frozen.bytes(), Some(&b"hello"[..])); // ours to read as long as we hold it
    println!("the reader heard: {heard}");
    Ok(())
}
