//! Question to the server: its request, its memory, and the caller that waits for the answer.

use crate::data::{Own, pass_on};
use crate::lease::Moment;
use crate::transient::is_barred;
use crate::wire::{self, Ask};
use crate::{Data, Done, Fault, Job, Op};
use std::time::Duration;
use tranship_core::{Aggregate, Buffer, Error, ErrorKind, Pool, Sender};

/// Question of a caller.
pub(super) struct Question {
    ask: Ask,
    pub op: Op,
    len: usize,
    memory: Memory,
    done: Done,
    /// Writes that a flush covers.
    pub covers: u64,
    /// Time when it was asked last.
    pub asked: Moment,
}

enum Memory {
    /// Memory that the answer fills, if any.
    For(Data),
    /// Data of a write.
    Brought(Data),
    /// Data of a write as a message, kept until there is an answer: it may have to be asked again.
    Sealed(Buffer),
    /// Data of a write that another domain has, with this end's head: asked again as it is.
    Passed(Buffer, Aggregate),
}

impl Question {
    pub fn new(job: Job) -> Question {
        let Job {
            request,
            data,
            done,
        } = job;
        let (op, len) = (request.op, request.len as usize);
        let memory = match op {
            Op::Write if len > 0 => Memory::Brought(data),
            // It would not be written to; its content may go.
            Op::Read if matches!(data, Data::Shared(_)) => Memory::For(Data::Room(data.len())),
            _ => Memory::For(data),
        };
        Question {
            ask: Ask::Do(request),
            op,
            len,
            memory,
            done,
            covers: 0,
            asked: Moment::default(),
        }
    }

    /// Asks, if there is room for it. `copies`: other domains' data cannot be passed on over this connection.
    pub fn send(
        &mut self,
        number: u64,
        to: &mut Sender,
        pool: &Pool,
        copies: &mut bool,
    ) -> Result<(), Error> {
        let word = |len| wire::word(number, len);
        if let Some(both) = self.as_it_came(pool, *copies)? {
            match to.try_send((both, word(self.len))) {
                Err(refused) if is_barred(refused.error.kind()) && !to.status().peer_gone => {
                    *copies = true;
                }
                sent => return sent.map(drop).map_err(|refused| refused.error),
            }
        }
        self.seal(pool)?;
        match &self.memory {
            Memory::Sealed(message) => {
                let sent = to.try_send((message.clone(), word(self.len)));
                sent.map(drop).map_err(|refused| refused.error)
            }
            _ => {
                let sent = to.try_send((&wire::encode(&self.ask)[..], word(0)));
                sent.map(drop).map_err(|refused| refused.error)
            }
        }
    }

    /// Returns a message of a write's data as it came from another domain.
    fn as_it_came(&mut self, pool: &Pool, copies: bool) -> Result<Option<Aggregate>, Error> {
        match &self.memory {
            Memory::Brought(Data::Shared(came)) if !copies && came.len() == self.len => {
                let both = pass_on(came, &wire::encode(&self.ask), pool)?;
                self.memory = Memory::Passed(came.clone(), both.clone());
                Ok(Some(both))
            }
            Memory::Passed(_, both) if !copies => Ok(Some(both.clone())),
            _ => Ok(None),
        }
    }

    /// Makes a message of a write's data: in place, if it is a buffer that can be sent.
    fn seal(&mut self, pool: &Pool) -> Result<(), Error> {
        if let Memory::Passed(came, _) = &self.memory {
            self.memory = Memory::Brought(Data::Shared(came.clone()));
        }
        let Memory::Brought(data) = &mut self.memory else {
            return Ok(());
        };
        let wrong = |_: Fault| Error::from(ErrorKind::BadArgument);
        if !data.is_of(pool) {
            let mut copy = Data::Own(Own::new(pool, self.len, Duration::ZERO)?);
            copy.copy_from(data, self.len).map_err(wrong)?;
            *data = copy;
        }
        if let Data::Own(own) = std::mem::replace(data, Data::None) {
            let sealed = own.seal(self.len, &wire::encode(&self.ask));
            self.memory = Memory::Sealed(sealed.map_err(wrong)?);
        }
        Ok(())
    }

    /// Returns whether as much data has come as was asked for.
    pub fn fits(&self, result: &Result<Vec<u32>, Fault>, data: Option<&Buffer>) -> bool {
        let wants = match (self.op, result) {
            (Op::Read, Ok(_)) => self.len,
            _ => 0,
        };
        data.map_or(0, Buffer::len) == wants
    }

    /// Ends the question with its answer.
    pub fn end(self, mut result: Result<Vec<u32>, Fault>, came: Option<Buffer>) {
        let data = match (self.memory, came) {
            (Memory::For(Data::None | Data::Room(_)), Some(came)) => Data::Shared(came),
            (Memory::For(mut data), Some(came)) => {
                let copied = data.copy_from(&Data::Shared(came), self.len);
                result = result.and_then(|sums| copied.map(|()| sums));
                data
            }
            (Memory::For(data) | Memory::Brought(data), None) => data,
            _ => Data::None,
        };
        (self.done)(data, result);
    }
}
