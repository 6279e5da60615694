//! A server with a manager of its own, and readers in processes of theirs.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use tranship_cache::{Answer, Hit, Mode, Options, Outcome, Reader, Server, Share};
use tranship_core::{Domain, Error};
use tranship_testkit::probe::{Access, Probe};
pub use tranship_testkit::until;
use tranship_testkit::{Control, Peer, child};

pub const NAME: &str = "cache";

pub struct Stage {
    pub server: Server,
    pub domain: Domain,
    pub manager: PathBuf,
}

/// A server over a cache of so many bytes.
pub fn stage(
    memory: u64,
    share: impl FnOnce(&mut Share),
    options: impl FnOnce(&mut Options),
) -> Stage {
    let domain = Domain::builder()
        .name("server")
        .helper_thread(true)
        .embedded()
        .expect("a domain");
    stage_in(domain, memory, share, options)
}

/// Makes a stage like [`stage`], with a domain that the caller has made.
pub fn stage_in(
    domain: Domain,
    memory: u64,
    share: impl FnOnce(&mut Share),
    options: impl FnOnce(&mut Options),
) -> Stage {
    let manager = domain.socket_path().expect("a socket");
    let mut shown = Share::new(domain.clone(), NAME);
    share(&mut shown);
    let mut all = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads: 1,
        memory,
        share: Some(shown),
        ..Options::default()
    };
    options(&mut all);
    let server = Server::start(all).expect("a server");
    Stage {
        server,
        domain,
        manager,
    }
}

impl Stage {
    pub fn set(&self, key: &str, flags: u32, value: &[u8]) -> u64 {
        let store = self.server.store();
        let mut room = store.reserve(value.len()).expect("room");
        room[..value.len()].copy_from_slice(value);
        match store.put(key.as_bytes(), room.freeze(), flags, 0, Mode::Set) {
            Outcome::Stored { cas, .. } => cas,
            other => panic!("{other:?}"),
        }
    }

    /// A row of `stats`.
    pub fn stat(&self, name: &str) -> u64 {
        let stream = TcpStream::connect(self.server.address()).expect("connect");
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(b"stats\r\n").expect("write");
        let row = format!("STAT {name} ");
        let mut lines = stream.lines().map(|line| line.expect("a line"));
        let found = lines.find_map(|line| line.strip_prefix(&row)?.parse().ok());
        found.expect("such a row")
    }

    pub fn reader(&self) -> Remote {
        let peer = reader().start().expect("a reader");
        peer.send(&self.manager).expect("sent");
        Remote(peer)
    }
}

/// Order to a reader.
#[derive(Serialize, Deserialize)]
pub enum Do {
    Open,
    /// Releases the channel; the reader keeps the values that it holds.
    Close,
    /// Holds it, under a name.
    Get(Vec<u8>, String),
    /// Asks for all these, so many times over; answers with how many there are, how many not, and how many were
    /// refused.
    Many(Vec<Vec<u8>>, usize),
    Drop(String),
    Sum(String),
    Place(String),
}

#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
pub enum Did {
    Done,
    Missed,
    Hit(Got),
    Failed(String),
    Many(usize, usize, usize),
    Sum(u64),
    Place(Lies),
}

#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
pub struct Got {
    pub flags: u32,
    pub cas: u64,
    pub ttl: Option<u32>,
    pub len: usize,
    pub sum: u64,
}

/// Place of a value: the page of a file, and what its reader may do there.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
pub struct Lies {
    pub inode: u64,
    pub offset: u64,
    pub can_write: bool,
}

pub fn sum(bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(bytes.len() as u64, add)
}

/// The file and the place in it that an address of this process shows.
pub fn file_of(address: usize) -> (u64, u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let found = maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (from, to, at) = (hex(from)?, hex(to)?, address as u64);
        let offset = hex(words.nth(1)?)?;
        let inode = words.nth(1)?.parse().ok()?;
        (from..to)
            .contains(&at)
            .then(|| (inode, offset + at - from))
    });
    found.expect("mapped")
}

child!(
    fn reader(ctl: Control) {
        let manager: PathBuf = ctl.recv().expect("heard").expect("a path");
        let domain = Domain::builder()
            .name("reader")
            .socket(manager)
            .connect()
            .expect("a domain");
        let probe = Probe::new();
        let mut reader = None;
        let mut held: HashMap<String, Hit> = HashMap::new();
        while let Some(next) = ctl.recv::<Do>().expect("heard") {
            let failed = |error: Error| Did::Failed(format!("{error:?}"));
            let did = match next {
                Do::Open => match Reader::open(&domain, NAME) {
                    Ok(open) => {
                        reader = Some(open);
                        Did::Done
                    }
                    Err(error) => failed(error),
                },
                Do::Close => {
                    reader = None;
                    Did::Done
                }
                Do::Get(key, name) => match reader.as_mut().expect("open").get(&key) {
                    Ok(Some(hit)) => {
                        let got = Got {
                            flags: hit.flags(),
                            cas: hit.cas(),
                            ttl: hit.ttl(),
                            len: hit.len(),
                            sum: sum(&hit.to_vec()),
                        };
                        held.insert(name, hit);
                        Did::Hit(got)
                    }
                    Ok(None) => Did::Missed,
                    Err(error) => failed(error),
                },
                Do::Many(keys, times) => {
                    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                    let keys = keys.repeat(times);
                    match reader.as_mut().expect("open").get_many(&keys) {
                        Ok(all) => {
                            let count = |which: fn(&Answer) -> bool| {
                                all.iter().filter(|a| which(a)).count()
                            };
                            Did::Many(
                                count(|a| matches!(a, Answer::Hit(_))),
                                count(|a| matches!(a, Answer::Miss)),
                                count(|a| matches!(a, Answer::Refused(_))),
                            )
                        }
                        Err(error) => failed(error),
                    }
                }
                Do::Drop(name) => {
                    held.remove(&name).expect("held");
                    Did::Done
                }
                Do::Sum(name) => Did::Sum(sum(&held[&name].to_vec())),
                Do::Place(name) => {
                    let at = held[&name].view().as_ptr() as usize;
                    let (inode, offset) = file_of(at);
                    let can_write = match probe.touch(at) {
                        Access::Read => false,
                        Access::ReadWrite => true,
                        Access::None => panic!("not mapped"),
                    };
                    Did::Place(Lies {
                        inode,
                        offset,
                        can_write,
                    })
                }
            };
            ctl.send(&did).expect("said");
        }
    }
);

/// A reader in another process.
pub struct Remote(pub Peer);

impl Remote {
    pub fn ask(&self, what: Do) -> Did {
        self.0.ask(&what)
    }

    pub fn open(&self) -> &Self {
        assert_eq!(self.ask(Do::Open), Did::Done);
        self
    }

    /// Holds it under its own name.
    pub fn get(&self, key: &str) -> Did {
        self.ask(Do::Get(key.into(), key.into()))
    }

    pub fn hit(&self, key: &str) -> Got {
        match self.get(key) {
            Did::Hit(got) => got,
            other => panic!("{key}: {other:?}"),
        }
    }

    pub fn sum(&self, name: &str) -> u64 {
        match self.ask(Do::Sum(name.into())) {
            Did::Sum(sum) => sum,
            other => panic!("{other:?}"),
        }
    }

    pub fn place(&self, name: &str) -> Lies {
        match self.ask(Do::Place(name.into())) {
            Did::Place(place) => place,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the reason for which it got nothing.
    pub fn refusal(&self, key: &str) -> String {
        match self.get(key) {
            Did::Failed(why) => why,
            other => panic!("{key}: {other:?}"),
        }
    }
}
