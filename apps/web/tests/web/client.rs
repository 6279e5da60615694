//! A client that sends bytes as they are, and reads replies as RFC 9112 has them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

pub(crate) struct Client {
    socket: UnixStream,
    read: BufReader<UnixStream>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Client {
    pub(crate) fn new(socket: UnixStream) -> Client {
        let read = BufReader::new(socket.try_clone().expect("another descriptor"));
        Client { socket, read }
    }

    /// Sends bytes. A server that has closed does not take them.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.socket.write_all(bytes.as_ref());
    }

    /// Sends a GET request.
    pub(crate) fn ask(&mut self, target: &str) {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
    }

    /// Ends what this side sends.
    pub(crate) fn shut(&mut self) {
        self.socket
            .shutdown(std::net::Shutdown::Write)
            .expect("a shutdown");
    }

    /// Reads a reply; `None`: the connection has ended.
    pub(crate) fn reply_or_end(&mut self, has_body: bool) -> Option<Reply> {
        read_reply(&mut self.read, has_body)
    }

    pub(crate) fn reply(&mut self) -> Reply {
        self.reply_or_end(true).expect("a reply")
    }

    /// Returns what the server sends before it ends the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset is an end, too.
        let _ = self.read.read_to_end(&mut rest);
        rest
    }

    /// The server ends the connection, and sends nothing more.
    pub(crate) fn ends(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }
}

/// Reads a reply; `None`: the connection has ended.
pub(crate) fn read_reply(read: &mut impl BufRead, has_body: bool) -> Option<Reply> {
    let mut line = String::new();
    match read.read_line(&mut line) {
        Ok(0) | Err(_) => return None,
        Ok(_) => {}
    }
    let status = line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .unwrap_or_else(|| panic!("a status line is {line:?}"));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        read.read_line(&mut line).expect("a header");
        let line = line.strip_suffix("\r\n").expect("a whole line");
        let Some((name, value)) = line.split_once(": ") else {
            assert_eq!(line, "");
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut reply = Reply {
        status,
        headers,
        body: Vec::new(),
    };
    let length = reply.header("content-length");
    let length: usize = length.map_or(0, |text| text.parse().expect("a length"));
    if has_body {
        reply.body = vec![0; length];
        read.read_exact(&mut reply.body).expect("a whole body");
    }
    Some(reply)
}
