//! Letting go of what came, and saying so: the sender gets a word for it.
//!
//! The reference goes first and the word after it, so that who hears the word finds the memory free as far as this end is concerned.

use super::Receiver;
use crate::buffer::{Handle, Home};
use crate::error::{Error, ErrorKind, SendError};
use crate::link::descriptor;
use crate::link::message::Body;
use crate::link::shared::Assigned;
use std::ptr;
use std::sync::Arc;
use tranship_proto::BufferId;
use tranship_ring::Publish;
use tranship_sys::crash;

impl Receiver {
    /// Lets go of something that came by this channel, as dropping it does, and has the sender get `word` for it, as
    /// [`Body::Released`](crate::Body::Released) from [`try_recv_back`](crate::Sender::try_recv_back): a completion, for a sender that wants one. A buffer of either
    /// kind, an aggregate, or inline bytes: what a [`Message`](crate::Message) has as its body.
    ///
    /// The sender learns the buffer's id where its memory is shared. It is this handle that goes: if there are others, here or elsewhere, the
    /// buffer is in use as long as they are. It does not block; [`release_timeout`](Receiver::release_timeout) and
    /// [`release_async`](Receiver::release_async) wait for room.
    ///
    /// # Errors
    /// [`ErrorKind::PoolNotAssigned`](crate::ErrorKind::PoolNotAssigned) if the buffer's pool did not come by this channel, [`ErrorKind::BufferNotOwned`](crate::ErrorKind::BufferNotOwned)
    /// if it is another domain's of this process; [`ErrorKind::PoolPending`](crate::ErrorKind::PoolPending) if that pool was assigned a moment ago;
    /// [`ErrorKind::Full`](crate::ErrorKind::Full) and [`ErrorKind::PeerGone`](crate::ErrorKind::PeerGone). What was to be released comes back: dropped, it is released all the same.
    pub fn release_with(
        &mut self,
        what: impl Into<Body>,
        word: u64,
    ) -> Result<(), SendError<Body>> {
        let body = what.into();
        let name = self.name_of(&body);
        match name.and_then(|name| self.control_room().map(|()| name)) {
            Ok(name) => {
                drop(body);
                crash::point("release.after_drop");
                self.put_released(name, word);
                Ok(())
            }
            Err(error) => Err(SendError::new(error, body)),
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

    /// By what name the sender knows it, if by any.
    fn name_of(&mut self, body: &Body) -> Result<Option<BufferId>, Error> {
        self.link.domain.check_fork()?;
        let handle = match body {
            Body::Buffer(buf) => buf.handle(),
            Body::BufferMut(buf) => buf.handle(),
            Body::Inline(_) | Body::Aggregate(_) | Body::AggregateMut(_) => {
                return self.sender_is_there().map(|()| None);
            }
            Body::Released(_) => {
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
