//! The connections of one reader to all domains that have a name.

use super::{Kind, address, connect, reads};
use crate::error::Error;
use crate::link::{Opening, Receiver, Within, try_open_local};
use crate::membership::Domain;
use tranship_proto::{DomainId, Role};
use tranship_ring::broadcast::DeskRw;

/// Most writers that one question names, beside this domain.
const MOST: usize = 127;

/// Hands out a connection to each domain that has a name, those that come later included. The manager is asked for other
/// domains; a writer of this domain, and the writers of a `local:` name, are in this process.
///
/// A name that one domain has for itself gives one connection. After its end the next holder of the name is waited for.
#[derive(Debug)]
pub struct Writers {
    domain: Domain,
    name: String,
    within: Within,
    kind: Kind,
    asked: Option<(Opening<Receiver>, DeskRw)>,
    /// The writer in this process did not fit at the last look.
    unfit: bool,
    /// The writers to which this reader is connected.
    have: Vec<DomainId>,
    /// Whether other domains may have the name too.
    shared: bool,
    message_type: Option<String>,
}

impl Writers {
    /// Begins with no connection. Asks nobody.
    ///
    /// # Errors
    /// `BadArgument` for a name that cannot be; `Forked`.
    pub fn new(domain: &Domain, name: &str, kind: Kind) -> Result<Writers, Error> {
        let (name, within) = address(name)?;
        domain.core().check_fork()?;
        Ok(Writers {
            domain: domain.clone(),
            name: name.into(),
            within,
            kind,
            asked: None,
            unfit: false,
            have: Vec::new(),
            shared: false,
            message_type: None,
        })
    }

    /// Sets the type of the writers' messages, by its text. `None`: they carry bytes.
    pub fn typed(mut self, message_type: Option<String>) -> Writers {
        self.message_type = message_type;
        self
    }

    /// Returns the writers to which this reader is connected.
    pub fn connected(&self) -> &[DomainId] {
        &self.have
    }

    /// Says whether other domains may have the name too, as of the last connection.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Takes the next connection, if one is made, with the desk that was shown for it. Does not wait.
    ///
    /// # Errors
    /// As [`Domain::open`].
    pub fn try_next(&mut self) -> Result<Option<(Receiver, DeskRw)>, Error> {
        if !self.have.is_empty() && !self.shared {
            return Ok(None);
        }
        // A writer here that does not fit keeps nobody from the others.
        if !std::mem::take(&mut self.unfit) {
            let here = self.try_here();
            self.unfit = here.is_err();
            if let Some(next) = here? {
                return Ok(Some(next));
            }
        }
        if self.within == Within::Process {
            return Ok(None);
        }
        let (mut opening, desk) = match self.asked.take() {
            Some(asked) => asked,
            None => self.ask()?,
        };
        // Both an error and a connection end the question.
        let Some(receiver) = opening.try_open()? else {
            self.asked = Some((opening, desk));
            return Ok(None);
        };
        self.note(&receiver);
        Ok(Some((receiver, desk)))
    }

    /// Takes a connection to a writer of this process, if there is one and this reader is not connected to it.
    ///
    /// # Errors
    /// `ChannelBind` if the types differ; `BadArgument` if the name is of another kind; `Limit`; `System`.
    pub fn try_here(&mut self) -> Result<Option<(Receiver, DeskRw)>, Error> {
        let core = self.domain.core();
        let mut shown = None;
        let options = || {
            let (fd, desk) = DeskRw::create()?;
            shown = Some(desk);
            let message_type = self.message_type.as_deref();
            Ok(reads(fd, self.kind, Vec::new(), message_type))
        };
        let name = (self.name.as_str(), self.within);
        let end = try_open_local(core, name, (Role::Sink, &self.have), options)?;
        let (Some(end), Some(desk)) = (end, shown) else {
            return Ok(None);
        };
        let receiver = end.into_receiver()?;
        self.note(&receiver);
        Ok(Some((receiver, desk)))
    }

    fn note(&mut self, receiver: &Receiver) {
        let link = receiver.link();
        self.shared = link.shared;
        self.have.push(link.peer);
        if !self.shared {
            self.asked = None;
        }
    }

    /// Notes that the connection to a writer has ended. The writer's domain may take the name again, so the manager is
    /// asked anew.
    pub fn ended(&mut self, writer: DomainId) {
        self.have.retain(|have| *have != writer);
        self.asked = None;
    }

    fn ask(&self) -> Result<(Opening<Receiver>, DeskRw), Error> {
        let (fd, desk) = DeskRw::create()?;
        // The manager takes a bounded number. Those that broke a rule longest ago are the first to be asked again.
        let mut have = self.have[self.have.len().saturating_sub(MOST)..].to_vec();
        // A writer of this domain is found without the manager.
        let own = self.domain.id();
        if !have.contains(&own) {
            have.push(own);
        }
        let options = reads(fd, self.kind, have, self.message_type.as_deref());
        Ok((connect(&self.domain, &self.name, options), desk))
    }
}
