//! Channels whose other end is elsewhere. A carrier has one end of a channel inside this process, the program has the
//! other.
//!
//! ```text
//!  program ─ Sender ══ring══ Outlet ─ carrier ~~~~ another machine ~~~~ carrier ─ Inlet ══ring══ Receiver ─ program
//! ```
//!
//! NOT here: how bytes travel.

use super::feed::Feed;
use super::open::End;
use crate::domain::DomainCore;
use crate::error::{Error, ErrorKind};
use crate::options::ChannelOptions;
use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tranship_proto::Role;

/// Carries channels to places without shared memory: the addresses `SCHEME:REST` of some schemes.
///
/// ```
/// # use tranship_core as tranship;
/// use std::any::Any;
/// use std::fs::File;
/// use std::io::Write;
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
/// use tranship::carrier::{Carrier, Driver, Ends, Handed, Outlet, add_to};
/// use tranship::{Domain, Error, ErrorKind, Sender, error};
///
/// /// `file:PATH`: what is sent goes into a file, by the sender's own thread.
/// #[derive(Debug)]
/// struct Files;
///
/// /// The channel's other end, until it is over; where its messages go, and how many have.
/// struct Writer(Mutex<Option<(Outlet, File, u64)>>);
///
/// impl Driver for Writer {
///     fn stir(&self) {
///         let Ok(mut state) = self.0.try_lock() else { return }; // the thread that has it writes
///         while let Some((outlet, file, written)) = &mut *state {
///             match outlet.try_take() {
///                 Ok(Some(message)) => {
///                     file.write_all(&message.to_vec()).unwrap(); // or `outlet.end` with the reason
///                     *written += 1;
///                     outlet.acknowledge(*written);
///                 }
///                 Ok(None) => break,
///                 Err(_) => *state = None, // the program has closed it, and all is written
///             }
///         }
///     }
///     fn look(&self) {
///         self.stir();
///     }
///     fn wait(&self, _: Duration, _: &dyn Fn() -> bool) {
///         self.stir();
///     }
/// }
///
/// impl Carrier for Files {
///     fn schemes(&self) -> &[&str] {
///         &["file"]
///     }
///     fn listen(&self, _: &str, _: &str, _: Ends) -> Result<Box<dyn Any + Send + Sync>, Error> {
///         Err(Error::new(ErrorKind::InvalidEndpoint, "nobody connects to a file: open a sender"))
///     }
///     fn open(&self, _: &str, path: &str, ends: &Ends) -> Result<Handed, Error> {
///         let file = File::create(path).map_err(error::system("open"))?;
///         let (outlet, mut handed) = ends.sending(path, 1 << 20)?;
///         handed.drive(Arc::new(Writer(Mutex::new(Some((outlet, file, 0))))));
///         Ok(handed)
///     }
/// }
///
/// let domain = Domain::embedded()?;
/// add_to(&domain, Arc::new(Files));
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("log");
/// # let path = path.to_str().ok_or("a path")?;
/// let mut sender = domain.open::<Sender>(&format!("file:{path}"))?;
/// sender.send(b"hello, ")?;
/// sender.send(b"file")?;
/// drop(sender); // waits until all is there
/// assert_eq!(std::fs::read(path)?, b"hello, file");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Carrier: Send + Sync + Debug {
    /// Returns the schemes, without the colon, in small letters.
    fn schemes(&self) -> &[&str];
    /// Listens at `SCHEME:REST`, and [hands out](Ends::hand_out) an end for each connection, until the returned value
    /// is dropped.
    ///
    /// # Errors
    /// `InvalidEndpoint`; `NameTaken` for a place that cannot be had; any other error that prevents listening. It does
    /// not block.
    fn listen(
        &self,
        scheme: &str,
        rest: &str,
        ends: Ends,
    ) -> Result<Box<dyn Any + Send + Sync>, Error>;
    /// Connects to the listening end at `SCHEME:REST`. Waits for it as long as the options say ([`Ends::timeout`]) and
    /// the program [wants it](Ends::is_wanted).
    ///
    /// # Errors
    /// `TimedOut`; `SameRole`; any other error that prevents the connection.
    fn open(&self, scheme: &str, rest: &str, ends: &Ends) -> Result<Handed, Error>;
}

/// Makes a program's ends for a carrier.
#[derive(Clone)]
pub struct Ends {
    pub(crate) domain: DomainCore,
    pub(crate) address: String,
    pub(crate) role: Role,
    pub(crate) options: ChannelOptions,
    /// The feed of a listener.
    pub(crate) feed: Option<Arc<Feed>>,
    /// Alive as long as a caller awaits the end that is being opened.
    pub(crate) asker: Option<Weak<()>>,
}

/// The program's end, before the program gets it.
pub struct Handed(pub(crate) End);

impl Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ends { address, role, .. } = self;
        f.debug_struct("Ends")
            .field("address", address)
            .field("role", role)
            .finish_non_exhaustive()
    }
}

impl Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handed")
    }
}

impl Ends {
    /// Returns whether the program sends over the channel. Otherwise it receives.
    pub fn sends(&self) -> bool {
        self.role == Role::Source
    }

    /// Returns the time that opening may take. `None`: for ever.
    pub fn timeout(&self) -> Option<Duration> {
        self.options.timeout
    }

    /// Whether a caller still waits for the end that is being opened.
    pub fn is_wanted(&self) -> bool {
        let asker = self.asker.as_ref();
        asker.is_none_or(|asker| asker.strong_count() > 0)
    }

    /// Returns how many messages the program's end holds.
    pub fn lines(&self) -> u32 {
        self.options.lines
    }

    /// Returns the whole address, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Gives an end to the next caller that accepts.
    ///
    /// Does not block.
    ///
    /// # Errors
    /// `System` if an accepting thread cannot be woken.
    pub fn hand_out(&self, end: Handed) -> Result<(), Error> {
        if !self.feed.as_ref().is_some_and(|feed| feed.put(end.0)) {
            let text = format!("too many wait at {} to be accepted", self.address);
            return Err(Error::new(ErrorKind::Limit, text));
        }
        self.domain.tasks.has_news();
        self.domain.tasks.tell_news();
        Ok(())
    }
}
