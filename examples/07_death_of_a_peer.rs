//! A peer is killed in the middle of the work: the sender hears of it, its memory returns, a new peer takes over.

use std::process::{Command, Stdio};
use tranship::{Domain, ErrorKind, PoolOptions, Receiver, Sender};

/// Runs this program again, as a worker.
fn worker(socket: &str) -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::builder().name("worker").socket(socket).connect()?;
    let mut receiver = domain.open::<Receiver>("jobs")?;
    let mut held = Vec::new();
    while let Ok(message) = receiver.recv() {
        if held.is_empty() || message.word == u64::MAX {
            held.push(message); // the first job is never finished
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(socket) = std::env::args().nth(1) {
        return worker(&socket);
    }
    let boss = Domain::builder().name("boss").embedded()?;
    let socket = boss.socket_path().ok_or("no socket")?;
    let pool = boss.create_pool(PoolOptions::new(8 << 20).chunk_bytes(1 << 20))?;
    let listener = boss.listen::<Sender>("jobs")?;
    let hire = || {
        let program = std::env::current_exe()?;
        let child = Command::new(program)
            .arg(&socket)
            .stdin(Stdio::null())
            .spawn()?;
        let sender = listener.accept().map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>((child, sender))
    };
    let send = |sender: &mut Sender, n: u64| match pool.alloc(1 << 20) {
        Ok(job) => sender
            .send((job.freeze(), n))
            .map_err(|e| (e.error, Some(e.unsent))),
        Err(error) => Err((error, None)),
    };

    let (mut first, mut sender) = hire()?;
    for n in 0..20 {
        send(&mut sender, n).map_err(|(failure, _)| failure)?;
    }
    println!("worker {} is killed", sender.status().peer_pid);
    first.kill()?;
    // Nothing we do waits for the dead: sends end with an error that gives the job back.
    let unsent = loop {
        match send(&mut sender, 20) {
            Ok(_) => {}
            Err((error, Some(job))) if error == ErrorKind::PeerGone => break job,
            Err((failure, _)) => return Err(failure.into()),
        }
    };
    first.wait()?;
    drop(sender);
    println!(
        "the boss knows, and still has the job of {} bytes",
        unsent.0.len()
    );

    let (mut second, mut sender) = hire()?;
    sender.send(unsent)?;
    for n in 0..20 {
        send(&mut sender, n).map_err(|(failure, _)| failure)?;
    }
    drop(sender); // the worker takes the sent messages and ends
    assert!(second.wait()?.success());
    // All of the dead one's memory is back: the whole pool can be had again.
    drop(pool.alloc(8 << 20)?);
    println!("the second worker finished; all memory is back");
    Ok(())
}
