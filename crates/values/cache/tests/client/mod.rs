//! A client over TCP.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use tranship_cache::Server;

pub struct Client(pub BufReader<TcpStream>);

impl Client {
    pub fn new(server: &Server) -> Client {
        let stream = TcpStream::connect(server.address()).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Client(BufReader::new(stream))
    }

    pub fn say(&mut self, text: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(text.as_ref()).expect("write");
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    pub fn set(&mut self, key: impl Display, value: &[u8]) {
        self.say(format!("set {key} 0 0 {}\r\n", value.len()));
        self.say(value);
        self.say("\r\n");
        assert_eq!(self.line(), "STORED");
    }

    pub fn get(&mut self, key: impl Display) -> Option<Vec<u8>> {
        self.say(format!("get {key}\r\n"));
        self.value()
    }

    /// Reads the answer to a `get` of one key.
    pub fn value(&mut self) -> Option<Vec<u8>> {
        let line = self.line();
        if line == "END" {
            return None;
        }
        let len = line.rsplit(' ').next().and_then(|len| len.parse().ok());
        let mut value = vec![0; len.unwrap_or_else(|| panic!("{line:?}"))];
        self.0.read_exact(&mut value).expect("a value");
        assert_eq!((self.line(), self.line()), (String::new(), "END".into()));
        Some(value)
    }

    /// Returns a row of `stats`.
    pub fn stat(&mut self, name: &str) -> String {
        self.say("stats\r\n");
        let rows = std::iter::from_fn(|| Some(self.line()).filter(|line| line != "END"));
        let rows: Vec<String> = rows.collect();
        let prefix = format!("STAT {name} ");
        let found = rows.iter().find_map(|row| row.strip_prefix(&prefix));
        found
            .unwrap_or_else(|| panic!("no row `{name}`"))
            .to_owned()
    }
}

/// Returns the bytes that the kernel has of the arena's file.
pub fn resident(server: &Server) -> u64 {
    let file = server.store().arena().descriptor().try_clone_to_owned();
    let file = std::fs::File::from(file.expect("a descriptor"));
    file.metadata().expect("fstat").blocks() * 512
}
