//! The protocol over a real connection, word by word as memcached's protocol.txt has it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use tranship_cache::{Options, Server};
use tranship_testkit::Watchdog;

struct Client {
    stream: BufReader<TcpStream>,
    _dog: Watchdog,
}

fn server(change: impl FnOnce(&mut Options)) -> Server {
    let mut options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads: 2,
        ..Options::default()
    };
    change(&mut options);
    Server::start(options).expect("a server")
}

fn client(server: &Server) -> Client {
    Client {
        stream: BufReader::new(TcpStream::connect(server.address()).expect("connect")),
        _dog: Watchdog::new(),
    }
}

impl Client {
    fn say(&mut self, text: &str) {
        self.stream
            .get_mut()
            .write_all(text.as_bytes())
            .expect("write");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("read");
        assert!(line.ends_with("\r\n"), "{line:?}");
        line.truncate(line.len() - 2);
        line
    }

    /// Says something, and hears exactly these lines.
    fn talk(&mut self, text: &str, answer: &[&str]) {
        self.say(text);
        for expected in answer {
            assert_eq!(self.line(), *expected, "to {text:?}");
        }
    }
}

#[test]
fn classic_commands() {
    let server = server(|_| {});
    let mut c = client(&server);
    c.talk("get k\r\n", &["END"]);
    c.talk("set k 5 0 3\r\nabc\r\n", &["STORED"]);
    c.talk(
        "get k nothing k\r\n",
        &["VALUE k 5 3", "abc", "VALUE k 5 3", "abc", "END"],
    );
    c.talk("append k 0 0 1\r\nd\r\n", &["STORED"]);
    c.talk("prepend k 0 0 1\r\n_\r\n", &["STORED"]);
    c.talk("get k\r\n", &["VALUE k 5 5", "_abcd", "END"]);
    c.talk("add k 0 0 1\r\nx\r\n", &["NOT_STORED"]);
    c.talk("replace k 1 0 2\r\n10\r\n", &["STORED"]);
    c.talk("incr k 5\r\n", &["15"]);
    c.talk("decr k 100\r\n", &["0"]);
    c.talk("get k\r\n", &["VALUE k 1 2", "0 ", "END"]);
    c.talk(
        "incr k x\r\n",
        &["CLIENT_ERROR invalid numeric delta argument"],
    );
    c.talk("touch k 100\r\ntouch ? 100\r\n", &["TOUCHED", "NOT_FOUND"]);
    c.talk("gat 0 k\r\n", &["VALUE k 1 2", "0 ", "END"]);
    c.say("gets k\r\n");
    let cas: u64 = c
        .line()
        .rsplit(' ')
        .next()
        .expect("a number")
        .parse()
        .expect("a number");
    assert_eq!((c.line(), c.line()), ("0 ".to_owned(), "END".to_owned()));
    c.talk(&format!("cas k 0 0 1 {}\r\ny\r\n", cas + 1000), &["EXISTS"]);
    c.talk(&format!("cas k 0 0 1 {cas}\r\ny\r\n"), &["STORED"]);
    c.talk("cas ? 0 0 1 1\r\ny\r\n", &["NOT_FOUND"]);
    c.talk("delete k\r\ndelete k\r\n", &["DELETED", "NOT_FOUND"]);
    c.talk(
        "set a 0 0 1 noreply\r\n1\r\nset b 0 -1 1\r\n2\r\n",
        &["STORED"],
    );
    c.talk("get a b\r\n", &["VALUE a 0 1", "1", "END"]);
    c.talk("flush_all\r\nget a\r\n", &["OK", "END"]);
    c.talk("verbosity 1\r\n", &["OK"]);
    c.say("version\r\n");
    assert!(c.line().starts_with("VERSION 1."));
    c.say("quit\r\n");
    assert_eq!(c.stream.read(&mut [0]).expect("end"), 0);
}

#[test]
fn what_is_wrong_is_said_and_the_conversation_goes_on() {
    let server = server(|options| options.longest = 1000);
    let mut c = client(&server);
    c.talk("nonsense\r\n\r\n", &["ERROR", "ERROR"]);
    c.talk(
        "set k 0 0 2000\r\n",
        &["SERVER_ERROR object too large for cache"],
    );
    let long = "x".repeat(2000);
    c.talk(
        &format!("{long}\r\nversion\r\n"),
        &[&format!(
            "VERSION 1.6.0-tranship-{}",
            env!("CARGO_PKG_VERSION")
        )],
    );
    // Nor is a value that becomes too long by appending: the old value stays.
    let part = "y".repeat(600);
    c.talk(
        &format!("set j 0 0 600\r\n{part}\r\nappend j 0 0 600\r\n{part}\r\n"),
        &["STORED", "SERVER_ERROR object too large for cache"],
    );
    c.talk(
        &format!("ms j 600 MP\r\n{part}\r\nmg j s\r\n"),
        &["SERVER_ERROR object too large for cache", "HD s600"],
    );
    c.talk(
        "set k 0 0 3\r\nabcdef\r\n",
        &["CLIENT_ERROR bad data chunk"],
    );
    c.talk("get k\r\n", &["END"]);
    let key = "k".repeat(251);
    c.talk(
        &format!("get {key}\r\n"),
        &["CLIENT_ERROR bad command line format"],
    );
    c.talk("set t 0 0 4\r\ntext\r\n", &["STORED"]);
    c.talk(
        "incr t 1\r\n",
        &["CLIENT_ERROR cannot increment or decrement non-numeric value"],
    );
}

#[test]
fn large_values_in_pieces_and_many_commands_at_once() {
    let server = server(|options| {
        options.longest = 16 << 20;
        options.memory = 256 << 20;
    });
    let mut c = client(&server);
    let mut writer = c.stream.get_ref().try_clone().expect("another handle");
    let value: Vec<u8> = (0..5_000_000u32).map(|n| n.to_le_bytes()[1]).collect();
    let long = value.clone();
    let talker = std::thread::spawn(move || {
        writer
            .write_all(format!("set big 0 0 {}\r\n", long.len()).as_bytes())
            .expect("write");
        for part in long.chunks(70_001) {
            writer.write_all(part).expect("write");
        }
        writer.write_all(b"\r\n").expect("write");
        for number in 0..2000 {
            writer
                .write_all(format!("set n{number} 0 0 300\r\n{}\r\n", "v".repeat(300)).as_bytes())
                .expect("write");
        }
        for number in 0..2000 {
            writer
                .write_all(format!("get n{number} big\r\n").as_bytes())
                .expect("write");
            if number == 20 {
                break;
            }
        }
    });
    for _ in 0..2001 {
        assert_eq!(c.line(), "STORED");
    }
    for number in 0..=20 {
        assert_eq!(c.line(), format!("VALUE n{number} 0 300"));
        assert_eq!(c.line(), "v".repeat(300));
        assert_eq!(c.line(), format!("VALUE big 0 {}", value.len()));
        let mut got = vec![0; value.len() + 2];
        c.stream.read_exact(&mut got).expect("read");
        assert!(got[..value.len()] == value[..] && got.ends_with(b"\r\n"));
        assert_eq!(c.line(), "END");
    }
    talker.join().expect("no panic");
}

#[test]
fn who_does_not_take_his_replies_is_held_up_and_let_go() {
    let server = server(|options| {
        options.patience = Duration::from_millis(400);
        options.memory = 256 << 20;
        options.connections = 2;
    });
    let mut c = client(&server);
    let value = "x".repeat(1 << 19);
    c.talk(
        &format!("set k 0 0 {}\r\n{value}\r\n", value.len()),
        &["STORED"],
    );
    let mut slow = client(&server);
    let mut third = client(&server);
    assert_eq!(third.line(), "ERROR Too many open connections");
    // The client asks for far more than is held for it, and takes nothing.
    let asks = "get k k k k k k k k\r\n".repeat(100);
    slow.say(&asks);
    while server.stats().slow_clients_closed == 0 {
        c.talk("mn\r\n", &["MN"]);
    }
    let stats = server.stats();
    assert!(
        stats.conn_yields > 0 && stats.rejected_connections == 1,
        "{stats:?}"
    );
    c.talk("delete k\r\n", &["DELETED"]);
}

/// Later than it was asked for, and not before; a new word takes the place of the last one.
#[test]
fn all_is_forgotten_after_a_while() {
    let server = server(|_| {});
    let mut c = client(&server);
    let there = |c: &mut Client| {
        c.say("mg k\r\n");
        c.line() == "HD"
    };
    c.talk("set k 0 0 1\r\nx\r\nflush_all 1000\r\n", &["STORED", "OK"]);
    assert!(there(&mut c));
    let said = std::time::Instant::now();
    c.talk("flush_all 2\r\n", &["OK"]);
    assert!(there(&mut c));
    while there(&mut c) {}
    // The store's clock counts whole seconds: the first may be nearly over when the client asks.
    let after = said.elapsed();
    assert!(after >= Duration::from_secs(1), "{after:?}");
    // Once, and not for later values.
    c.talk("set k 0 0 1\r\ny\r\nmg k v\r\n", &["STORED", "VA 1", "y"]);
    c.talk(
        "flush_all 1000 noreply\r\nflush_all\r\nmg k v\r\n",
        &["OK", "EN"],
    );
}

#[test]
fn datagrams() {
    let server = server(|options| options.udp = Some(SocketAddr::from(([127, 0, 0, 1], 0))));
    let mut c = client(&server);
    let value = "u".repeat(5000);
    c.talk(&format!("set k 0 0 5000\r\n{value}\r\n"), &["STORED"]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket
        .connect(server.udp().expect("an address"))
        .expect("connect");
    socket
        .send(b"\x12\x34\0\0\0\x01\0\0get k nothing\r\n")
        .expect("send");
    let mut parts = std::collections::BTreeMap::new();
    let mut room = [0; 2000];
    let mut total = 1;
    while parts.len() < total {
        let len = socket.recv(&mut room).expect("a datagram");
        assert_eq!(room[..2], [0x12, 0x34]);
        total = usize::from(u16::from_be_bytes([room[4], room[5]]));
        parts.insert(
            u16::from_be_bytes([room[2], room[3]]),
            room[8..len].to_vec(),
        );
    }
    assert!(total > 1);
    let reply: Vec<u8> = parts.into_values().flatten().collect();
    assert_eq!(
        reply,
        format!("VALUE k 0 5000\r\n{value}\r\nEND\r\n").into_bytes()
    );
    socket
        .send(b"\0\x01\0\0\0\x02\0\0version\r\n")
        .expect("send");
    let len = socket.recv(&mut room).expect("a datagram");
    assert!(room[8..len].starts_with(b"SERVER_ERROR multi-packet"));
}

#[test]
fn a_datagram_brings_no_longer_value_than_a_stream() {
    let _dog = Watchdog::new();
    let server = server(|options| {
        options.udp = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        options.longest = 100;
    });
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let address = server.udp().expect("an address");
    socket.connect(address).expect("connect");
    for (len, answer) in [
        (100, "STORED\r\n"),
        (101, "SERVER_ERROR object too large for cache\r\n"),
    ] {
        let text = format!("set k 0 0 {len}\r\n{}\r\n", "x".repeat(len));
        let request = [b"\0\x01\0\0\0\x01\0\0", text.as_bytes()].concat();
        socket.send(&request).expect("send");
        let mut room = [0; 2000];
        let got = socket.recv(&mut room).expect("a datagram");
        assert_eq!(&room[8..got], answer.as_bytes());
    }
}

/// Values around a page, whole pages, and more than a socket takes at once; several of them in one read, and one in
/// many.
#[test]
fn every_way_of_sending_answers_with_the_same_bytes() {
    use tranship_zcopy::Way;
    const SIZES: [usize; 6] = [1, 257, 4095, 4096, 65_536, 1_000_000];
    for way in Way::ALL.map(Some).into_iter().chain([None]) {
        let server = server(|options| options.way = way);
        let mut c = client(&server);
        let body = |size: usize, at: usize| u8::try_from((at * 7 + size) % 251).expect("small");
        for size in SIZES {
            let value: Vec<u8> = (0..size).map(|at| body(size, at)).collect();
            let mut text = format!("set k{size} 0 0 {size}\r\n").into_bytes();
            text.extend_from_slice(&value);
            // The next command comes with the value's last bytes.
            text.extend_from_slice(b"\r\nmn\r\n");
            c.stream.get_mut().write_all(&text).expect("write");
            assert_eq!((c.line(), c.line()), ("STORED".to_owned(), "MN".to_owned()));
        }
        for round in 0..6 {
            let keys: Vec<String> = SIZES.iter().map(|size| format!("k{size}")).collect();
            c.say(&format!("get {}\r\nmn\r\n", keys.join(" ")));
            for size in SIZES {
                assert_eq!(c.line(), format!("VALUE k{size} 0 {size}"));
                let mut value = vec![0; size + 2];
                c.stream.read_exact(&mut value).expect("a value");
                let same = (0..size).all(|at| value[at] == body(size, at));
                assert!(same && value.ends_with(b"\r\n"), "{size}, {way:?}, {round}");
            }
            assert_eq!((c.line(), c.line()), ("END".to_owned(), "MN".to_owned()));
        }
    }
}

/// A number of that length takes a pageblock of its own, because no thread has one in reserve.
#[test]
fn a_number_for_which_there_is_no_memory_is_not_missing() {
    let server = server(|options| options.memory = 1 << 20);
    let mut c = client(&server);
    let set = format!("set n 0 0 40000\r\n{:<40000}\r\n", 5);
    for ask in ["decr n 1\r\n", "ma n MD\r\n"] {
        c.talk(&set, &["STORED"]);
        // All but the place of the number itself.
        let arena = server.store().arena();
        let mut held = Vec::new();
        for len in [1 << 20, 64 << 10, 4096] {
            held.extend(std::iter::from_fn(|| arena.alloc(len).ok()));
        }
        c.talk(ask, &["SERVER_ERROR out of memory"]);
        drop(held);
    }
    c.talk(&set, &["STORED"]);
    c.talk("decr n 1\r\n", &["4"]);
}

/// A number that goes down keeps its length, as in memcached. It is not filled up by a format, which can be no wider
/// than 65,535.
#[test]
fn a_number_that_goes_down_keeps_a_length_of_any_size() {
    let server = server(|_| {});
    let mut c = client(&server);
    let rest = " ".repeat(69_999);
    for (ask, answer) in [("decr n 1\r\n", "4"), ("ma n MD\r\n", "HD")] {
        c.talk(
            &format!("set n 0 0 70000\r\n5{rest}\r\n{ask}mg n v\r\n"),
            &["STORED", answer, "VA 70000", &format!("4{rest}")],
        );
    }
}

#[test]
fn a_flag_counts_once_and_a_line_of_them_costs_nothing() {
    let server = server(|_| {});
    let mut c = client(&server);
    let twice = "CLIENT_ERROR duplicate flag";
    c.talk("ms k 1\r\nv\r\nmg k s k\r\n", &["HD", "HD s1 kk"]);
    for command in ["mg k s v s", "md k q k q", "ma k c t c"] {
        c.talk(&format!("{command}\r\n"), &[twice]);
    }
    c.talk("ms k 1 c c\r\nw\r\nmg k v\r\n", &[twice, "VA 1", "v"]);
    let many = " k".repeat(30_000);
    c.talk(&format!("md k{many}\r\nmg k\r\n"), &[twice, "HD"]);
}

/// Only a `set` says that the old value is not wanted any more.
#[test]
fn a_command_that_is_refused_for_its_length_deletes_nothing_else() {
    let server = server(|options| options.longest = 1000);
    let mut c = client(&server);
    let large = "SERVER_ERROR object too large for cache";
    let long = "x".repeat(2000);
    c.talk("set k 0 0 3\r\nabc\r\n", &["STORED"]);
    for command in [
        "append k 0 0 2000",
        "prepend k 0 0 2000",
        "add k 0 0 2000",
        "replace k 0 0 2000",
        "cas k 0 0 2000 999999",
        "ms k 2000 MA",
        "ms k 2000 ME",
        "ms k 2000 C999999",
    ] {
        c.talk(
            &format!("{command}\r\n{long}\r\nget k\r\n"),
            &[large, "VALUE k 0 3", "abc", "END"],
        );
    }
    c.talk(
        &format!("set k 0 0 2000\r\n{long}\r\nget k\r\n"),
        &[large, "END"],
    );
}

/// Otherwise a client takes the answer for that of its next command.
#[test]
fn who_wants_no_reply_hears_of_no_wrong_line_either() {
    let server = server(|_| {});
    let mut c = client(&server);
    let wrong = [
        "delete k 10 noreply",
        "incr k x noreply",
        "touch k x noreply",
        "set k x 0 1 noreply\r\nv",
        "flush_all x noreply",
    ];
    for line in wrong {
        c.talk(&format!("{line}\r\nmn\r\n"), &["MN"]);
    }
    c.talk("nonsense noreply\r\n", &["ERROR"]);
    // Without its number it is no command, and neither is the next line.
    c.talk("cas k 0 0 1\r\nv\r\n", &["ERROR", "ERROR"]);
}

#[test]
fn who_wants_no_reply_hears_nothing_of_a_value_that_is_refused() {
    let server = server(|options| options.longest = 1000);
    let mut c = client(&server);
    let long = "x".repeat(2000);
    c.talk(
        &format!("set k 0 0 2000 noreply\r\n{long}\r\nmn\r\n"),
        &["MN"],
    );
    c.talk("set k 0 0 3 noreply\r\nabcdef\r\nmn\r\n", &["MN"]);
    c.talk("get k\r\n", &["END"]);
}

#[test]
fn a_number_that_is_asked_for_holds_with_every_mode() {
    let server = server(|_| {});
    let mut c = client(&server);
    let number = |c: &mut Client| {
        c.say("mg k c\r\n");
        let line = c.line();
        let number = line.strip_prefix("HD c").expect("a number");
        number.split(' ').next().expect("a word").to_owned()
    };
    c.talk("ms k 3\r\nabc\r\n", &["HD"]);
    for (mode, value) in [("MA", "abcd"), ("MP", "dabcd")] {
        let has = number(&mut c);
        c.talk(&format!("ms k 1 {mode} C9999\r\nd\r\n"), &["EX"]);
        c.talk(
            &format!("ms k 1 {mode} C{has}\r\nd\r\nmg k v\r\n"),
            &["HD", &format!("VA {}", value.len()), value],
        );
    }
    let has = number(&mut c);
    c.talk(&format!("ms k 1 ME C{has}\r\nx\r\n"), &["NS"]);
    c.talk("ms k 1 MR C9999\r\nx\r\n", &["EX"]);
    c.talk(&format!("ms k 1 MR C{has}\r\ny\r\n"), &["HD"]);
    // A number that is older than the stored one, with I: the stored value is then stale, and the reported number is
    // its own.
    c.say("ms k 1 C1 I c\r\nz\r\n");
    let said = c.line();
    assert_eq!(said, format!("HD c{}", number(&mut c)));
    c.talk("mg k v\r\n", &["VA 1 X Z", "z"]);
    // An item without the number is neither emptied nor stale nor deleted.
    c.talk("ms k 1\r\nn\r\n", &["HD"]);
    for ask in ["md k C1 x", "md k C1 I", "md k C1"] {
        c.talk(&format!("{ask}\r\nmg k v\r\n"), &["EX", "VA 1", "n"]);
    }
    let has = number(&mut c);
    c.talk(&format!("md k C{has} x\r\nmg k v\r\n"), &["HD", "VA 0", ""]);
    c.talk("md nothing x\r\nmd nothing I\r\n", &["NF", "NF"]);
}

/// The announced values hold free memory, and no stored value is evicted for them.
#[test]
fn who_announces_values_and_sends_none_takes_nothing_from_others() {
    let server = server(|options| {
        options.memory = 8 << 20;
        options.patience = Duration::from_millis(400);
    });
    let mut c = client(&server);
    c.talk("set k 0 0 5\r\nvalue\r\n", &["STORED"]);
    let announced = |number: usize| {
        let mut silent = client(&server);
        silent.say(&format!("set silent{number} 0 0 1048576\r\n"));
        silent
    };
    let silent: Vec<Client> = (0..100).map(announced).collect();
    let held_up = |stats: &tranship_cache::Stats| stats.cmd_set > 100;
    while !held_up(&server.stats()) {
        c.talk("get k\r\n", &["VALUE k 0 5", "value", "END"]);
    }
    // Each request is either refused at once, or closed when nothing has come for a while.
    while server.stats().slow_clients_closed == 0 {
        c.talk("get k\r\n", &["VALUE k 0 5", "value", "END"]);
    }
    drop(silent);
    // The clients are gone then, and there is room again.
    let long = "y".repeat(1 << 19);
    c.talk(
        &format!("set long 0 0 {}\r\n{long}\r\n", long.len()),
        &["STORED"],
    );
}
