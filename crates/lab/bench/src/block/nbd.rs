//! An NBD client that keeps so many requests under way: one thread, one connection, the oldest handshake.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::work::Work;
use crate::clock;
use crate::stats::{Measured, Samples};

/// Connects to the default export, of so many bytes.
pub fn connect(port: u16, bytes: u64) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.read_exact(&mut [0; 18])?;
    // Fixed newstyle, no zeroes.
    stream.write_all(&3u32.to_be_bytes())?;
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
    let mut size = [0; 10];
    stream.read_exact(&mut size)?;
    ensure!(size[..8] == bytes.to_be_bytes(), "a wrong size");
    Ok(stream)
}

pub fn measure(port: u16, work: Work) -> Result<Measured> {
    let mut stream = connect(port, work.size)?;
    let mut samples = Samples::new(1 << 18, 1);
    let mut begun = vec![0u64; work.depth];
    let mut message = vec![0x5a; 28 + if work.write { work.bytes } else { 0 }];
    let mut bytes = vec![0; work.bytes];
    let mut asked = 0u64;
    let mut ask = |stream: &mut TcpStream, slot: u64, begun: &mut [u64]| -> Result<()> {
        let offset = work.offset(asked);
        asked += 1;
        message[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
        message[4..8].copy_from_slice(&u32::from(work.write).to_be_bytes());
        message[8..16].copy_from_slice(&slot.to_be_bytes());
        message[16..24].copy_from_slice(&offset.to_be_bytes());
        message[24..28].copy_from_slice(&u32::try_from(work.bytes)?.to_be_bytes());
        begun[usize::try_from(slot)?] = clock::ticks();
        Ok(stream.write_all(&message)?)
    };
    for slot in 0..work.depth as u64 {
        ask(&mut stream, slot, &mut begun)?;
    }
    let (since, mut under_way, mut taken) = (Instant::now(), work.depth, 0u64);
    let mut enough = true;
    while under_way > 0 {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        ensure!(
            head[..8] == [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0],
            "an error, or no reply"
        );
        if !work.write {
            stream.read_exact(&mut bytes)?;
        }
        let slot = u64::from_be_bytes(*head.last_chunk().context("eight bytes")?);
        let from = begun
            .get(usize::try_from(slot)?)
            .context("no such request")?;
        enough &= samples.push(clock::ticks() - from);
        taken += 1;
        match enough && since.elapsed() < work.budget {
            true => ask(&mut stream, slot, &mut begun)?,
            false => under_way -= 1,
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    let mut measured = samples.finish("").context("no samples")?;
    measured.per_second = taken as f64 / seconds;
    Ok(measured)
}
