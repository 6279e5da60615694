//! The paper's two loads: GETs by UDP over many sockets in a closed loop, and TCP connections of one GET each.

use super::super::cache::{Asks, Load, Numbers, answer, get};
use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Connections at a time, as in the paper.
const CONNECTIONS: usize = 36;
/// Bytes before a datagram's part of an answer.
const FRAME: usize = 8;
/// A datagram that does not come in that time was lost.
const LOST: Duration = Duration::from_millis(200);

pub struct Datagrams {
    socket: UdpSocket,
    number: u16,
    key: usize,
    missing: usize,
    asked: Instant,
}

impl Datagrams {
    fn say(&mut self) -> Result<()> {
        let mut request = vec![0; FRAME];
        request[..2].copy_from_slice(&self.number.to_be_bytes());
        request[4..6].copy_from_slice(&1u16.to_be_bytes());
        request.extend_from_slice(get(self.key).as_bytes());
        self.socket.send(&request)?;
        self.asked = Instant::now();
        Ok(())
    }
}

impl Asks for Datagrams {
    const CONNECTIONS: usize = CONNECTIONS;

    fn new(load: &Load) -> Result<Datagrams> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(("127.0.0.1", load.port))?;
        socket.set_nonblocking(true)?;
        Ok(Datagrams {
            socket,
            number: 0,
            key: 0,
            missing: 0,
            asked: Instant::now(),
        })
    }

    fn ask(&mut self, load: &Load, numbers: &mut Numbers) -> Result<()> {
        let key = numbers.next(load.count);
        (self.number, self.key) = (self.number.wrapping_add(1), key);
        self.missing = answer(load);
        self.say()
    }

    fn hear(&mut self, load: &Load, room: &mut [u8]) -> Result<bool> {
        match self.socket.recv(room) {
            Ok(got) if got > FRAME && room[..2] == self.number.to_be_bytes() => {
                ensure!(got - FRAME <= self.missing, "more came than was asked for");
                self.missing -= got - FRAME;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if self.asked.elapsed() > LOST {
                    self.number = self.number.wrapping_add(1);
                    self.missing = answer(load);
                    self.say()?;
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(self.missing == 0)
    }
}

pub struct OneGet {
    stream: Option<TcpStream>,
    missing: usize,
}

impl Asks for OneGet {
    const CONNECTIONS: usize = CONNECTIONS;

    fn new(_: &Load) -> Result<OneGet> {
        Ok(OneGet {
            stream: None,
            missing: 0,
        })
    }

    fn ask(&mut self, load: &Load, numbers: &mut Numbers) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", load.port))?;
        stream.write_all(get(numbers.next(load.count)).as_bytes())?;
        stream.set_nonblocking(true)?;
        // Closed with a reset: else the number of the port would be kept for a minute.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        (self.stream, self.missing) = (Some(stream), answer(load));
        Ok(())
    }

    fn hear(&mut self, _: &Load, room: &mut [u8]) -> Result<bool> {
        let stream = self.stream.as_mut().context("not connected")?;
        match stream.read(room) {
            Ok(0) => anyhow::bail!("the server is gone"),
            Ok(got) => self.missing -= got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if self.missing == 0 {
            self.stream = None;
        }
        Ok(self.missing == 0)
    }
}
