//! The server over a network stack of its own: a TAP device in a network namespace, from which the clients come.

use crate::client::Client;
use crate::site::Site;
use rustix::process::Signal;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tranship_netpath::lab::{self, Host};
use tranship_testkit::{Random, Watchdog, kills, lab::enter, skipped, until};

const FILE: &str = include_str!("../../web-tap.toml");

/// The server, the namespace that this thread is in now, and the output of the server.
struct Tap {
    site: Option<Site>,
    printed: PathBuf,
    _dir: tempfile::TempDir,
    // The last: it goes when no process is in it.
    _host: Host,
}

impl Tap {
    /// Starts the server of `web-tap.toml` with changes; `None`: there can be no device here, as was printed.
    fn start(changes: &[(&str, &str)]) -> Option<Tap> {
        if let Err(missing) = lab::possible() {
            skipped(format!("no packet went anywhere: {missing:#}"));
            return None;
        }
        let host = Host::new("web").expect("a namespace");
        let run = |words: &str| {
            let words: Vec<_> = words.split(' ').collect();
            host.run("ip", &words).expect("a device");
        };
        run("tuntap add dev web0 mode tap");
        run("address add 10.77.1.2/24 dev web0");
        run("link set web0 up");
        // The machine's network is that of this thread.
        enter(&host.namespace()).expect("the namespace");
        let dir = tranship_testkit::folder().expect("a folder");
        let printed = dir.path().join("printed");
        let file = File::create(&printed).expect("a file");
        let site = Site::start_file(FILE, changes, file.into());
        Some(Tap {
            site: Some(site),
            printed,
            _dir: dir,
            _host: host,
        })
    }

    fn site(&self) -> &Site {
        self.site.as_ref().expect("it runs")
    }

    /// Stops the server; nothing of it is left.
    fn stop(mut self) {
        self.site.take().expect("it runs").stop();
    }

    /// Returns a new connection.
    fn client(&self) -> Client {
        loop {
            match TcpStream::connect((Ipv4Addr::new(10, 77, 1, 1), 80)) {
                // Every stream socket will do.
                Ok(socket) => return Client::new(UnixStream::from(OwnedFd::from(socket))),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Waits until the last line about copies is right, and returns its numbers: received by reference and in disorder,
    /// sent by reference, copied of frames, into smoltcp and out of it, of headers, and frames lost.
    fn copies(&self, is_right: impl Fn(&[u64]) -> bool) -> Vec<u64> {
        loop {
            let printed = std::fs::read_to_string(&self.printed).expect("the file");
            let mut lines = printed.lines().filter(|line| line.contains("by reference"));
            if let Some(line) = lines.next_back() {
                let numbers = line.split_once("tcpip: ").expect("a name").1;
                let numbers = numbers.split(|c: char| !c.is_ascii_digit());
                let numbers: Vec<u64> = numbers.filter_map(|part| part.parse().ok()).collect();
                if is_right(&numbers) {
                    return numbers;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let printed = std::fs::read_to_string(&self.printed).unwrap_or_default();
            eprintln!("the server printed:\n{printed}");
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect()
}

#[test]
fn bytes_cross_device_and_tcpip_by_reference() {
    let _watchdog = Watchdog::new();
    let change = ("\"front\"]", "\"front\", \"--answer\", \"60000\"]");
    let Some(tap) = Tap::start(&[change]) else {
        return;
    };
    let file = bytes(1 << 20);
    std::fs::write(tap.site().dir.path().join("site/big.bin"), &file).expect("a file");
    let mut client = tap.client();
    let (mut asked, mut answered) = (0, 0);
    for _ in 0..3 {
        let request = "GET /big.bin HTTP/1.1\r\nHost: test\r\n\r\n";
        client.send(request);
        let reply = client.reply();
        assert!(reply.status == 200 && reply.body == file);
        asked += request.len() as u64;
        answered += file.len() as u64;
    }
    // A body reaches the handler whole, and comes back.
    let sent = bytes(700_000);
    let head = "POST /dynamic HTTP/1.1\r\nHost: test\r\nContent-Length: 700000\r\n\r\n";
    client.send(head);
    client.send(&sent);
    let reply = client.reply();
    assert!(reply.status == 200 && reply.body == sent);
    asked += (head.len() + sent.len()) as u64;
    answered += sent.len() as u64;
    let all = tap.copies(|all| all[0] + all[1] == asked && all[2] >= answered);
    println!("{asked} bytes asked, {answered} answered; {all:?}");
    // Under load some bytes are sent twice.
    assert!(all[0] > asked / 2 && all[3] >= asked, "{all:?}");
    assert_eq!((all[4], all[5]), (asked, all[2]));
    tap.stop();
}

#[test]
fn many_connections_come_and_go() {
    let _watchdog = Watchdog::new();
    let Some(tap) = Tap::start(&[]) else { return };
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..60).map(|_| tap.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.ask(&format!("/dynamic?n={}", number * 1000));
            client.ask("/page.txt");
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.reply().body.len(), number * 1000);
            assert_eq!(client.reply().body, b"0123456789");
        }
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
            assert_eq!(client.reply().status, 200);
            client.ends();
        }
    }
    // One that sends no more still has its answer.
    let mut client = tap.client();
    client.ask("/page.txt");
    client.shut();
    assert_eq!(client.reply().status, 200);
    client.ends();
    tap.stop();
}

#[test]
fn clients_that_are_slow_or_break_off_do_not_hinder_others() {
    let _watchdog = Watchdog::new();
    let change = ("\"front\"]", "\"front\", \"--taken\", \"300\"]");
    let Some(tap) = Tap::start(&[change]) else {
        return;
    };
    let mut stuck = tap.client();
    stuck.ask("/dynamic?n=16000000");
    for _ in 0..20 {
        // On a slow machine the time may be over before the client has a byte: then another one asks.
        until(|| {
            let mut client = tap.client();
            client.ask("/dynamic?n=1000000");
            // Bytes that are not read when a socket is closed make it a reset.
            let reply = client.reply_or_end(false);
            reply
                .inspect(|reply| assert_eq!(reply.status, 200))
                .is_some()
        });
    }
    // A short reply is taken at once: the limit does not hold for it.
    let mut other = tap.client();
    other.ask("/dynamic?n=60000");
    assert_eq!(other.reply().body.len(), 60_000);
    // As long as it is answered the front works, and cuts the one that takes nothing.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        other.ask("/page.txt");
        assert_eq!(other.reply().status, 200);
    }
    let head = stuck.reply_or_end(false);
    assert!(head.is_none_or(|head| head.status == 200));
    assert!(stuck.rest().len() < 16_000_000);
    tap.stop();
}

#[test]
fn the_service_goes_on_when_a_component_below_it_dies() {
    let _watchdog = Watchdog::new();
    let Some(tap) = Tap::start(&[]) else { return };
    let ask = |client: &mut Client| {
        client.ask("/dynamic?n=100000");
        client.reply_or_end(true)
    };
    let mut client = tap.client();
    assert_eq!(ask(&mut client).expect("a reply").status, 200);
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    let device = tap.site().wait_pid("device").to_string();
    assert_ne!(
        network(&device).expect("its network"),
        network("thread-self").expect("this one"),
        "the device is in no network of its process"
    );
    // Frames are lost with a device, and no connection.
    tap.site().kill("device");
    assert_eq!(ask(&mut client).expect("a reply").body.len(), 100_000);
    for name in ["tcpip", "front"] {
        let others: Vec<_> = ["device", "tcpip", "front", "http", "static"]
            .into_iter()
            .filter(|other| *other != name)
            .map(|other| (other, tap.site().wait_pid(other)))
            .collect();
        tap.site().kill(name);
        // The connections break, and new ones are served.
        assert!(ask(&mut client).is_none(), "{name}");
        client = loop {
            let mut client = tap.client();
            if let Some(reply) = ask(&mut client) {
                assert_eq!(reply.status, 200, "{name}");
                break client;
            }
        };
        for (other, pid) in others {
            assert_eq!(tap.site().wait_pid(other), pid, "{other}");
        }
    }
    // Components above are as with sockets.
    tap.site().kill("http");
    let status = ask(&mut client).map(|reply| reply.status);
    assert!(matches!(status, Some(200 | 502)), "{status:?}");
    tap.stop();
}

#[test]
fn a_new_front_gets_no_connection_of_the_last_one() {
    let _watchdog = Watchdog::new();
    let change = ("\"front\"]", "\"front\", \"--connections\", \"2\"]");
    let Some(tap) = Tap::start(&[change]) else {
        return;
    };
    let request = "GET /page.txt HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut first = tap.client();
    first.send(request);
    assert_eq!(first.reply().status, 200);
    // Connections and requests lie in the channel when their front dies.
    tap.site().signal("front", Signal::STOP);
    let mut clients: Vec<_> = (0..4).map(|_| tap.client()).collect();
    clients.iter_mut().for_each(|client| client.send(request));
    let sent = 5 * request.len() as u64;
    tap.copies(|all| all[0] + all[1] == sent);
    tap.site().kill("front");
    for client in &mut clients {
        assert!(client.reply_or_end(true).is_none());
    }
    loop {
        let mut client = tap.client();
        client.send(request);
        if let Some(reply) = client.reply_or_end(true) {
            assert_eq!(reply.status, 200);
            break;
        }
    }
    tap.stop();
}

/// Asks for so many bytes on a connection of its own. Returns the status, if the whole reply came.
fn ask_once(bytes: usize) -> Option<u16> {
    let socket = TcpStream::connect((Ipv4Addr::new(10, 77, 1, 1), 80)).ok()?;
    // A client that only waits is not told of the death of its connection.
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .expect("a time limit");
    let mut client = Client::new(UnixStream::from(OwnedFd::from(socket)));
    client.send(format!(
        "GET /dynamic?n={bytes} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    ));
    let reply = client.rest();
    let reply = String::from_utf8(reply).expect("text");
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let status = head.get(9..12)?.parse().expect("a status");
    let whole = format!("content-length: {}", body.len());
    assert!(status != 200 || body.bytes().all(|byte| byte == b'x'));
    assert!(status != 200 || body.len() <= bytes);
    head.lines().any(|line| line == whole).then_some(status)
}

#[test]
fn kills_under_load_give_no_wrong_answer() {
    let dog = Watchdog::new();
    let Some(tap) = Tap::start(&[]) else { return };
    let mut random = Random::printed("kills below the server");
    let stop = AtomicBool::new(false);
    let answers = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for client in 0..4_usize {
            let (stop, answers) = (&stop, &answers);
            scope.spawn(move || {
                // Ordering: relaxed; flag and counter publish nothing else.
                while !stop.load(Ordering::Relaxed) {
                    let status = ask_once(client * 70_000 + 1);
                    assert!(matches!(status, None | Some(200 | 502..=504)), "{status:?}");
                    let whole = u32::from(status == Some(200));
                    answers.fetch_add(whole, Ordering::Relaxed);
                }
            });
        }
        for kill in 0..kills(8, 1000) {
            let names = ["device", "tcpip", "front", "http", "dynamic"];
            let name = names[usize::try_from(random.below(5)).expect("below 5")];
            dog.step(format_args!("kill {kill}: {name}"));
            tap.site().kill(name);
            // The service is back.
            let before = answers.load(Ordering::Relaxed);
            while answers.load(Ordering::Relaxed) < before + 4 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    tap.stop();
}
