//! Backends of `tcp:` and `tcp+plain:` with the settings of the environment.

use super::Net;
use super::address::Address;
use super::settings::{PLAIN_VARIABLE, Security, Timing};
use super::tls::{CERT_FILE, Credentials};
use crate::{Backend, Error, ErrorKind, Met, Transport};
use std::any::Any;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tranship_sys::process::trusted_env;

/// Variable that names the directory with our credentials.
pub const CREDENTIALS_VARIABLE: &str = "TRANSHIP_TLS";

/// Backends of `tcp:` and `tcp+plain:` with the settings of the environment, shared by the whole process; made at their
/// first use.
#[derive(Debug)]
pub struct BuiltIn {
    plain: bool,
}

static BUILT_IN: [Mutex<Option<Net>>; 2] = [Mutex::new(None), Mutex::new(None)];

impl BuiltIn {
    /// Returns the backend with the credentials of [`default_credentials`].
    #[must_use]
    pub fn tls() -> BuiltIn {
        BuiltIn { plain: false }
    }

    /// Returns the backend without TLS; to other machines only if [`PLAIN_VARIABLE`] allows it.
    #[must_use]
    pub fn plain() -> BuiltIn {
        BuiltIn { plain: true }
    }

    fn net(&self) -> Result<Net, Error> {
        let mut made = BUILT_IN[usize::from(self.plain)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(net) = &*made {
            return Ok(net.clone());
        }
        let timing = Timing::default();
        let net = match self.plain {
            true => {
                let said = trusted_env(PLAIN_VARIABLE);
                let anywhere = said.is_some_and(|said| said == "trusted-network");
                Net::new(Security::Plain { anywhere }, timing)
            }
            false => default_credentials()
                .and_then(|directory| Credentials::load(&directory))
                .and_then(|credentials| Net::tls(credentials, timing)),
        };
        Ok(made.insert(net?).clone())
    }

    /// Checks an address without connecting: its form must be `HOST:PORT/NAME`, and there must be credentials that
    /// work.
    ///
    /// # Errors
    /// `InvalidEndpoint`; `Credentials` for none, or such that cannot be used.
    pub fn check(&self, address: &str) -> Result<(), Error> {
        let said = Address::parse(address);
        if said.is_ok_and(|said| said.port == 0) {
            let text = format!("{address:?}: nobody could connect to port 0: name one");
            return Err(Error::new(ErrorKind::InvalidEndpoint, text));
        }
        self.net_for(address).map(drop)
    }

    fn net_for(&self, address: &str) -> Result<Net, Error> {
        Address::parse(address).map_err(|why| Error::new(ErrorKind::InvalidEndpoint, why))?;
        self.net()
    }
}

/// Returns the directory where `tcp:` looks for credentials. It is the directory that `TRANSHIP_TLS` names, else the
/// user's (`~/.config/tranship/tls`), else the system's (`/etc/tranship/tls`). A privileged process (set-uid) uses only
/// the system's.
///
/// # Errors
/// [`ErrorKind::Credentials`] if there is none of them, with where it looked.
pub fn default_credentials() -> Result<PathBuf, Error> {
    if let Some(named) = trusted_env(CREDENTIALS_VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    let home = trusted_env("HOME").map(|home| PathBuf::from(home).join(".config"));
    let config = trusted_env("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
    let user = config.map(|config| config.join("tranship/tls"));
    let places = user.into_iter().chain([PathBuf::from("/etc/tranship/tls")]);
    for place in places.clone() {
        if place.join(CERT_FILE).exists() {
            return Ok(place);
        }
    }
    let looked: Vec<_> = places.map(|place| place.display().to_string()).collect();
    let text = format!(
        "no credentials: {CREDENTIALS_VARIABLE} is not set, and there are none in {}; `tranship cert` makes some",
        looked.join(" or ")
    );
    Err(Error::new(ErrorKind::Credentials, text))
}

impl Backend for BuiltIn {
    fn listen(&self, name: &str, met: Met) -> Result<Box<dyn Any + Send + Sync>, Error> {
        self.net_for(name)?.listen(name, met)
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        self.net_for(name)?.connect(name)
    }
}
