//! Clients that go on, but hardly. A client that holds memory of the server's is closed when that has taken too long. A
//! client that holds none may stay.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tranship_cache::{Options, Server};
use tranship_testkit::Watchdog;

/// Nobody is closed there for saying nothing for a while.
fn server() -> Server {
    let options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads: 2,
        patience: Duration::from_secs(3600),
        deadline: Duration::from_millis(400),
        ..Options::default()
    };
    Server::start(options).expect("a server")
}

fn client(server: &Server) -> BufReader<TcpStream> {
    BufReader::new(TcpStream::connect(server.address()).expect("connect"))
}

/// Says something, and hears one line.
fn talk(client: &mut BufReader<TcpStream>, text: &str) -> String {
    client.get_mut().write_all(text.as_bytes()).expect("write");
    let mut line = String::new();
    client.read_line(&mut line).expect("read");
    line
}

/// Sends a byte again and again, while another client is served; until the server has closed so many.
fn dribble(server: &Server, begin: &str, byte: u8, closed: u64) {
    let _dog = Watchdog::new();
    let (mut slow, mut other, mut idle) = (client(server), client(server), client(server));
    assert_eq!(talk(&mut idle, "mn\r\n"), "MN\r\n");
    slow.get_mut().write_all(begin.as_bytes()).expect("write");
    while server.stats().slow_clients_closed < closed {
        let _ = slow.get_mut().write_all(&[byte]);
        assert_eq!(talk(&mut other, "mn\r\n"), "MN\r\n");
    }
    // The client is told nothing more; later bytes that it sent may have reset the connection.
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(rest.is_empty());
    // A client that said nothing for longer than that is still served.
    assert_eq!(talk(&mut idle, "mn\r\n"), "MN\r\n");
}

#[test]
fn who_sends_a_value_byte_by_byte_is_closed() {
    let server = server();
    dribble(&server, "set k 0 0 1000000\r\n", b'x', 1);
    dribble(&server, "ms k 1000000\r\n", b'x', 2);
    // The client's memory is there again, and nothing was stored.
    let mut c = client(&server);
    assert_eq!(talk(&mut c, "mg k v\r\n"), "EN\r\n");
}

#[test]
fn who_sends_a_line_byte_by_byte_is_closed() {
    let server = server();
    dribble(&server, "get ", b'k', 1);
}

#[test]
fn who_takes_replies_byte_by_byte_is_closed() {
    let _dog = Watchdog::new();
    let server = server();
    let (mut slow, mut other) = (client(&server), client(&server));
    let value = "x".repeat(1 << 19);
    let set = format!("set k 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(talk(&mut other, &set), "STORED\r\n");
    // More replies than a connection's sockets hold.
    let asks = "get k k k k k k k k\r\n".repeat(8);
    slow.get_mut().write_all(asks.as_bytes()).expect("write");
    let mut taken = 0;
    while server.stats().slow_clients_closed == 0 {
        taken += slow.get_mut().read(&mut [0]).expect("a byte");
        assert_eq!(talk(&mut other, "mn\r\n"), "MN\r\n");
    }
    assert!(taken > 0);
}
