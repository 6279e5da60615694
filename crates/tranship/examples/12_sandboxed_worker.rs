//! A worker that looks at what strangers made, in a process that can do nothing else: requests and replies with one that is locked down.
//!
//! The worker joins, opens its channels, locks itself down, and counts the words of each text that it is sent. One request asks it to open
//! a file instead, as a text might that found a hole in it.

use std::process::{Command, Stdio};
use tranship::sandbox::{Landlock, Sandbox};
use tranship::{Body, Domain, PoolOptions, Role};

type Failed = Box<dyn std::error::Error>;

/// What a request wants, in its `meta`.
const COUNT: u64 = 0;
const MISBEHAVE: u64 = 1;

/// This program again, as the worker.
fn worker(socket: &str) -> Result<(), Failed> {
    let domain = Domain::builder().name("worker").socket(socket).connect()?;
    let mut requests = domain.open_receiver("requests")?;
    let mut replies = domain.open_sender("replies")?;
    // Whatever else is needed is opened here.
    if Sandbox::new().lock_down()? != Landlock::Whole {
        eprintln!(
            "this kernel's Landlock is not all there; the system calls are refused all the same"
        );
    }
    while let Ok(message) = requests.recv() {
        let Body::Buf(text) = &message.body else {
            return Err("a request that is no buffer".into());
        };
        let answer = match message.meta {
            MISBEHAVE => u64::from(std::fs::File::open("/etc/passwd").is_ok()),
            _ => {
                let text = text.to_vec();
                text.split(u8::is_ascii_whitespace)
                    .filter(|word| !word.is_empty())
                    .count() as u64
            }
        };
        replies.send_inline(&[], answer)?;
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    if let Some(socket) = std::env::args().nth(1) {
        return worker(&socket);
    }
    let boss = Domain::builder().name("boss").embedded()?;
    let socket = boss.socket_path().ok_or("no socket")?;
    let pool = boss.create_pool(PoolOptions::new(8 << 20))?;
    let requests = boss.listen("requests", Role::Source)?;
    let replies = boss.listen("replies", Role::Sink)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(&socket)
        .stdin(Stdio::null())
        .spawn()?;
    let mut requests = requests.accept_sender()?;
    let mut replies = replies.accept_receiver()?;

    let mut ask = |what: u64, text: &str| -> Result<u64, Failed> {
        let mut buffer = pool.alloc(text.len())?;
        buffer.write(0, text.as_bytes())?;
        requests.send_with(buffer, what)?;
        Ok(replies.recv()?.meta)
    };
    let text = "nothing of this is copied on its way ".repeat(20_000);
    assert_eq!(ask(COUNT, &text)?, 8 * 20_000);
    println!("the worker has counted 160000 words");
    assert_eq!(ask(MISBEHAVE, "open a file")?, 0, "it got out");
    println!("it was asked to open a file, and could not");
    assert_eq!(ask(COUNT, "still there")?, 2);
    drop(requests);
    assert!(child.wait()?.success());
    Ok(())
}
