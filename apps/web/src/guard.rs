//! Rules that hold for every request, wherever its path leads.

use crate::request::{Request, copy_record};
use crate::stage::{Outs, Stage, To};
use crate::word::Word;
use tranship::Body;

/// The component.
#[derive(Debug, Default)]
pub struct Guard {
    record: Vec<u8>,
    logs: bool,
}

impl Guard {
    /// Makes the component. `logs`: requests are shown to the access log.
    #[must_use]
    pub fn new(logs: bool) -> Guard {
        Guard {
            record: Vec::new(),
            logs,
        }
    }

    /// Says whether a request may pass; else the status.
    fn judge(&self) -> Result<(), u16> {
        let request = Request::read(&self.record).ok_or(500u16)?;
        let mut parts = request.path.split(|byte| *byte == b'/');
        // A part that begins with a dot is hidden, or leads out of the folder.
        match parts.any(|part| part.first() == Some(&b'.')) {
            true => Err(404),
            false => Ok(()),
        }
    }
}

impl Stage for Guard {
    fn take(&mut self, _: To, word: Word, body: Body, outs: &mut Outs) {
        if !copy_record(&body, &mut self.record) {
            return outs.answer(word, 500);
        }
        if self.logs
            && let Some(shared) = body.share()
        {
            outs.send(To::Log, word, shared);
        }
        match self.judge() {
            Ok(()) => outs.send(To::Route, word, body),
            Err(status) => outs.answer(word, status),
        }
    }
}
