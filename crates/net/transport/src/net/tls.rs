//! Identity by TLS: both ends show a certificate that the same authority has signed. TLS 1.3 by rustls, nothing older.

use crate::{Error, ErrorKind};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Protocol name that both ends must speak inside TLS.
const PROTOCOL: &[u8] = b"tranship/1";

/// The authority's certificate, in a directory of credentials.
pub const CA_FILE: &str = "ca.pem";
/// Our certificate, and those between it and the authority.
pub const CERT_FILE: &str = "cert.pem";
/// Our key. Nobody but its owner may have access to the file.
pub const KEY_FILE: &str = "key.pem";

/// Certificate and key of this end, and the authority that it trusts.
///
/// ```
/// # mod tranship { pub use tranship_transport::{net, Error, ErrorKind}; }
/// use std::time::Duration;
/// use tranship::ErrorKind;
/// use tranship::net::{Credentials, certificate};
///
/// # let home = tempfile::tempdir().unwrap();
/// # let (ca, ours) = (home.path().join("ca"), home.path().join("ours"));
/// let year = Duration::from_secs(365 * 86_400);
/// certificate::init(&ca, "an example", year)?; // as `tranship cert init` and `issue` do
/// certificate::issue_into(&ca, "localhost", &["127.0.0.1".to_owned()], year, &ours)?;
/// Credentials::load(&ours)?.verify()?;
///
/// let error = Credentials::load(&ca).unwrap_err(); // no certificate of its own
/// assert_eq!(error.kind(), ErrorKind::Credentials);
/// # Ok::<(), tranship_transport::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Credentials {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Credentials {
    /// Reads `ca.pem`, `cert.pem` and `key.pem`, as `tranship cert issue` writes them.
    ///
    /// # Errors
    /// [`ErrorKind::Credentials`], with the file that cannot be used, and the reason: its cause is the kernel's error. A key
    /// that others than its owner may read is refused.
    pub fn load(directory: &Path) -> Result<Credentials, Error> {
        let key = directory.join(KEY_FILE);
        let about = |path: &Path| unusable(path.display().to_string());
        let mode = std::fs::metadata(&key).map_err(about(&key))?;
        let mode = mode.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = key.display();
            let text = format!("{path}: others may use this key (mode {mode:03o}); make it 600");
            return Err(Error::new(ErrorKind::Credentials, text));
        }
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read(&path).map_err(about(&path))
        };
        let (ca, cert, key) = (read(CA_FILE)?, read(CERT_FILE)?, read(KEY_FILE)?);
        Credentials::new(&ca, &cert, &key)
            .map_err(|error| error.context(directory.display().to_string()))
    }

    /// Creates credentials from PEM text.
    ///
    /// # Errors
    /// [`ErrorKind::Credentials`], with the error and the part that has it.
    pub fn new(ca: &[u8], cert: &[u8], key: &[u8]) -> Result<Credentials, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificates = |what: &'static str, pem: &[u8]| {
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            match all.map_err(unusable(what))? {
                all if !all.is_empty() => Ok(all),
                _ => {
                    let text = format!("{what}: no certificate in it");
                    Err(Error::new(ErrorKind::Credentials, text))
                }
            }
        };
        let mut roots = RootCertStore::empty();
        for ca in certificates(CA_FILE, ca)? {
            roots.add(ca).map_err(unusable(CA_FILE))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(CERT_FILE, cert)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(unusable(KEY_FILE))?;
        let own = |error: rustls::Error| unusable(format!("{CERT_FILE} and {KEY_FILE}"))(error);
        let versions = &[&rustls::version::TLS13];
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions).map_err(own)?;
        let mut client = builder
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(own)?;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let verifier = verifier.build().map_err(unusable(CA_FILE))?;
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(versions).map_err(own)?;
        let mut server = builder
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(chain.clone(), key)
            .map_err(own)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.send_tls13_tickets = 0;
        Ok(Credentials {
            client: Arc::new(client),
            server: Arc::new(server),
            chain,
            verifier,
        })
    }

    /// Checks that an end with these credentials would let itself in now.
    ///
    /// # Errors
    /// [`ErrorKind::Credentials`]: another authority's, expired.
    pub fn verify(&self) -> Result<(), Error> {
        let none = || Error::new(ErrorKind::Credentials, "no certificate");
        let (own, between) = self.chain.split_first().ok_or_else(none)?;
        let seen = self
            .verifier
            .verify_client_cert(own, between, UnixTime::now());
        seen.map_err(unusable(CERT_FILE)).map(drop)
    }

    /// Shows itself as a client, to a server that must have a certificate for `host`.
    pub(super) fn connect(
        &self,
        host: &str,
        socket: &mut (impl Read + Write),
    ) -> Result<Box<rustls::Connection>, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|why| format!("{host:?} is no name that a certificate can be for: {why}"))?;
        let made = ClientConnection::new(Arc::clone(&self.client), name);
        let made = made.map_err(|error| error.to_string())?;
        shake(made.into(), socket)
    }

    /// Shows itself as a server, to a client that must have a certificate.
    pub(super) fn accept(
        &self,
        socket: &mut (impl Read + Write),
    ) -> Result<Box<rustls::Connection>, String> {
        let made = ServerConnection::new(Arc::clone(&self.server));
        shake(made.map_err(|error| error.to_string())?.into(), socket)
    }
}

fn shake(
    made: rustls::Connection,
    socket: &mut (impl Read + Write),
) -> Result<Box<rustls::Connection>, String> {
    let mut made = Box::new(made);
    while made.is_handshaking() {
        if let Err(error) = made.complete_io(socket) {
            // The error is told to the other end, in as many writes as that takes.
            while made.wants_write() && made.write_tls(socket).is_ok_and(|sent| sent > 0) {}
            return Err(explain(&error));
        }
    }
    match made.alpn_protocol() == Some(PROTOCOL) {
        true => Ok(made),
        false => Err("the other end speaks TLS, but not our protocol in it".to_owned()),
    }
}

/// Talks during the handshake, through TLS if there is any.
pub(super) struct Talk<'a, S> {
    pub tls: Option<&'a mut rustls::Connection>,
    pub socket: &'a mut S,
}

impl<S: Read + Write> Read for Talk<'_, S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.read(to);
        };
        loop {
            match tls.reader().read(to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            tls.complete_io(self.socket)?;
        }
    }
}

impl<S: Read + Write> Write for Talk<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.writer().write(bytes),
            None => self.socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) {
            tls.write_tls(self.socket)?;
        }
        Ok(())
    }
}

/// Explains an error of TLS, and says which end is at fault.
pub(super) fn explain(error: &io::Error) -> String {
    use rustls::{CertificateError as Bad, Error};
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => {
            format!("its certificate is not of our authority ({CA_FILE})")
        }
        Some(Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. })) => {
            format!("its certificate has expired ({error})")
        }
        Some(Error::InvalidCertificate(_)) => format!("its certificate is refused: {error}"),
        Some(Error::NoCertificatesPresented) => "it shows no certificate".to_owned(),
        Some(Error::AlertReceived(alert)) => format!("it refuses us: {alert:?}"),
        _ => error.to_string(),
    }
}

/// Returns the bytes that distinguish the other end's certificate from others.
pub(super) fn peer(connection: &rustls::Connection) -> Option<Arc<[u8]>> {
    let shown = connection.peer_certificates()?.first()?;
    Some(Arc::from(&**shown))
}

/// Makes an error for `map_err`: this cannot be used as, or for, credentials.
pub(super) fn unusable<E: std::error::Error + Send + Sync + 'static>(
    what: impl Into<Cow<'static, str>>,
) -> impl FnOnce(E) -> Error {
    move |cause| Error::because(ErrorKind::Credentials, what, cause)
}

/// Returns random bytes that nobody guesses.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let provider = rustls::crypto::ring::default_provider();
    let filled = provider.secure_random.fill(&mut bytes);
    // The error says nothing beyond that, so it is not kept as a cause.
    filled.map_err(|_: rustls::crypto::GetRandomFailed| {
        Error::new(ErrorKind::System, "the kernel gives no random numbers")
    })?;
    Ok(bytes)
}
