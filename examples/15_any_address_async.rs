//! Example 14 under tokio: one program, whatever is between its two ends, that awaits its channel and a socket
//! together.
//!
//! Without arguments it plays both ends, over every kind of address, at every level of trust and with sealed buffers.
//! With two of them it is one end, and the other one may be example 14: `15_any_address_async read ADDRESS`,
//! `15_any_address_async write ADDRESS [LEVEL]`.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tranship::net::Over;
use tranship::net::{Credentials, Net, Timing, certificate};
use tranship::{
    Body, ChannelOptions, Domain, ErrorKind, Pool, PoolOptions, Receiver, Sender, Trust,
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

async fn write(domain: &Domain, address: &str, level: &str) -> Result<(), Any> {
    let pool = domain.create_pool(options(level)?)?;
    let options = ChannelOptions::new();
    let mut to = domain.open_async::<Sender>(address, options).await?;
    for number in 0..MESSAGES {
        let bytes = bytes(number)?;
        // Each send waits while the reader is behind; other tasks run meanwhile.
        if number % 3 == 2 {
            to.send_async((b"a word in between", number)).await?;
            continue;
        }
        let mut buf = pool.alloc_async(bytes.len()).await?;
        buf.write(0, &bytes)?;
        match number % 3 {
            0 => to.send_async((buf.freeze(), number)).await?,
            _ => to.send_async((buf, number)).await?,
        };
    }
    // Messages that were sent are not lost by our end.
    Ok(to.wait_taken_async().await?)
}

/// Returns how many messages came until the writer has closed its end, and whether the socket has sent something
/// meanwhile.
async fn read(mut from: Receiver, mut socket: UnixStream) -> Result<(u64, bool), Any> {
    let (mut next, mut said, mut text) = (0, false, [0; 64]);
    loop {
        // Whichever branch comes second is dropped, and has taken nothing.
        let message = tokio::select! {
            length = socket.read(&mut text), if !said => {
                said = length? > 0;
                continue;
            }
            message = from.recv_async() => message,
        };
        let message = match message {
            Ok(message) => message,
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
async fn both(here: &Domain, there: &Domain, address: &str, level: &str) -> Result<(), Any> {
    let copies = copies(there)?;
    let options = ChannelOptions::new().snapshots(copies.id());
    let listener = there.listen_with::<Receiver>(address, options)?;
    let (near, mut far) = UnixStream::pair()?;
    let reader = async {
        let from = listener.accept_async().await?;
        far.write_all(b"something else, too").await?;
        assert_eq!(read(from, near).await?, (MESSAGES, true));
        Ok(())
    };
    tokio::try_join!(write(here, address, level), reader)?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Any> {
    let here = Domain::builder().name("writer").embedded()?;
    // Addresses of other machines, with credentials out of the environment.
    tranship::net::add_to(&here)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", address] => return write(&here, address, Trust::default().name()).await,
        ["write", address, level] => return write(&here, address, level).await,
        ["read", address] => {
            let copies = copies(&here)?;
            let options = ChannelOptions::new().snapshots(copies.id());
            let listener = here.listen_with::<Receiver>(address, options)?;
            let (near, _far) = UnixStream::pair()?;
            let (count, _) = read(listener.accept_async().await?, near).await?;
            println!("{count} messages");
            return Ok(());
        }
        _ => {}
    }

    let socket = here.socket_path().ok_or("no socket")?;
    let there = Domain::builder().name("reader").socket(socket);
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
            both(&here, &there, address, level).await?;
        }
        let levels = levels().collect::<Vec<_>>().join(", ");
        println!("{address}: {MESSAGES} messages at each of {levels}");
    }
    Ok(())
}
