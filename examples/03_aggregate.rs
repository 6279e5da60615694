//! One message out of pieces of several buffers: a header in front, nothing copied, written out with one `writev`.

use std::thread;
use tranship::{Aggregate, Body, Domain, PoolOptions, Receiver, Sender};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Domain::builder().name("server").embedded()?;
    let socket = server.socket_path().ok_or("no socket")?;

    let client = thread::spawn(move || {
        let client = Domain::builder().name("client").socket(socket).connect();
        let client = client.expect("connect");
        let mut receiver = client.open::<Receiver>("responses").expect("open");
        // SAFETY: the server in this program does not change a buffer that it has sent.
        unsafe { receiver.trust_writer() };
        let mut out = Vec::new();
        while let Ok(message) = receiver.recv() {
            let Body::Aggregate(response) = message.body else {
                panic!("an aggregate was expected");
            };
            // Out of the server's memory itself.
            assert_eq!(response.pieces().len(), 3);
            response.write_to(&mut out).expect("write");
        }
        String::from_utf8(out).expect("text")
    });

    // Headers and bodies live in pools of their own.
    let headers = server.create_pool(PoolOptions::new(64 << 10).name("headers"))?;
    let bodies = server.create_pool(PoolOptions::new(1 << 20).name("bodies"))?;
    let mut sender = server.listen::<Sender>("responses")?.accept()?;

    let document = bodies
        .copy(b"ignored <b>the document</b> ignored")?
        .freeze();
    for n in 0..3 {
        let mut response = Aggregate::new();
        response.push_back(document.slice(8..27))?; // a part, without copying
        response.push_back(bodies.copy(b"\n")?.freeze())?;
        let header = format!("{n}: {} bytes: ", response.len());
        response.insert(0, headers.copy(header.as_bytes())?.freeze())?;
        sender.send(response)?;
    }
    drop(sender);
    let text = client.join().map_err(|_| "the client panicked")?;
    let line = |n| format!("{n}: 20 bytes: <b>the document</b>\n");
    assert_eq!(text, (0..3).map(line).collect::<String>());
    print!("{text}");
    Ok(())
}
