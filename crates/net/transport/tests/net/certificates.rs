//! Access control: peers that are let in, and peers that are not.

use crate::kit::*;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use std::{fs, io};
use tranship_testkit::Watchdog;
use tranship_transport::net::{Credentials, Net, certificate};
use tranship_transport::{Backend, Error, ErrorKind};

pub fn net(credentials: Credentials) -> Net {
    Net::tls(credentials, timing()).expect("net")
}

/// Checks that the client is refused, or refuses; returns the words that both know.
fn refused(server: &Net, client: &Net) -> (String, String) {
    let at = open(server);
    let _name = listen(server, &format!("{at}/x"));
    let (before, _) = server.refused();
    let error = client.connect(&format!("{at}/x")).expect_err("refused");
    assert_eq!(error, ErrorKind::InvalidEndpoint);
    let here = error.to_string();
    loop {
        if let (count, Some(why)) = server.refused()
            && count > before
        {
            return (here, why);
        }
        std::thread::yield_now();
    }
}

#[test]
fn both_ends_must_be_of_the_same_authority() {
    let _dog = Watchdog::new();
    let (here, there) = refused(&net(credentials()), &net(credentials()));
    assert!(here.contains("not of our authority"), "{here}");
    assert!(there.contains("refuses us"), "{there}");
    // A server that accepts every client: the client is the one with the foreign authority.
    let (ca, other) = (
        certificate::authority("one", DAY).expect("authority"),
        certificate::authority("two", DAY).expect("authority"),
    );
    let own = certificate::issue(&other, "x", &["127.0.0.1".to_owned()], DAY).expect("issue");
    let unknown = Credentials::new(ca.cert.as_bytes(), own.cert.as_bytes(), own.key.as_bytes());
    let server = net(issued(&ca, "server", &["127.0.0.1"]));
    let (here, there) = refused(&server, &net(unknown.expect("credentials")));
    assert!(here.contains("refuses us"), "{here}");
    assert!(there.contains("not of our authority"), "{there}");
    // A client that belongs there is still let in.
    let at = open(&server);
    talk(&mut pair(&server, at, at, "honest"), 1, PAGE);
}

#[test]
fn certificates_expire() {
    let _dog = Watchdog::new();
    let ca = certificate::authority("tests", DAY).expect("authority");
    let addresses = ["127.0.0.1".to_owned()];
    // Valid from an hour ago for no time at all.
    let old = certificate::issue(&ca, "old", &addresses, Duration::ZERO).expect("issue");
    let old = Credentials::new(ca.cert.as_bytes(), old.cert.as_bytes(), old.key.as_bytes());
    let old = old.expect("credentials");
    // Certificates count in seconds.
    while old.verify().is_ok() {
        std::thread::yield_now();
    }
    let why = old.verify().expect_err("expired");
    assert_eq!(why.kind(), ErrorKind::Credentials);
    assert!(why.to_string().contains("xpired"), "{why}");
    let (old, good) = (net(old), net(issued(&ca, "x", &["127.0.0.1"])));
    let (here, there) = refused(&good, &old);
    assert!(
        there.contains("expired") && here.contains("refuses us"),
        "{here} {there}"
    );
    let (here, there) = refused(&old, &good);
    assert!(
        here.contains("expired") && there.contains("refuses us"),
        "{here} {there}"
    );
}

#[test]
fn a_certificate_is_for_a_name() {
    let _dog = Watchdog::new();
    let ca = certificate::authority("tests", DAY).expect("authority");
    let elsewhere = net(issued(&ca, "elsewhere", &["10.1.2.3"]));
    let (here, _) = refused(&elsewhere, &net(issued(&ca, "x", &["127.0.0.1"])));
    assert!(here.contains("its certificate is refused"), "{here}");
}

#[test]
fn without_a_certificate_or_without_tls_nobody_comes_in() {
    let _dog = Watchdog::new();
    let server = net(credentials());
    let plain = Net::plain(timing()).expect("net");
    let (_, there) = refused(&server, &plain);
    assert!(there.contains("127.0.0.1"), "{there}");
    let (here, there) = refused(&plain, &server);
    assert!(there.contains("no tranship"), "{here} {there}");
    let at = open(&server);
    // TLS, but nothing to show.
    let ca = rustls::RootCertStore::empty();
    let config = rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(
        rustls::crypto::ring::default_provider(),
    ));
    let config = config
        .with_safe_default_protocol_versions()
        .expect("versions");
    let mut config = config.with_root_certificates(ca).with_no_client_auth();
    config
        .dangerous()
        .set_certificate_verifier(std::sync::Arc::new(Believer));
    config.alpn_protocols = vec![b"tranship/1".to_vec()];
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").expect("name");
    let mut tls = rustls::ClientConnection::new(std::sync::Arc::new(config), name).expect("tls");
    let mut socket = std::net::TcpStream::connect(at).expect("connect");
    let (before, _) = server.refused();
    while tls.complete_io(&mut socket).is_ok_and(|(read, _)| read > 0) {}
    while server.refused().0 == before {
        std::thread::yield_now();
    }
    let (_, why) = server.refused();
    assert!(
        why.as_ref()
            .is_some_and(|why| why.contains("shows no certificate")),
        "{why:?}"
    );
}

/// Believes any server.
#[derive(Debug)]
struct Believer;

impl rustls::client::danger::ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        by: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12_signature(message, by, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Says hello over TLS with this certificate, and gives the answer's status.
fn greet(
    at: std::net::SocketAddr,
    own: &certificate::Issued,
    protocol: Option<&[u8]>,
    hello: &[u8],
) -> Option<u8> {
    use rustls::pki_types::pem::PemObject;
    use std::io::{Read, Write};
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(rustls::RootCertStore::empty());
    let cert = rustls::pki_types::CertificateDer::from_pem_slice(own.cert.as_bytes());
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(own.key.as_bytes());
    let mut config = config
        .with_client_auth_cert(vec![cert.expect("certificate")], key.expect("key"))
        .expect("config");
    config
        .dangerous()
        .set_certificate_verifier(std::sync::Arc::new(Believer));
    config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").expect("name");
    let tls = rustls::ClientConnection::new(std::sync::Arc::new(config), name).expect("tls");
    let socket = std::net::TcpStream::connect(at).expect("connect");
    let mut line = rustls::StreamOwned::new(tls, socket);
    line.write_all(hello).ok()?;
    let mut answer = [0; 36];
    line.read_exact(&mut answer).ok()?;
    Some(answer[10])
}

#[test]
fn a_session_belongs_to_the_certificate_that_began_it() {
    let _dog = Watchdog::new();
    let ca = certificate::authority("tests", DAY).expect("authority");
    let server = net(issued(&ca, "server", &["127.0.0.1"]));
    let at = open(&server);
    let _name = listen(&server, &format!("{at}/x"));
    let [one, other] =
        ["one", "other"].map(|name| certificate::issue(&ca, name, &[], DAY).expect("issue"));
    let hello = |again| hello(again, [9; 16], 0, "x");
    let ours = Some(&b"tranship/1"[..]);
    let greeted = |own, protocol, again| greet(at, own, protocol, &hello(again));
    assert_eq!(greeted(&one, ours, false), Some(0), "welcome");
    assert_eq!(greeted(&other, ours, true), Some(3), "unknown to others");
    assert_eq!(greeted(&one, ours, true), Some(0), "welcome again");
    for protocol in [None, Some(&b"http/1.1"[..])] {
        assert_eq!(greeted(&one, protocol, true), None, "{protocol:?}");
    }
}

#[test]
fn credentials_are_files_that_nobody_else_reads() {
    let folder = tranship_testkit::folder().expect("folder");
    let (ca, own) = (folder.path().join("ca"), folder.path().join("own"));
    certificate::init(&ca, "tests", DAY).expect("init");
    let again = certificate::init(&ca, "tests", DAY).expect_err("again");
    assert!(again.to_string().contains("exists"), "{again}");
    certificate::issue_into(&ca, "camera", &["10.0.0.1".to_owned()], DAY, &own).expect("issue");
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        let mode = std::fs::metadata(own.join(file))
            .expect(file)
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let loaded = Credentials::load(&own).expect("credentials");
    loaded.verify().expect("valid");
    let key = own.join("key.pem");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o640)).expect("mode");
    let open = Credentials::load(&own).expect_err("others may read it");
    assert!(open.to_string().contains("640"), "{open}");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("mode");
    // A key that belongs to another certificate.
    certificate::issue_into(&ca, "x", &[], DAY, &folder.path().join("x")).expect("issue");
    std::fs::copy(folder.path().join("x/key.pem"), &key).expect("copy");
    let foreign = Credentials::load(&own).expect_err("not its key");
    assert!(
        foreign.to_string().contains("cert.pem and key.pem"),
        "{foreign}"
    );
    std::fs::remove_file(own.join("ca.pem")).expect("remove");
    let missing = Credentials::load(&own).expect_err("no authority");
    assert!(missing.to_string().contains("ca.pem"), "{missing}");
}

#[test]
fn an_address_of_ipv6_is_one_too() {
    let _dog = Watchdog::new();
    let ca = certificate::authority("tests", DAY).expect("authority");
    let net = net(issued(&ca, "six", &["::1"]));
    let at = match net.open("[::1]:0".parse().expect("address")) {
        Ok(at) => at,
        Err(why) => return tranship_testkit::skipped(why),
    };
    talk(&mut pair(&net, at, at, "six"), 6, PAGE);
}

#[test]
fn without_tls_it_stays_on_this_machine() {
    let net = Net::plain(timing()).expect("net");
    for address in ["192.0.2.1:1/x", "[2001:db8::1]:1/x"] {
        let error = net.connect(address).expect_err("too far");
        assert_eq!(error, ErrorKind::InvalidEndpoint);
        let why = error.to_string();
        assert!(why.contains("trusted-network"), "{why}");
        assert!(try_listen(&net, address).is_err());
    }
    let anywhere = Net::plain_on_trusted_network(timing()).expect("net");
    assert!(try_listen(&anywhere, "0.0.0.0:0/x").is_ok());
    assert!(try_listen(&net, "0.0.0.0:0/x").is_err());
}

/// An error for credentials that cannot be used states its kind and keeps its cause.
#[test]
fn what_cannot_be_used_has_a_kind() {
    let _dog = Watchdog::new();
    let home = tempfile::tempdir().expect("a directory");
    let (ca, ours) = (home.path().join("ca"), home.path().join("ours"));
    let why = |error: &Error| error.find::<io::Error>().map(io::Error::kind);

    let error = Credentials::load(&ours).expect_err("there is nothing");
    assert_eq!(error.kind(), ErrorKind::Credentials);
    assert_eq!(why(&error), Some(io::ErrorKind::NotFound), "{error}");
    assert!(error.to_string().contains("key.pem"), "{error}");

    certificate::init(&ca, "tests", DAY).expect("an authority");
    let error = certificate::init(&ca, "tests", DAY).expect_err("there is one");
    assert_eq!(error.kind(), ErrorKind::System);
    assert_eq!(why(&error), Some(io::ErrorKind::AlreadyExists), "{error}");

    let at = ["127.0.0.1".to_owned()];
    let error = certificate::issue_into(&ca, "no name", &at, DAY, &ours).expect_err("no name");
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.to_string().contains("`no name`"), "{error}");

    certificate::issue_into(&ca, "ours", &at, DAY, &ours).expect("issued");
    let credentials = Credentials::load(&ours).expect("they do");
    credentials.verify().expect("they are good");
    let key = ours.join("key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("its owner may");
    let error = Credentials::load(&ours).expect_err("others may read it");
    assert_eq!(error.kind(), ErrorKind::Credentials);
    assert!(error.to_string().contains("mode 640"), "{error}");

    let [ca, cert, key] = [ca.join("ca.pem"), ours.join("cert.pem"), key];
    let [ca, cert, key] = [ca, cert, key].map(|path| fs::read(path).expect("to read"));
    for (what, wrong) in [
        ("ca.pem", Credentials::new(b"", &cert, &key)),
        ("cert.pem", Credentials::new(&ca, b"", &key)),
        ("key.pem", Credentials::new(&ca, &cert, b"")),
        ("cert.pem", Credentials::new(&ca, &ca, &key)),
    ] {
        let error = wrong.expect_err("one is wrong");
        assert_eq!(error.kind(), ErrorKind::Credentials);
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_port_that_cannot_be_had_has_a_kind() {
    let _dog = Watchdog::new();
    let plain = Net::plain(timing()).expect("net");
    let theirs = TcpListener::bind("127.0.0.1:0").expect("a port");
    let error = plain
        .open(theirs.local_addr().expect("its address"))
        .expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::InvalidEndpoint);
    let cause = error.find::<io::Error>().map(io::Error::kind);
    assert_eq!(cause, Some(io::ErrorKind::AddrInUse), "{error}");
    let error = plain.open("0.0.0.0:0".parse().expect("an address"));
    let error = error.expect_err("not without TLS");
    assert_eq!(error.kind(), ErrorKind::InvalidEndpoint);
    assert!(error.to_string().contains("TRANSHIP_PLAIN_TCP"), "{error}");
}
