//! TLS before the server.

use crate::client::read_reply;
use crate::site::Site;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tranship_testkit::{Watchdog, folder};

/// Starts the server with a certificate for `localhost`, which a client is to trust.
fn start() -> (Site, CertificateDer<'static>) {
    start_with(4096, &[])
}

/// Starts the server with so many places of TLS, and these changes of its file.
fn start_with(places: usize, changes: &[(&str, &str)]) -> (Site, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.expect("a certificate");
    let dir = folder().expect("a folder");
    let file = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_string_lossy().into_owned()
    };
    let certificate = file("cert.pem", made.cert.pem());
    let key = file("key.pem", made.signing_key.serialize_pem());
    let component = format!(
        r#"[component.tls]
run = ["WEB", "tls", "--certificate", "{certificate}", "--key", "{key}", "--front", "web.sock", "--connections", "{places}"]
listen = ["./tls.sock"]
sandbox.read = ["{certificate}", "{key}"]
restart = "always"

[component.http]
"#
    );
    let component = component.replace("WEB", env!("CARGO_BIN_EXE_tranship-web"));
    let changes = [changes, &[("[component.http]\n", &component)]].concat();
    let site = Site::start(&changes);
    // The files are read once, when it starts.
    drop(connect(&site, made.cert.der().clone()));
    (site, made.cert.der().clone())
}

fn socket(site: &Site) -> UnixStream {
    loop {
        if let Ok(socket) = UnixStream::connect(site.dir.path().join("tls.sock")) {
            return socket;
        }
        std::thread::yield_now();
    }
}

type Tls = BufReader<StreamOwned<ClientConnection, UnixStream>>;

fn connect(site: &Site, trusted: CertificateDer<'static>) -> Tls {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut socket = socket(site);
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).expect("a handshake");
    }
    BufReader::new(StreamOwned::new(tls, socket))
}

fn get(tls: &mut Tls, target: &str) -> (u16, Vec<u8>) {
    let ask = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    tls.get_mut().write_all(ask.as_bytes()).expect("a request");
    let reply = read_reply(tls, true).expect("a reply");
    (reply.status, reply.body)
}

#[test]
fn requests_go_through_tls_and_large_replies_are_whole() {
    let _watchdog = Watchdog::new();
    let (site, trusted) = start();
    let mut all: Vec<Tls> = (0..4).map(|_| connect(&site, trusted.clone())).collect();
    for tls in &mut all {
        assert_eq!(get(tls, "/page.txt"), (200, b"0123456789".to_vec()));
        let (status, body) = get(tls, "/dynamic?n=4000000");
        assert_eq!((status, body.len()), (200, 4_000_000));
        assert!(body.iter().all(|byte| *byte == b'x'));
    }
    // Many at once: what the client does not take yet waits.
    for tls in &mut all {
        for _ in 0..4 {
            let ask = "GET /dynamic?n=1000000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
            tls.get_mut().write_all(ask.as_bytes()).expect("a request");
        }
    }
    for tls in &mut all {
        for _ in 0..4 {
            let reply = read_reply(tls, true).expect("a reply");
            assert_eq!((reply.status, reply.body.len()), (200, 1_000_000));
        }
    }
    // A body goes the other way.
    let body: Vec<u8> = (0..1_000_000u32).map(|at| at.to_le_bytes()[0]).collect();
    let head = format!(
        "POST /dynamic HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let tls = &mut all[0];
    tls.get_mut().write_all(head.as_bytes()).expect("a head");
    tls.get_mut().write_all(&body).expect("a body");
    assert_eq!(read_reply(tls, true).expect("a reply").body, body);
    site.stop();
}

#[test]
fn a_client_that_sends_no_more_gets_its_replies_and_an_orderly_end() {
    let _watchdog = Watchdog::new();
    let (site, trusted) = start();
    let mut tls = connect(&site, trusted);
    let ask = "GET /dynamic?n=500000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    tls.get_mut().write_all(ask.as_bytes()).expect("a request");
    tls.get_mut().conn.send_close_notify();
    tls.get_mut().flush().expect("an end");
    assert_eq!(
        read_reply(&mut tls, true).expect("a reply").body.len(),
        500_000
    );
    // Without the server's own note of the end this is an error.
    assert_eq!(tls.read(&mut [0; 1]).expect("an orderly end"), 0);
    site.stop();
}

#[test]
fn a_client_that_speaks_no_tls_costs_itself_alone() {
    let _watchdog = Watchdog::new();
    let (site, trusted) = start();
    let mut other = connect(&site, trusted.clone());
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        &[0x16, 3, 1, 0xff, 0xff],
        b"",
    ] {
        let mut plain = socket(&site);
        plain.write_all(bytes).expect("sent");
        plain
            .shutdown(std::net::Shutdown::Write)
            .expect("a shutdown");
        let mut said = Vec::new();
        // A reset is an end, too.
        let _ = plain.read_to_end(&mut said);
        assert!(!said.starts_with(b"HTTP"), "{said:?}");
    }
    assert_eq!(get(&mut other, "/page.txt").0, 200);
    // The connections end with the front, and the next ones are served by the next one.
    site.kill("front");
    assert_eq!(other.read(&mut [0; 1]).unwrap_or(0), 0);
    assert_eq!(get(&mut connect(&site, trusted), "/page.txt").0, 200);
    site.stop();
}

#[test]
fn clients_without_a_handshake_keep_no_others_out() {
    let _watchdog = Watchdog::new();
    let few = (", \"front\"]", ", \"front\", \"--connections\", \"4\"]");
    let (site, trusted) = start_with(6, &[few]);
    let mut first = connect(&site, trusted.clone());
    // Its handshake is over on the server's side, too.
    assert_eq!(get(&mut first, "/page.txt").0, 200);
    let silent: Vec<UnixStream> = (0..20).map(|_| socket(&site)).collect();
    // The listener takes one after the other, so the silent ones have been taken before.
    let mut last = connect(&site, trusted);
    // All ways lead to the front, which has four places.
    assert_eq!(site.get("/page.txt").0, 200);
    for tls in [&mut first, &mut last] {
        assert_eq!(get(tls, "/page.txt").0, 200);
    }
    drop(silent);
    site.stop();
}
