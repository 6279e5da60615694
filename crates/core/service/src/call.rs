//! A call in flight.

use crate::calls::Calls;
use crate::error::CallError;
use crate::word::{Answer, CallId};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tranship_core::{Error, ErrorKind, Message};

/// A call in flight. Dropping it cancels it: the service is told that no caller waits any more.
#[must_use = "a call that is dropped is cancelled"]
#[derive(Debug)]
pub struct Call {
    calls: Arc<Calls>,
    id: CallId,
    over: bool,
}

impl Call {
    pub(crate) fn new(calls: Arc<Calls>, id: CallId) -> Call {
        Call {
            calls,
            id,
            over: false,
        }
    }

    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// Waits for the answer, for ever.
    ///
    /// # Errors
    /// [`CallError::Failed`] with the service's own error; `PeerDied`, `PeerGone`: the service is over.
    pub fn wait(self) -> Result<Message, CallError<Infallible>> {
        let answer = self.calls.answer(self.id, None);
        // Without a deadline there is an answer, or an error.
        let answer = answer.and_then(|answer| answer.ok_or(ErrorKind::TimedOut.into()));
        self.end(answer)
    }

    /// Waits for the answer, for awaiting in any runtime.
    ///
    /// # Errors
    /// As [`wait`](Call::wait).
    pub async fn wait_async(self) -> Result<Message, CallError<Infallible>> {
        let answer = self.calls.answer_async(self.id).await;
        self.end(answer)
    }

    /// Gives the answer, if it is there by then; else the call itself.
    ///
    /// # Errors
    /// The call, to be waited for again.
    pub fn wait_until(
        self,
        deadline: Instant,
    ) -> Result<Result<Message, CallError<Infallible>>, Call> {
        match self.calls.answer(self.id, Some(deadline)) {
            Ok(None) => Err(self),
            Ok(Some(answer)) => Ok(self.end(Ok(answer))),
            Err(error) => Ok(self.end(Err(error))),
        }
    }

    pub(crate) fn end(
        mut self,
        answer: Result<(Answer, Message), Error>,
    ) -> Result<Message, CallError<Infallible>> {
        // After an error there is no channel left to cancel it on.
        self.over = true;
        let (how, message) = answer.map_err(CallError::Broken)?;
        let broken = |kind, what: &str| {
            let text = format!("{} {what}", self.calls.place());
            Err(CallError::Broken(Error::new(kind, text)))
        };
        match how {
            Answer::Done => Ok(message),
            Answer::Failed => Err(CallError::Failed(message)),
            Answer::Dropped => broken(ErrorKind::PeerDied, "let the request go without an answer"),
            Answer::Late => broken(
                ErrorKind::TimedOut,
                "had no worker for the request before its time was over",
            ),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.over {
            self.calls.abandon(self.id);
        }
    }
}
