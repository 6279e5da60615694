//! Releases that the sender is told of.
//!
//! The reference goes first and the message after it: when the sender gets the message, this end holds the memory no
//! more.

use super::Receiver;
use crate::buffer::{Handle, Home};
use crate::error::{Error, ErrorKind, SendError};
use crate::link::descriptor;
use crate::link::message::Name;
use crate::link::shared::Assigned;
use std::ptr;
use std::sync::Arc;
use tranship_proto::BufferId;
use tranship_ring::Publish;
use tranship_sys::crash;

impl Receiver {
    /// Sends a few bytes back in a line.
    pub(in crate::link) fn say(&mut self, bytes: &[u8], word: u64) -> Result<(), Error> {
        self.sender_is_there()?;
        self.control_room()?;
        let line = descriptor::inline_line(bytes, word);
        let _ = self.control.push(self.control_lines, Publish::SeqCst, line);
        self.link.notify();
        Ok(())
    }

    /// Releases a payload, and tells the sender.
    pub(in crate::link) fn release<T>(
        &mut self,
        name: Name,
        what: T,
        word: u64,
    ) -> Result<(), SendError<T>> {
        let name = self.name_of(name);
        match name.and_then(|name| self.control_room().map(|()| name)) {
            Ok(name) => {
                drop(what);
                crash::point("release.after_drop");
                self.put_released(name, word);
                Ok(())
            }
            Err(error) => Err(SendError::new(error, what)),
        }
    }

    /// Tells the sender, for a carrier, that something was released at the other end.
    pub(in crate::link) fn tell_released(&mut self, word: u64) -> Result<(), Error> {
        self.sender_is_there()?;
        self.control_room()?;
        self.put_released(None, word);
        Ok(())
    }

    // Crash: released, and nobody was told: the sender hears of our end.
    fn put_released(&mut self, name: Option<BufferId>, word: u64) {
        let line = descriptor::released_line(name, word);
        let _ = self.control.push(self.control_lines, Publish::SeqCst, line);
        self.link.notify();
    }

    /// Returns the name by which the sender knows the payload, if there is one.
    fn name_of(&mut self, name: Name) -> Result<Option<BufferId>, Error> {
        self.link.domain.check_fork()?;
        let handle = match name {
            Name::Buffer(handle) => handle,
            Name::None => return self.sender_is_there().map(|()| None),
            Name::Gone => {
                let text = "what is released already cannot be released";
                return Err(Error::new(ErrorKind::BadArgument, text));
            }
        };
        if let Some(store) = &self.store {
            let name = (!store.carried).then(|| handle.wire_id());
            return self.sender_is_there().map(|()| name);
        }
        if !handle.is_of(&self.link.domain) {
            let text = "the buffer belongs to another domain of this process, and only that one may release it";
            return Err(Error::new(ErrorKind::BufferNotOwned, text));
        }
        self.sender_is_there()?;
        self.shared_name(handle)
    }

    /// A copy has a name of this domain's own.
    fn shared_name(&mut self, handle: Handle) -> Result<Option<BufferId>, Error> {
        let id = handle.wire_id();
        let at = self.assigned(id.pool())?;
        let is_home = |at: &usize| match (&self.ins[*at].assignment.side, handle.home()) {
            (Assigned::Own(own), Home::Own(home)) => ptr::eq(Arc::as_ptr(own), home.as_ptr()),
            (Assigned::Foreign(pool), Home::Foreign(home)) => {
                ptr::eq(Arc::as_ptr(pool), home.as_ptr())
            }
            _ => false,
        };
        match (at.filter(is_home), handle.home()) {
            (Some(_), _) => Ok(Some(id)),
            (None, Home::Own(_)) => Ok(None),
            (None, Home::Foreign(_)) => {
                let text = format!(
                    "pool {} is not assigned to this channel: the buffer came by another one; release it there, or drop it",
                    id.pool()
                );
                Err(Error::new(ErrorKind::PoolNotAssigned, text))
            }
        }
    }
}
