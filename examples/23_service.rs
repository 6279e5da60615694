//! A service that makes images smaller, in a process of its own: images and results by reference, errors as values,
//! deadlines, and a worker that dies. `23_service serve` and `23_service album` are the two sides as programs of their
//! own: kill any of them, and start it again.

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tranship::service::{CallError, Client, Request, Services};
use tranship::{Domain, ErrorKind, SendError};

/// Keeps every other pixel.
fn halve(request: Request) -> Result<(), SendError<()>> {
    let bytes = request.len();
    if !bytes.is_multiple_of(2) {
        return request
            .fail(b"an odd number of pixels")
            .map_err(|e| e.map(drop));
    }
    if request.is_cancelled() {
        return Ok(()); // no caller waits any more
    }
    let image = request.to_vec();
    let mut small = match request.alloc(bytes / 2) {
        Ok(small) => small,
        Err(error) => return Err(SendError::new(error, ())),
    };
    for (small, pair) in small.iter_mut().zip(image.chunks(2)) {
        *small = pair[0];
    }
    request.reply(small).map_err(|e| e.map(drop))
}

fn serve(domain: &Domain) -> Result<(), Box<dyn std::error::Error>> {
    let service = domain.serve("halve")?;
    loop {
        let request = service.recv()?;
        if request.len() == 2 {
            std::process::abort(); // a fault that one image strikes
        }
        // A client that is gone takes nothing. The others go on.
        if let Err(failed) = halve(request) {
            eprintln!("halve: {failed}");
        }
    }
}

fn call(client: &Client, pixels: usize) -> Result<usize, CallError<()>> {
    let mut image = client
        .alloc(pixels)
        .map_err(|error| CallError::Unsent(SendError::new(error, ())))?;
    image.fill(7);
    let small = client.call_timeout(image, Duration::from_secs(60));
    let small = small.map_err(|error| error.map(drop))?;
    assert!(small.to_vec().iter().all(|pixel| *pixel == 7));
    Ok(small.len())
}

/// Calls for ever, whatever becomes of the service.
fn album(domain: &Domain) -> Result<(), Box<dyn std::error::Error>> {
    let mut answers = 0u64;
    loop {
        let client = domain.client("halve")?; // waits for the next service
        while call(&client, 1 << 16).is_ok() {
            answers += 1;
            if answers.is_multiple_of(60) {
                println!("album: 60 answers");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => return serve(&Domain::connect()?),
        Some("album") => return album(&Domain::connect()?),
        Some(other) => return Err(format!("{other}: serve or album, please").into()),
        None => {}
    }
    let domain = Domain::builder().name("album").embedded()?;
    let socket = domain.socket_path().ok_or("no socket")?;
    let hire = || -> std::io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").env("TRANSHIP_SOCKET", &socket);
        command.stdin(Stdio::null()).spawn()
    };

    let mut first = hire()?;
    let client = domain.client("halve")?; // waits for the service
    assert_eq!(call(&client, 1 << 20)?, 1 << 19);
    println!("an image of 1 MiB became one of 512 KiB");

    // Several calls may be in flight.
    let calls: Vec<_> = (1..=8u8).map(|n| client.begin(&[n; 16])).collect();
    for (n, call) in (1..=8u8).zip(calls) {
        assert_eq!(call?.wait()?.to_vec(), [n; 8]);
    }

    // An error of the service's own is a value.
    match call(&client, 3) {
        Err(CallError::Failed(why)) => assert_eq!(why.to_vec(), b"an odd number of pixels"),
        other => return Err(format!("not an error of the service's: {other:?}").into()),
    }

    // A service that dies fails its calls at once, with its name.
    let error = match call(&client, 2) {
        Err(CallError::Broken(error)) => error,
        other => return Err(format!("it should have died: {other:?}").into()),
    };
    assert_eq!(error.kind(), ErrorKind::PeerDied);
    println!("{error}");
    first.wait()?;

    let mut second = hire()?;
    let client = domain.client("halve")?;
    assert_eq!(call(&client, 4096)?, 2048);
    println!("the next one goes on");
    second.kill()?;
    second.wait()?;
    Ok(())
}
