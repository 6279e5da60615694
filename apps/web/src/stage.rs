//! A stage: what one component does with one message. The same stages are linked by channels, each in a process of its
//! own, or by calls in one process.

use crate::word::Word;
use std::time::Duration;
use tranship::{Body, Inline};

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum To {
    /// The component of the connections.
    Front,
    /// HTTP/1.1.
    Http,
    /// Rules that hold for every request.
    Guard,
    /// The table of paths.
    Route,
    /// Replies that are kept.
    Cache,
    /// Files.
    Static,
    /// Handlers.
    Dynamic,
    /// Applications that speak FastCGI.
    Fastcgi,
    /// The access log.
    Log,
    /// TCP/IP of the clients' connections, where the kernel's is not used.
    Tcpip,
    /// The network device below it.
    Device,
}

/// All of them, by their names in the program's file.
pub const NAMES: [(To, &str); 11] = [
    (To::Front, "front"),
    (To::Http, "http"),
    (To::Guard, "guard"),
    (To::Route, "route"),
    (To::Cache, "cache"),
    (To::Static, "static"),
    (To::Dynamic, "dynamic"),
    (To::Fastcgi, "fastcgi"),
    (To::Log, "log"),
    (To::Tcpip, "tcpip"),
    (To::Device, "device"),
];

impl To {
    /// Returns the place of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<To> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(to, _)| *to)
    }

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }
}

/// Messages that a stage sends.
#[derive(Debug, Default)]
pub struct Outs(pub Vec<(To, Word, Body)>);

impl Outs {
    /// Sends a message.
    pub fn send(&mut self, to: To, word: Word, body: Body) {
        self.0.push((to, word, body));
    }

    /// Answers a request with a status and the front's page for it.
    pub fn answer(&mut self, word: Word, status: u16) {
        self.send(To::Front, word.with_status(status), nothing());
    }
}

/// What a component does with a message.
pub trait Stage {
    /// Handles one message. `from` is where it came from.
    fn take(&mut self, from: To, word: Word, body: Body, outs: &mut Outs);

    /// Returns the number of messages that are taken together, before what they lead to is sent. A process that dies
    /// loses that many.
    fn batch(&self) -> usize {
        32
    }

    /// Does what is left to do before it sleeps. Returns how long it may sleep at most; `None`: until a message comes.
    fn idle(&mut self, outs: &mut Outs) -> Option<Duration> {
        let _ = outs;
        None
    }
}

/// Returns a body without bytes.
#[must_use]
pub fn nothing() -> Body {
    match Inline::try_from(&[][..]) {
        Ok(none) => Body::Inline(none),
        Err(_) => unreachable!("no byte is too long"),
    }
}
