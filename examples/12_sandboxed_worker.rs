//! Workers that look at data of untrusted peers, in processes that can do nothing else: requests and replies with
//! workers that are locked down.
//!
//! A worker joins, opens its channels, locks itself down, and counts the words of each text that it is sent. Some
//! requests ask it to open a file instead, as a text that found a hole in it might. The boss takes any worker that
//! comes, and asks the next one the request of which the last one died. So both can be killed and started again at any
//! time (`12_sandboxed_worker boss`, `12_sandboxed_worker worker`), and so can the manager. Without arguments the boss
//! starts a worker itself, and ends after three requests.

use std::process::{Command, Stdio};
use std::time::Duration;
use tranship::sandbox::{Landlock, Sandbox};
use tranship::{
    Body, ChannelOptions, Domain, ErrorKind, Listener, Pool, PoolOptions, Receiver, Sender,
};

type Failed = Box<dyn std::error::Error>;

/// Kind of a request, in its `word`.
const COUNT: u64 = 0;
const MISBEHAVE: u64 = 1;

/// Longest time until a worker that has announced itself is there.
const MOMENT: Duration = Duration::from_secs(5);

fn worker(domain: &Domain) -> Result<(), Failed> {
    // A name of its own, for the requests to it; the boss learns it by the first word of the replies.
    let name = format!("requests {}", domain.id().0);
    let listener = domain.listen::<Receiver>(&name)?;
    let mut replies = domain.open::<Sender>("replies")?;
    replies.send(name.as_bytes())?;
    let mut requests = listener.accept_timeout(MOMENT)?;
    // Everything else that is needed is opened before this point.
    if Sandbox::new().lock_down()? != Landlock::Whole {
        eprintln!(
            "this kernel's Landlock is not all there; the system calls are refused all the same"
        );
    }
    // Until the boss is gone. The program that started this process starts another one then.
    while let Ok(message) = requests.recv() {
        let Body::Buffer(text) = &message.body else {
            return Err("a request that is no buffer".into());
        };
        let answer = match message.word {
            MISBEHAVE => u64::from(std::fs::File::open("/etc/passwd").is_ok()),
            _ => {
                let text = text.to_vec();
                text.split(u8::is_ascii_whitespace)
                    .filter(|word| !word.is_empty())
                    .count() as u64
            }
        };
        replies.send((&[], answer))?;
    }
    Ok(())
}

/// A worker, as the boss sees it.
struct Desk {
    requests: Sender,
    replies: Receiver,
}

struct Boss {
    domain: Domain,
    pool: Pool,
    replies: Listener<Receiver>,
    desk: Option<Desk>,
}

impl Boss {
    fn new(domain: Domain) -> Result<Boss, tranship::Error> {
        Ok(Boss {
            pool: domain.create_pool(PoolOptions::new(8 << 20))?,
            replies: domain.listen::<Receiver>("replies")?,
            domain,
            desk: None,
        })
    }

    /// Returns the next worker that comes.
    fn next(&self) -> Result<Desk, tranship::Error> {
        let mut replies = self.replies.accept()?;
        let name = replies.recv_timeout(MOMENT)?.to_vec();
        let options = ChannelOptions::new().timeout(MOMENT);
        let name = String::from_utf8_lossy(&name);
        let requests = self.domain.open_with::<Sender>(&name, options)?;
        Ok(Desk { requests, replies })
    }

    fn try_ask(&mut self, what: u64, text: &str) -> Result<u64, tranship::Error> {
        // Given back only if all went well.
        let mut desk = match self.desk.take() {
            Some(desk) => desk,
            None => self.next()?,
        };
        let buffer = self.pool.copy(text.as_bytes())?;
        let sent = desk.requests.send((buffer.freeze(), what));
        sent.map_err(|unsent| unsent.error)?;
        let answer = desk.replies.recv()?.word;
        self.desk = Some(desk);
        Ok(answer)
    }

    /// Asks until somebody has answered.
    fn ask(&mut self, what: u64, text: &str) -> Result<u64, Failed> {
        use ErrorKind::{Lost, ManagerAway, NotConnected, PeerDied, PeerGone, TimedOut};
        loop {
            match self.try_ask(what, text) {
                Ok(answer) => return Ok(answer),
                Err(error) => match error.kind() {
                    // Another worker comes, or the same one when the manager is back.
                    PeerGone | PeerDied | Lost | TimedOut | ManagerAway | NotConnected => {
                        println!("boss: {error}");
                    }
                    _ => return Err(error.into()),
                },
            }
        }
    }

    /// Asks a round of questions whose answers are known.
    fn round(&mut self, text: &str, words: u64) -> Result<(), Failed> {
        assert_eq!(self.ask(COUNT, text)?, words);
        assert_eq!(self.ask(MISBEHAVE, "open a file")?, 0, "it got out");
        assert_eq!(self.ask(COUNT, "still there")?, 2);
        Ok(())
    }
}

fn main() -> Result<(), Failed> {
    let text = "nothing of this is copied on its way ".repeat(2_000);
    let words = 8 * 2_000;
    match std::env::args().nth(1).as_deref() {
        Some("worker") => return worker(&Domain::builder().name("worker").connect()?),
        Some("boss") => {
            let mut boss = Boss::new(Domain::builder().name("boss").connect()?)?;
            for answers in 1.. {
                boss.round(&text, words)?;
                if answers % 20 == 0 {
                    println!("boss: 60 answers");
                }
            }
        }
        _ => {}
    }
    let domain = Domain::builder().name("boss").embedded()?;
    let socket = domain.socket_path().ok_or("no socket")?;
    let mut boss = Boss::new(domain)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("worker")
        .env("TRANSHIP_SOCKET", &socket)
        .stdin(Stdio::null())
        .spawn()?;
    boss.round(&text, words)?;
    println!("the worker has counted {words} words; it was asked to open a file, and could not");
    drop(boss);
    assert!(child.wait()?.success());
    Ok(())
}
