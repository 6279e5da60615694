//! Link to one consumer, and the producer's rule for a consumer that takes nothing.

use crate::args::demo::ConsumerRole;
use anyhow::{Context, Result};
use std::time::Duration;
use tranship::{Buffer, DomainId, ErrorKind, Pool, Sender};

/// Longest wait of the producer for a consumer that takes nothing, before it goes on without it.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) role: ConsumerRole,
    /// Sender; none once the consumer is gone.
    sender: Option<Sender>,
    patience: Duration,
    /// The consumer was waited for in vain: it gets frames again when it has taken all that it was sent.
    behind: bool,
    pub(super) sent: u64,
    /// Frames that it was not sent.
    pub(super) missed: u64,
}

impl Lane {
    pub(super) fn new(role: ConsumerRole, sender: Sender) -> Self {
        Self {
            role,
            sender: Some(sender),
            patience: PATIENCE,
            behind: false,
            sent: 0,
            missed: 0,
        }
    }

    pub(super) fn assign(&mut self, pool: &Pool) -> Result<()> {
        let sender = self.sender.as_mut().context("a consumer that is there")?;
        sender.assign(pool).context("assigning the pool")
    }

    /// Sets the waiting time from now on; a consumer that is behind gets another chance.
    pub(super) fn wait_for(&mut self, patience: Duration) {
        self.patience = patience;
        self.behind = false;
    }

    /// Sends a frame, or counts it as missed. A consumer that died is let go.
    pub(super) fn send(&mut self, frame: &Buffer, offset: u64) -> Result<()> {
        let Some(sender) = &mut self.sender else {
            return Ok(());
        };
        if self.behind && sender.queued() == 0 {
            self.behind = false;
        }
        let patience = match self.behind {
            true => Duration::ZERO,
            false => self.patience,
        };
        match sender.send_timeout((frame.clone(), offset), patience) {
            Ok(_) => self.sent += 1,
            Err(failed) => match failed.kind() {
                ErrorKind::Full => {
                    self.missed += 1;
                    self.behind = true;
                }
                ErrorKind::PeerGone => self.sender = None,
                _ => {
                    return Err(failed.error)
                        .with_context(|| format!("sending to the {} consumer", self.role.name()));
                }
            },
        }
        Ok(())
    }

    /// Returns the consumer's domain, while it is there.
    pub(super) fn peer(&self) -> Option<DomainId> {
        self.sender.as_ref().map(|sender| sender.status().peer)
    }

    /// Frames that it has not taken yet.
    pub(super) fn queued(&self) -> u64 {
        self.sender.as_ref().map_or(0, |sender| sender.queued())
    }

    pub(super) fn is_gone(&self) -> bool {
        self.sender.is_none()
    }
}
