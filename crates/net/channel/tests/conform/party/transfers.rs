//! Transfers over channels: sent, delivered, sent back, released.

use super::*;

impl Party {
    pub(super) fn send(
        &mut self,
        op: &Op,
        channel: ChannelId,
        expected: &Result<Outcome, u16>,
    ) -> Result<Said, Said> {
        if *expected == Err(ErrorKind::PeerGone.number()) {
            let to = self.sender(channel)?;
            let gone = until(|| to.status().peer_gone.then_some(()));
            gone.ok_or_else(|| wrong("it does not hear of the end"))?;
        }
        let carried = self.way == Way::Carried && expected.is_ok();
        let again = |kind: ErrorKind| {
            kind == ErrorKind::PoolPending || (carried && kind == ErrorKind::Full)
        };
        if expected.is_ok() {
            self.agree(op, channel);
        }
        let since = Instant::now();
        loop {
            match self.send_once(op, channel)? {
                Ok(()) => return Ok(Said::Done),
                Err(error) if again(error.kind()) && since.elapsed() < LONG => {
                    std::thread::yield_now();
                }
                Err(error) => return Err(says(&error)),
            }
        }
    }

    /// Says that the receiver may read the pools of what is sent: at level `none` a send says so to one domain only.
    fn agree(&mut self, op: &Op, channel: ChannelId) {
        let buffers = match op {
            Op::Send { buffer, .. } | Op::Move { buffer, .. } => std::slice::from_ref(buffer),
            Op::SendAll { buffers, .. } | Op::MoveAll { buffers, .. } => buffers,
            _ => return,
        };
        let Some(to) = self.senders.get_mut(&channel) else {
            return;
        };
        let pools = buffers.iter().filter_map(|b| self.pools.get(&b.pool));
        for own in pools.filter(|own| own.pool.trust() == Trust::None) {
            // The send says what was wrong, or waits for the consent.
            let _ = to.try_assign(&own.pool);
        }
    }

    pub(super) fn send_once(
        &mut self,
        op: &Op,
        channel: ChannelId,
    ) -> Result<Result<(), Error>, Said> {
        match op {
            Op::Inline { word, .. } => {
                let to = self.sender(channel)?;
                let sent = to.try_send((&[*word], u64::from(*word)));
                Ok(sent.map(drop).map_err(|failed| failed.error))
            }
            Op::Send {
                buffer, keep, word, ..
            } => {
                let handle = match keep {
                    true => self.handle(*buffer)?,
                    // The last handle goes over, none stays behind.
                    false => self
                        .take_shared(*buffer)
                        .ok_or_else(|| wrong("no shared buffer"))?,
                };
                let sent = self.sender(channel)?.try_send((handle, u64::from(*word)));
                Ok(sent.map(drop).map_err(|failed| {
                    if !keep {
                        self.keep_shared(*buffer, failed.unsent.0);
                    }
                    failed.error
                }))
            }
            Op::Move { buffer, word, .. } => {
                let buf = self.take_sole(*buffer)?;
                let to = self.sender(channel)?;
                let sent = to.try_send((buf, u64::from(*word)));
                Ok(sent.map(drop).map_err(|failed| {
                    self.held.insert(*buffer, Held::Sole(failed.unsent.0));
                    failed.error
                }))
            }
            Op::SendAll { buffers, word, .. } => {
                let mut all = Aggregate::new();
                for buffer in buffers {
                    let handle = self.handle(*buffer)?;
                    all.push_back(handle)
                        .map_err(|failed| says(&failed.error))?;
                }
                if let Some(lists) = &self.lists {
                    all.set_list_pool(lists);
                }
                let sent = self.sender(channel)?.try_send((all, u64::from(*word)));
                Ok(sent.map(drop).map_err(|failed| failed.error))
            }
            Op::MoveAll { buffers, word, .. } => {
                let mut all = AggregateMut::new();
                for buffer in buffers {
                    let buf = self.take_sole(*buffer)?;
                    all.push_back(buf).map_err(|failed| says(&failed.error))?;
                }
                if let Some(lists) = &self.lists {
                    all.set_list_pool(lists);
                }
                let sent = self.sender(channel)?.try_send((all, u64::from(*word)));
                Ok(sent.map(drop).map_err(|failed| {
                    let back = buffers.iter().zip(failed.unsent.0.into_pieces());
                    for (buffer, buf) in back {
                        self.held.insert(*buffer, Held::Sole(buf));
                    }
                    failed.error
                }))
            }
            _ => Err(wrong("nothing to send")),
        }
    }

    pub(super) fn pass(
        &mut self,
        channel: ChannelId,
        buffer: BufferId,
        word: u8,
        expected: &Result<Outcome, u16>,
    ) -> Result<Said, Said> {
        if *expected == Err(ErrorKind::PeerGone.number()) {
            let from = self.receiver(channel)?;
            let over = until(|| from.try_recv().err());
            over.ok_or_else(|| wrong("it does not hear of the end"))?;
        }
        let since = Instant::now();
        loop {
            let error = match self.held.remove(&buffer) {
                None => return Err(wrong("not here")),
                Some(Held::Sole(buf)) => {
                    let back = self.receiver(channel)?.send_back((buf, u64::from(word)));
                    back.err().map(|failed| {
                        self.held.insert(buffer, Held::Sole(failed.unsent.0));
                        failed.error
                    })
                }
                Some(Held::Shared(mut all)) => {
                    let given = all.remove(0);
                    let back = self.receiver(channel)?.send_back((given, u64::from(word)));
                    let error = back.err().map(|failed| {
                        all.insert(0, failed.unsent.0);
                        failed.error
                    });
                    if !all.is_empty() {
                        self.held.insert(buffer, Held::Shared(all));
                    }
                    error
                }
            };
            let Some(error) = error else {
                return Ok(Said::Done);
            };
            if error.kind() != ErrorKind::PoolPending || since.elapsed() > LONG {
                return Err(says(&error));
            }
            std::thread::yield_now();
        }
    }

    pub(super) fn release(
        &mut self,
        channel: ChannelId,
        buffer: BufferId,
        word: u8,
        expected: &Result<Outcome, u16>,
    ) -> Result<Said, Said> {
        if *expected == Err(ErrorKind::PeerGone.number()) {
            let from = self.receiver(channel)?;
            let over = until(|| from.try_recv().err());
            over.ok_or_else(|| wrong("it does not hear of the end"))?;
        }
        let carried = self.way == Way::Carried && expected.is_ok();
        let again = |kind: ErrorKind| {
            kind == ErrorKind::PoolPending || (carried && kind == ErrorKind::Full)
        };
        let since = Instant::now();
        loop {
            let body = match self.take_shared(buffer) {
                Some(one) => Body::Buffer(one),
                None => Body::BufferMut(self.take_sole(buffer)?),
            };
            let from = self.receiver(channel)?;
            let Err(failed) = from.send_back((Released(body), u64::from(word))) else {
                return Ok(Said::Done);
            };
            match failed.unsent.0 {
                Body::BufferMut(buf) => drop(self.held.insert(buffer, Held::Sole(buf))),
                Body::Buffer(buf) => self.keep_shared(buffer, buf),
                other => return Err(wrong(&format!("{other:?} came back"))),
            }
            if !again(failed.error.kind()) || since.elapsed() > LONG {
                return Err(says(&failed.error));
            }
            std::thread::yield_now();
        }
    }

    /// Removes a pool at the end that is here.
    pub(super) fn remove(
        &mut self,
        channel: ChannelId,
        pool: tranship_core::PoolId,
        expected: &Result<Outcome, u16>,
    ) -> Result<Said, Said> {
        let is_over = *expected == Err(ErrorKind::PeerGone.number());
        let since = Instant::now();
        let unheard = || wrong("it does not hear of the end");
        loop {
            let removed = match self.senders.get_mut(&channel) {
                Some(to) => {
                    if is_over {
                        until(|| to.status().peer_gone.then_some(())).ok_or_else(unheard)?;
                    }
                    to.remove_pool(pool)
                }
                None => {
                    let from = self.receiver(channel)?;
                    if is_over {
                        until(|| from.try_recv().err()).ok_or_else(unheard)?;
                    }
                    from.remove_pool(pool)
                }
            };
            match removed {
                Ok(()) => return Ok(Said::Done),
                Err(error) if error.kind() != ErrorKind::PoolPending || since.elapsed() > LONG => {
                    return Err(says(&error));
                }
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    pub(super) fn deliver(
        &mut self,
        channel: ChannelId,
        expected: &Result<Outcome, u16>,
    ) -> Result<Said, Said> {
        let from = self.receiver(channel)?;
        let got = match expected {
            Ok(Outcome::Nothing) => from.try_recv(),
            _ => from.recv_timeout(LONG).map(Some),
        };
        match got.map_err(|error| says(&error))? {
            None => Ok(Said::Nothing),
            Some(message) => self.took(message, expected),
        }
    }

    pub(super) fn take_back(
        &mut self,
        channel: ChannelId,
        expected: &Result<Outcome, u16>,
    ) -> Result<Said, Said> {
        let to = self.sender(channel)?;
        let comes = matches!(expected, Ok(Outcome::Took(_)));
        let got = until(|| match to.try_recv_back() {
            Ok(None) if comes => None,
            got => Some(got),
        });
        let got = got.ok_or_else(|| wrong("nothing came back"))?;
        match got.map_err(|error| says(&error))? {
            // Removals are no messages.
            None if *expected == Ok(Outcome::Done) => Ok(Said::Done),
            None => Ok(Said::Nothing),
            Some(message) => self.took(message, expected),
        }
    }

    /// Keeps a received message in the form that the model says it has.
    pub(super) fn took(
        &mut self,
        message: Message,
        expected: &Result<Outcome, u16>,
    ) -> Result<Said, Said> {
        let word =
            u8::try_from(message.word).map_err(|_: std::num::TryFromIntError| wrong("word"))?;
        let Ok(Outcome::Took(event)) = expected else {
            return Err(wrong(&format!("{message:?} came")));
        };
        let mut ids = event.buffers.iter().copied();
        let mut next = || ids.next().ok_or_else(|| wrong("a piece too many"));
        let (carries, pieces) = match message.body {
            Body::Inline(_) => (Carries::Inline, 0),
            Body::Buffer(buf) => {
                self.keep_shared(next()?, buf);
                (Carries::Shared, 1)
            }
            Body::BufferMut(buf) => {
                self.held.insert(next()?, Held::Sole(buf));
                (Carries::Moved, 1)
            }
            Body::Aggregate(mut all) => {
                let pieces = all.pieces().len();
                while let Some(piece) = all.remove(0) {
                    self.keep_shared(next()?, piece);
                }
                (Carries::Aggregate, pieces)
            }
            Body::AggregateMut(all) => {
                let pieces = all.pieces().len();
                for piece in all.into_pieces() {
                    self.held.insert(next()?, Held::Sole(piece));
                }
                (Carries::MovedAggregate, pieces)
            }
            Body::Released(id) => {
                let named = id.is_some();
                (Carries::Released { named }, 0)
            }
        };
        Ok(Said::Took(carries, pieces, word))
    }
}
