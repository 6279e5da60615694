//! One program, whatever is between its two ends. The address says whether that is nothing (`local:`), shared memory
//! (`shm:`) or a network (`tcp:`, with TLS). The writer sends its messages by turns shared, moved and inline, all on
//! one channel. The reader waits for it and for a socket together.
//!
//! Without arguments it plays both ends itself, over every kind of address, at every level of trust and with sealed
//! buffers. With two arguments it is one end: `14_any_address read tcp:0.0.0.0:7700/numbers` on one machine,
//! `14_any_address write tcp:THAT-MACHINE:7700/numbers` on another. A level of trust may follow as a third argument.
//! `tranship cert` makes the credentials that both need. Example 15 does this under tokio.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tranship::net::Over;
use tranship::net::{Credentials, Net, Timing, certificate};
use tranship::{
    Body, ChannelOptions, Domain, ErrorKind, PollItem, Pool, PoolOptions, Receiver, Sender, Trust,
    poll,
};

type Any = Box<dyn std::error::Error + Send + Sync>;

const MESSAGES: u64 = 60;

/// Returns bytes of any size, up to some hundred pages.
fn bytes(number: u64) -> Result<Vec<u8>, Any> {
    let len = usize::try_from(number * number * 331 % 700_000)?;
    Ok(vec![u8::try_from(number % 251)?; len])
}

/// Returns the levels of trust, and the lowest once more with larger buffers that are sealed instead of copied.
fn levels() -> impl Iterator<Item = &'static str> {
    Trust::ALL.iter().map(|trust| trust.name()).chain([SEALED])
}

const SEALED: &str = "sealed";

fn options(level: &str) -> Result<PoolOptions, Any> {
    let options = PoolOptions::new(8 << 20);
    if level == SEALED {
        return Ok(options.trust(Trust::None).seal_from(200_000));
    }
    let trust = Trust::ALL.into_iter().find(|trust| trust.name() == level);
    Ok(options.trust(trust.ok_or("no such level of trust")?))
}

fn write(domain: &Domain, address: &str, level: &str) -> Result<(), Any> {
    let pool = domain.create_pool(options(level)?)?;
    let mut to = domain.open::<Sender>(address)?;
    for number in 0..MESSAGES {
        let bytes = bytes(number)?;
        // Waits while the reader is behind, by whatever way that comes to be known.
        if number % 3 == 2 {
            to.send((b"a word in between", number))?;
            continue;
        }
        let mut buf = pool.alloc(bytes.len())?;
        buf.write(0, &bytes)?;
        match number % 3 {
            0 => to.send((buf.freeze(), number))?,
            _ => to.send((buf, number))?,
        };
    }
    Ok(())
}

/// Returns how many messages came until the writer has closed its end, and whether the socket has sent something
/// meanwhile.
fn read(mut from: Receiver, mut socket: UnixStream) -> Result<(u64, bool), Any> {
    let (mut next, mut said) = (0, false);
    loop {
        let mut items = [PollItem::receiver(&mut from), PollItem::readable(&socket)];
        let ready = match said {
            // One word of the socket is enough.
            true => poll(&mut items[..1], None)?,
            false => poll(&mut items, None)?,
        };
        if ready.contains(&1) {
            said = std::io::Read::read(&mut socket, &mut [0; 64])? > 0;
        }
        if !ready.contains(&0) {
            continue;
        }
        let message = match from.try_recv() {
            Ok(Some(message)) => message,
            Ok(None) => continue,
            // The writer has closed it. Had it died that would be another kind.
            Err(end) if end.kind() == ErrorKind::PeerGone => return Ok((next, said)),
            Err(error) => return Err(error.into()),
        };
        assert_eq!(message.word, next);
        let expected = match &message.body {
            Body::Inline(_) => b"a word in between".to_vec(),
            _ => bytes(next)?,
        };
        assert!(message.to_vec() == expected);
        next += 1;
    }
}

/// Makes the pool for copies: of buffers from pools of level `none`, and of those that were carried here.
fn copies(domain: &Domain) -> Result<Pool, Any> {
    Ok(domain.create_pool(PoolOptions::new(8 << 20).name("copies"))?)
}

/// Runs both ends, in two domains of this process.
fn both(here: &Domain, there: &Domain, address: &str, level: &str) -> Result<(), Any> {
    let copies = copies(there)?;
    let options = ChannelOptions::new().snapshots(copies.id());
    let listener = there.listen_with::<Receiver>(address, options)?;
    let (near, mut far) = UnixStream::pair()?;
    thread::scope(|scope| -> Result<(), Any> {
        let writer = scope.spawn(|| {
            let written = write(here, address, level);
            written.inspect_err(|error| eprintln!("writing to {address}: {error}"))
        });
        // Without the limit the reader would wait for ever for a writer that fails.
        let from = listener.accept_timeout(Duration::from_secs(60))?;
        far.write_all(b"something else, too")?;
        assert_eq!(read(from, near)?, (MESSAGES, true));
        writer.join().map_err(|_| "the writer panicked")?
    })
}

fn main() -> Result<(), Any> {
    let here = Domain::builder().name("writer").embedded()?;
    // Addresses of other machines, with credentials out of the environment.
    tranship::net::add_to(&here)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", address] => return write(&here, address, Trust::default().name()),
        ["write", address, level] => return write(&here, address, level),
        ["read", address] => {
            let copies = copies(&here)?;
            let options = ChannelOptions::new().snapshots(copies.id());
            let listener = here.listen_with::<Receiver>(address, options)?;
            let (near, _far) = UnixStream::pair()?;
            let (count, _) = read(listener.accept()?, near)?;
            println!("{count} messages");
            return Ok(());
        }
        _ => {}
    }

    let socket = here.socket_path().ok_or("no socket")?;
    let there = Domain::builder()
        .name("reader")
        .socket(socket)
        .helper_thread(true);
    let there = there.connect()?;
    // An authority and a certificate for a minute, instead of those of the environment.
    let minute = Duration::from_secs(60);
    let authority = certificate::authority("example", minute)?;
    let issued = certificate::issue(&authority, "example", &["127.0.0.1".to_owned()], minute)?;
    let (ca, cert, key) = (&authority.cert, &issued.cert, &issued.key);
    let credentials = Credentials::new(ca.as_bytes(), cert.as_bytes(), key.as_bytes())?;
    let net = Net::tls(credentials, Timing::default())?;
    let port = net.open("127.0.0.1:0".parse()?)?;
    for domain in [&here, &there] {
        tranship::carrier::add_to(domain, Arc::new(Over::new("tcp", Arc::new(net.clone()))));
    }

    for address in [
        "local:numbers",
        "shm:numbers",
        &format!("tcp:{port}/numbers"),
    ] {
        for level in levels() {
            both(&here, &there, address, level)?;
        }
        let levels = levels().collect::<Vec<_>>().join(", ");
        println!("{address}: {MESSAGES} messages at each of {levels}");
    }
    Ok(())
}
