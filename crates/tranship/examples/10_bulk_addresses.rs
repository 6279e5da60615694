//! Buffers that change their owner, by a program that does not know how they travel: the address says it.
//!
//! `local:` joins threads of one process, `shm:` processes that have joined the same manager (here two members in one
//! process, to keep it short), `tcp:` machines.

use std::io::{Read, Write};
use std::time::Duration;
use tranship::bulk::{Direction, Domain, EndOptions, Event, Incoming, Outgoing, Trust};

const WAIT: Duration = Duration::from_secs(10);

fn options() -> EndOptions {
    EndOptions::new(Trust::Producer).meta_bytes(16)
}

/// Sends a text of any length in buffers of one page.
fn writer(domain: &Domain, address: &str, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let channel = domain.create(address, Direction::Source, options())?;
    while !matches!(channel.wait_event(WAIT)?, Some(Event::Bound(Ok(_)))) {}
    let pool = domain.pool(8, 4096, false)?;
    channel.block_on(channel.assign(pool.info().id)?)?;
    let mut message = Outgoing::new(&pool);
    message.write_all(text.as_bytes())?;
    message
        .send(&channel, b"text")
        .map_err(|failed| failed.error)?;
    // All buffers come back when the reader has let the message go.
    while pool.free() < 8 {
        drop(channel.wait_event(WAIT)?.ok_or("nothing comes back")?);
    }
    Ok(())
}

fn reader(domain: &Domain, address: &str) -> Result<String, Box<dyn std::error::Error>> {
    let channel = loop {
        match domain.bind(address, options()) {
            Ok((channel, _)) => break channel,
            // Not there yet.
            Err(_) => std::thread::yield_now(),
        }
    };
    loop {
        let event = channel.wait_event(WAIT)?.ok_or("nothing arrives")?;
        if let Ok(message) = Incoming::of(event) {
            let mut text = String::new();
            message?.read_to_string(&mut text)?;
            // Letting the message go has put its buffers on their way back.
            return Ok(text);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let manager = tranship::Domain::embedded()?;
    let text = "moved, not copied; ".repeat(1000);
    for address in ["local:greetings", "shm:greetings"] {
        let (there, here) = (Domain::over(&manager)?, Domain::over(&manager)?);
        let heard = std::thread::scope(|scope| {
            let reader = scope.spawn(|| reader(&there, address).map_err(|e| e.to_string()));
            writer(&here, address, &text).map_err(|e| e.to_string())?;
            reader
                .join()
                .map_err(|_| "the reader panicked".to_owned())?
        })?;
        assert_eq!(heard, text);
        println!("{address}: {} bytes", heard.len());
    }
    Ok(())
}
