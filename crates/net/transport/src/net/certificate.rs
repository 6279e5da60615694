//! An authority of one's own and certificates that it signs, for a start. A site that already has an authority uses
//! that one.

use super::tls::unusable;
use super::{CA_FILE, CERT_FILE, KEY_FILE};
use crate::{Error, ErrorKind};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::ServerName;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The authority's key, in its own directory and nowhere else.
pub const CA_KEY_FILE: &str = "ca-key.pem";
/// Largest difference of clocks.
const SLACK: Duration = Duration::from_secs(3600);

/// PEM text of a certificate and of its key.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// The private key of the certificate.
    pub key: String,
}

fn params(names: &[String], common: &str, life: Duration) -> Result<CertificateParams, Error> {
    let made = CertificateParams::new(names.to_vec());
    let mut params = made.map_err(unusable(format!("{names:?}")))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    let now = SystemTime::now();
    params.not_before = (now - SLACK).into();
    params.not_after = (now + life).into();
    Ok(params)
}

fn key() -> Result<KeyPair, Error> {
    KeyPair::generate().map_err(unusable("a new key"))
}

/// Creates an authority: its certificate and its key.
///
/// # Errors
/// [`ErrorKind::Credentials`] if the key cannot be made.
pub fn authority(name: &str, life: Duration) -> Result<Issued, Error> {
    let mut params = params(&[], name, life)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = key()?;
    let cert = params.self_signed(&key).map_err(unusable(CA_FILE))?;
    Ok(Issued {
        cert: cert.pem(),
        key: key.serialize_pem(),
    })
}

/// Creates a certificate for a machine or a program: for connecting, and for being connected to under these names and
/// addresses.
///
/// # Errors
/// [`ErrorKind::Credentials`] for an authority that cannot be used, [`ErrorKind::BadArgument`] for a name that no certificate can
/// be for.
pub fn issue(
    authority: &Issued,
    name: &str,
    addresses: &[String],
    life: Duration,
) -> Result<Issued, Error> {
    let ca = KeyPair::from_pem(&authority.key).map_err(unusable(CA_KEY_FILE))?;
    let issuer = Issuer::from_ca_cert_pem(&authority.cert, ca).map_err(unusable(CA_FILE))?;
    let names: Vec<String> = std::iter::once(name.to_owned())
        .chain(addresses.iter().cloned())
        .collect();
    for name in &names {
        if ServerName::try_from(name.as_str()).is_err() {
            let text = format!("`{name}` is neither a DNS name nor an IP address");
            return Err(Error::new(ErrorKind::BadArgument, text));
        }
    }
    let mut params = params(&names, name, life)?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = key()?;
    let signed = params.signed_by(&key, &issuer);
    let cert = signed.map_err(unusable(CERT_FILE))?;
    Ok(Issued {
        cert: cert.pem(),
        key: key.serialize_pem(),
    })
}

/// Makes an authority in a directory: `ca.pem` and `ca-key.pem`, which nobody else may read.
///
/// # Errors
/// As [`authority`]; [`ErrorKind::System`] with the file that cannot be written: nothing is overwritten.
pub fn init(directory: &Path, name: &str, life: Duration) -> Result<(), Error> {
    let made = authority(name, life)?;
    make_directory(directory)?;
    write(&directory.join(CA_KEY_FILE), &made.key)?;
    write(&directory.join(CA_FILE), &made.cert)
}

/// Makes credentials in a directory, signed by the authority in another: `ca.pem`, `cert.pem` and `key.pem`, all of
/// mode 600.
///
/// # Errors
/// As [`issue`], with the authority's file that cannot be read; [`ErrorKind::System`] with the file that cannot be written:
/// nothing is overwritten.
pub fn issue_into(
    authority: &Path,
    name: &str,
    addresses: &[String],
    life: Duration,
    to: &Path,
) -> Result<(), Error> {
    let read = |name: &str| {
        let path = authority.join(name);
        std::fs::read_to_string(&path).map_err(unusable(path.display().to_string()))
    };
    let ca = Issued {
        cert: read(CA_FILE)?,
        key: read(CA_KEY_FILE)?,
    };
    let made = issue(&ca, name, addresses, life)?;
    make_directory(to)?;
    write(&to.join(KEY_FILE), &made.key)?;
    write(&to.join(CERT_FILE), &made.cert)?;
    match std::fs::read_to_string(to.join(CA_FILE)) {
        Ok(there) if there == ca.cert => Ok(()),
        _ => write(&to.join(CA_FILE), &ca.cert),
    }
}

fn make_directory(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let made = builder.create(path);
    made.map_err(tranship_error::system(path.display().to_string()))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(tranship_error::system(path.display().to_string()))
}
