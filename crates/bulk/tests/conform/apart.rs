//! `tcp` on this machine, each process with a port of its own: a name begins with the number of the one that creates it.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;
use tranship_bulk::Error;
use tranship_transport::net::{self, Timing, certificate};
use tranship_transport::{Backend, Bytes, Listener, Net, Transport};

/// As PEM: the authority, the certificate, its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Credentials([String; 3]);

impl Credentials {
    pub fn new() -> Credentials {
        let day = Duration::from_secs(86400);
        let ca = certificate::authority("tests", day).expect("authority");
        let own = certificate::issue(&ca, "tests", &["127.0.0.1".to_owned()], day).expect("issue");
        Credentials([ca.cert, own.cert, own.key])
    }
}

#[derive(Debug)]
pub struct Apart {
    net: Net,
    pub at: SocketAddr,
    others: Mutex<Vec<Option<SocketAddr>>>,
}

impl Apart {
    /// With credentials, over TLS.
    pub fn new(credentials: Option<Credentials>) -> Apart {
        // A connection is lost by a death and nothing else, and that is to be learned soon.
        let timing = Timing {
            beat: Duration::from_millis(50),
            silence: Duration::from_secs(600),
            grace: Duration::from_millis(100),
            acquaintance: Duration::from_secs(60),
            ..Timing::default()
        };
        let net = match credentials {
            None => Net::plain(timing),
            Some(Credentials([ca, cert, key])) => {
                let own = net::Credentials::new(ca.as_bytes(), cert.as_bytes(), key.as_bytes());
                Net::tls(own.expect("credentials"), timing)
            }
        };
        let net = net.expect("net");
        let at = net.open("127.0.0.1:0".parse().expect("address"));
        Apart {
            net,
            at: at.expect("open"),
            others: Mutex::default(),
        }
    }

    pub fn others_are_at(&self, places: Vec<Option<SocketAddr>>) {
        *self.others.lock().expect("others") = places;
    }
}

impl Backend for Apart {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        self.net.listen(&format!("{}/{name}", self.at))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        let creator = name
            .split('-')
            .next()
            .and_then(|number| number.parse().ok());
        let creator: usize = creator.expect("a number");
        let at = self.others.lock().expect("others")[creator].expect("it listens");
        self.net.connect(&format!("{at}/{name}"))
    }

    fn bytes(&self) -> Bytes {
        Bytes::Carried
    }
}
