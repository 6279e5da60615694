//! A receiver that outlives its sender.

use crate::brief::{End, Returns};
use crate::gone::is_gone;
use tranship_core::{Domain, Error, ErrorKind, Message};

/// The receiving end of a channel between components. When the sender's component dies, the next one is waited for, if
/// the file says that it is started again.
#[derive(Debug)]
pub struct Receiver {
    from: Option<tranship_core::Receiver>,
    domain: Domain,
    told: End,
}

impl Receiver {
    pub(crate) fn new(domain: Domain, told: End) -> Receiver {
        Receiver {
            from: None,
            domain,
            told,
        }
    }

    /// Receives the next message.
    ///
    /// Waits for it, and for the sender's component while that is started again.
    ///
    /// # Errors
    /// `PeerGone` when the sender has ended in order, so that there is no further message; `PeerDied` when it died and is
    /// not started again; those of [`tranship_core::Receiver::recv`].
    pub fn recv(&mut self) -> Result<Message, Error> {
        self.receive(tranship_core::Receiver::recv)
    }

    /// Receives all messages that are there, at most `most` of them, into `into`, and returns how many.
    ///
    /// Waits for the first as [`recv`](Receiver::recv) does.
    ///
    /// # Errors
    /// Those of [`recv`](Receiver::recv), and only if no message was received.
    pub fn recv_many(&mut self, into: &mut Vec<Message>, most: usize) -> Result<usize, Error> {
        self.receive(|from| from.recv_many(into, most))
    }

    fn receive<T>(
        &mut self,
        mut receive: impl FnMut(&mut tranship_core::Receiver) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let from = match &mut self.from {
                Some(from) => from,
                none => none.insert(self.domain.open(&self.told.name)?),
            };
            match receive(from) {
                Err(error) if is_gone(&error) => {
                    self.from = None;
                    let returns = match self.told.peer {
                        Returns::Never => error.kind() == ErrorKind::NotConnected,
                        Returns::OnFailure => error.kind() != ErrorKind::PeerGone,
                        Returns::Always => true,
                    };
                    if !returns {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }
}
