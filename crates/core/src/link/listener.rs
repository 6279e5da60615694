//! An exported name: everyone who connects gets a link of its own.

use super::open::{End, checked_name};
use super::{Receiver, Sender};
use crate::domain::{DomainCore, lock};
use crate::error::DomainError;
use crate::options::LinkOptions;
use std::time::{Duration, Instant};
use tranship_proto::{Event, ExportId, Request, Role};

/// A name that others connect to.
#[derive(Debug)]
pub struct Listener {
    domain: &'static DomainCore,
    export: ExportId,
    name: String,
    role: Role,
    options: LinkOptions,
}

impl Listener {
    pub(crate) fn new(
        domain: &'static DomainCore,
        name: &str,
        role: Role,
        options: LinkOptions,
    ) -> Result<Listener, DomainError> {
        checked_name(name)?;
        let (event, _) = domain.call(
            |req| Request::Export {
                req,
                name: name.into(),
                role,
            },
            &[],
            None,
        )?;
        let Event::Exported { export, .. } = event else {
            return Err(DomainError::Protocol(
                "an answer to Export that is none".into(),
            ));
        };
        // Connections that another thread's turn took in the meantime wait in the entry that it made.
        lock(&domain.exports).entry(export).or_default().what = Some((name.into(), role));
        Ok(Listener {
            domain,
            export,
            name: name.into(),
            role,
            options,
        })
    }

    /// The role that this side has in every link.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The next connection, as its sending end. For a listener with [`Role::Source`].
    pub fn accept_sender(&self) -> Result<Sender, DomainError> {
        self.accept_sender_within(None)
    }

    /// The same, waiting at most that long.
    pub fn accept_sender_within(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Sender, DomainError> {
        match self.accept(timeout.into())? {
            End::Source(sender) => Ok(sender),
            End::Sink(_) => Err(DomainError::Protocol(
                "this listener receives: use accept_receiver".into(),
            )),
        }
    }

    /// The next connection, as its receiving end. For a listener with [`Role::Sink`].
    pub fn accept_receiver(&self) -> Result<Receiver, DomainError> {
        self.accept_receiver_within(None)
    }

    /// The same, waiting at most that long.
    pub fn accept_receiver_within(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Receiver, DomainError> {
        match self.accept(timeout.into())? {
            End::Sink(receiver) => Ok(receiver),
            End::Source(_) => Err(DomainError::Protocol(
                "this listener sends: use accept_sender".into(),
            )),
        }
    }

    fn accept(&self, timeout: Option<Duration>) -> Result<End, DomainError> {
        let started = Instant::now();
        let deadline = timeout.map(|t| started + t);
        loop {
            let seen = self.domain.wake();
            let turned = self.domain.turn();
            let next = lock(&self.domain.exports)
                .get_mut(&self.export)
                .and_then(|e| e.incoming.pop_front());
            if let Some(incoming) = next {
                match self.domain.accept(&self.name, incoming, &self.options) {
                    // Who connected is gone again: the next one, please.
                    Err(DomainError::Refused(refusal)) => {
                        tracing::debug!(name = self.name, %refusal, "accept")
                    }
                    other => return other,
                }
                continue;
            }
            match turned {
                // The manager may come back, and with it our name.
                Ok(()) | Err(DomainError::ManagerAway) => {}
                Err(error) => return Err(error),
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Err(DomainError::TimedOut {
                    waited_ms: crate::domain::millis(started.elapsed()),
                });
            }
            self.domain.wait_news(seen, deadline);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.domain.fork.is_child() {
            return;
        }
        lock(&self.domain.exports).remove(&self.export);
        let _ = self.domain.tell(
            &Request::Unexport {
                export: self.export,
            },
            &[],
        );
    }
}
