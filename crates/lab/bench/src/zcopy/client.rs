//! The client: asks for values at random, drops what comes or copies it, and never waits in the kernel.

use super::work::{CONNECTIONS, HEADER, Work};
use crate::clock;
use crate::party::Party;
use crate::stats::{Measured, Samples};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;
use tranship_sys::stream;

pub fn ask(party: &Party, work: Work) -> Result<Vec<Measured>> {
    let port = u16::try_from(party.hear(0)?)?;
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let reply = HEADER + work.value;
    let mut missing = [0usize; CONNECTIONS];
    let mut asked = [0u64; CONNECTIONS];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % work.count as u64
    };
    let mut room = vec![0u8; if work.copies { 256 << 10 } else { 0 }];
    // What one is checked: the first reply's bytes.
    check(&mut streams[0], work)?;
    let mut samples = Samples::new(1 << 22, u32::try_from(work.depth)?);
    let warm = Instant::now();
    let mut begun: Option<Instant> = None;
    let mut served = 0u64;
    loop {
        for (number, stream) in streams.iter_mut().enumerate() {
            if missing[number] == 0 {
                let now = clock::ticks();
                if asked[number] > 0 && begun.is_some() {
                    served += work.depth as u64;
                    samples.push(now - asked[number]);
                }
                let mut request = [0u8; 8 * 64];
                for slot in request.chunks_exact_mut(8).take(work.depth) {
                    slot.copy_from_slice(&next().to_le_bytes());
                }
                stream.write_all(&request[..8 * work.depth])?;
                missing[number] = reply * work.depth;
                asked[number] = now;
            }
            let got = if work.copies {
                stream.read(&mut room)
            } else {
                stream::drop_unread(&*stream, missing[number])
            };
            match got {
                Ok(0) => anyhow::bail!("the server is gone"),
                Ok(got) => missing[number] -= got,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        match begun {
            // Until the set has been touched and the chooser has looked around.
            None if warm.elapsed() > work.budget => begun = Some(Instant::now()),
            Some(begun) if begun.elapsed() > work.budget && served > 0 => {
                let seconds = begun.elapsed().as_secs_f64();
                let mut measured = samples.finish("").context("no sample")?;
                measured.per_second = served as f64 / seconds;
                return Ok(vec![measured]);
            }
            _ => {}
        }
    }
}

fn check(stream: &mut TcpStream, work: Work) -> Result<()> {
    stream.set_nonblocking(false)?;
    let index = work.count as u64 / 2;
    stream.write_all(&index.to_le_bytes())?;
    let mut reply = vec![0; HEADER + work.value];
    stream.read_exact(&mut reply)?;
    let expected = u8::try_from(index % 251)?;
    ensure!(
        reply[HEADER..].iter().all(|byte| *byte == expected),
        "other bytes came than were asked for"
    );
    stream.set_nonblocking(true)?;
    Ok(())
}
