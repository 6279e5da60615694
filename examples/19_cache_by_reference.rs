//! A cache server, and a process that reads its values where they lie: it gets them by a channel, as references.
//!
//! The reader keeps a value while a client overwrites it: it goes on to see the old one, and the next question gives
//! the new one.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use tranship::Domain;
use tranship::cache::{Options, Reader, Server, Share};

type Failed = Box<dyn std::error::Error>;

const LEN: usize = 500_000;

/// Runs this program again, as the reader: it prints a line, and goes on when it reads one.
fn read(socket: &str) -> Result<(), Failed> {
    let domain = Domain::builder().name("reader").socket(socket).connect()?;
    let mut reader = Reader::open(&domain, "cache")?;
    assert!(reader.get(b"nothing")?.is_none());
    let first = reader.get(b"picture")?.ok_or("a miss")?;
    assert_eq!((first.len(), first.flags(), first.ttl()), (LEN, 7, None));
    println!(
        "I hold {} bytes of {:?}",
        first.len(),
        first.view().read::<u8>(0)?
    );

    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?; // the picture was overwritten
    let second = reader.get(b"picture")?.ok_or("a miss")?;
    let (old, new) = (
        first.view().read::<u8>(LEN - 1)?,
        second.view().read::<u8>(LEN - 1)?,
    );
    assert_eq!((old, new), (1, 2));
    assert!(second.cas() > first.cas());
    println!("I hold {old} and {new}");
    Ok(())
}

fn main() -> Result<(), Failed> {
    if let Some(socket) = std::env::args().nth(1) {
        return read(&socket);
    }
    let domain = Domain::builder().name("cache").embedded()?;
    let socket = domain.socket_path().ok_or("no socket")?;
    let server = Server::start(Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        share: Some(Share::new(domain, "cache")),
        ..Options::default()
    })?;
    // Any client of memcached's would do.
    let mut client = BufReader::new(TcpStream::connect(server.address())?);
    let mut set = |byte: u8| -> Result<(), Failed> {
        let head = format!("set picture 7 0 {LEN}\r\n");
        let all = [head.as_bytes(), &[byte; LEN], b"\r\n"].concat();
        client.get_mut().write_all(&all)?;
        let mut answer = String::new();
        client.read_line(&mut answer)?;
        assert_eq!(answer.trim(), "STORED");
        Ok(())
    };
    set(1)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(&socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut heard = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    println!("reader: {}", heard.next().ok_or("nothing")??);
    set(2)?;
    child
        .stdin
        .take()
        .ok_or("no input")?
        .write_all(b"go on\n")?;
    println!("reader: {}", heard.next().ok_or("nothing")??);
    assert!(child.wait()?.success());
    Ok(())
}
