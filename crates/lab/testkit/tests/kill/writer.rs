//! The writer: owns the pool, sends directly and to the forwarder, gets its own buffers back.

use std::time::{Duration, Instant};

use tranship_core::{
    Aggregate, AggregateMut, Body, Buffer, BufferMut, Domain, ErrorKind, Listener, Message, Pool,
    PoolOptions, Receiver, Sender,
};
use tranship_testkit::{Control, child};

use crate::flow::{Kept, PIECES, fill, verify};
use crate::seat::{Broken, Order, ROUND, Seat, bearable, broken, options, recv_over, send_over};
use crate::stage::{CHUNK, WRITER_POOL};

/// Between two spikes: longer than the pool takes to see that it has more than it uses.
const CALM: Duration = Duration::from_millis(1800);

child!(
    pub fn writer(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "writer", 1)?;
        let pool = patiently(|| {
            seat.domain.create_pool(
                PoolOptions::new(WRITER_POOL)
                    .chunk_bytes(CHUNK)
                    .name("frames"),
            )
        })?;
        let mut writer = Writer::new(&seat.domain, pool)?;
        writer.greed(&seat.domain)?;
        loop {
            match seat.round()? {
                None => writer.round(&mut seat)?,
                Some(Order::Quota) => {
                    writer.whole_quota(&mut seat)?;
                    seat.done()?;
                }
                Some(Order::Strip) => {
                    writer.kept.clear()?;
                    drop(writer);
                    return seat.stripped();
                }
                Some(Order::Quit) => return writer.kept.clear(),
                Some(other) => return Err(format!("writer: {other:?}")),
            }
        }
    }
);

/// Again while the manager is away.
pub fn patiently<T>(
    mut what: impl FnMut() -> Result<T, tranship_core::Error>,
) -> Result<T, Broken> {
    loop {
        match what() {
            Ok(done) => return Ok(done),
            Err(e) => bearable(&e)?,
        }
        std::thread::yield_now();
    }
}

struct Writer {
    to_receiver: (Listener<Sender>, Option<Sender>),
    to_forwarder: (Listener<Sender>, Option<Sender>),
    back: (Listener<Receiver>, Option<Receiver>),
    kept: Kept,
    pool: Pool,
    sent: u64,
    last_spike: Instant,
}

impl Writer {
    fn new(domain: &Domain, pool: Pool) -> Result<Writer, Broken> {
        let sends = |name| patiently(|| domain.listen_with::<Sender>(name, options()));
        Ok(Writer {
            to_receiver: (sends("direct")?, None),
            to_forwarder: (sends("through")?, None),
            back: (patiently(|| domain.listen_with("back", options()))?, None),
            kept: Kept::default(),
            pool,
            sent: 0,
            last_spike: Instant::now(),
        })
    }

    fn round(&mut self, seat: &mut Seat) -> Result<(), Broken> {
        self.accept()?;
        if self.last_spike.elapsed() > CALM {
            self.greed(&seat.domain)?;
            drop(self.spike(Duration::from_millis(20))?);
            self.last_spike = Instant::now();
        }
        self.take_back(seat)?;
        self.take_replies(seat)?;
        let ends = [self.to_receiver.1.is_some(), self.to_forwarder.1.is_some()];
        if ends == [false, false] {
            seat.idle();
            return Ok(());
        }
        let forward = ends == [false, true] || (ends[1] && seat.random.one_in(2));
        self.send(seat, forward)
    }

    /// Takes a new connection; it takes the place of one that is gone.
    fn accept(&mut self) -> Result<(), Broken> {
        let now = Duration::ZERO;
        for (listener, end) in [&mut self.to_receiver, &mut self.to_forwarder] {
            if end.as_ref().is_some_and(|sender| sender.status().peer_gone) {
                *end = None;
            }
            if end.is_none() {
                match listener.accept_timeout(now) {
                    Ok(sender) => *end = Some(sender),
                    Err(e) => bearable(&e)?,
                }
                if let Some(sender) = end
                    && let Err(e) = self.pool.allow_forward(sender.status().peer)
                {
                    bearable(&e)?;
                    *end = None; // without the right nothing would go through it
                }
            }
        }
        if self.back.1.is_none() {
            match self.back.0.accept_timeout(now) {
                Ok(receiver) => self.back.1 = Some(receiver),
                Err(e) => bearable(&e)?,
            }
        }
        Ok(())
    }

    /// Verifies the messages that came back; moves some once more.
    fn take_replies(&mut self, seat: &mut Seat) -> Result<(), Broken> {
        let mut replies = Vec::new();
        for (_, end) in [&mut self.to_receiver, &mut self.to_forwarder] {
            while let Some(sender) = end {
                match sender.try_recv_back() {
                    Ok(Some(reply)) => replies.push(reply),
                    Ok(None) => break,
                    Err(e) => return Err(format!("a reply: {e} ({e:?})")),
                }
            }
        }
        for reply in replies {
            verify(&reply, "when it is passed back")?;
            match reply.body {
                Body::Buffer(buf) if seat.random.one_in(4) => self.send_again(buf, reply.word)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Own buffers that come back are verified, kept for a while, and some sent once more.
    fn take_back(&mut self, seat: &mut Seat) -> Result<(), Broken> {
        let Some(back) = &mut self.back.1 else {
            return Ok(());
        };
        match back.try_recv() {
            Ok(None) => {}
            Ok(Some(message)) => {
                seat.ways[0] += 1;
                verify(&message, "at its return")?;
                let word = message.word;
                let message = match message.body {
                    Body::Buffer(buf) if seat.random.one_in(4) => {
                        return self.send_again(buf, word);
                    }
                    body => Message { word, body },
                };
                let again = match &message.body {
                    Body::Buffer(buf) if seat.random.one_in(4) => Some((buf.clone(), message.word)),
                    _ => None,
                };
                self.kept.push(message, &mut seat.random)?;
                if let (Some((buf, word)), Some(sender)) = (again, &mut self.to_receiver.1)
                    && let Err(e) = sender.send_timeout((buf, word), ROUND)
                    && send_over(&e.error)?
                {
                    self.to_receiver.1 = None;
                }
            }
            Err(e) => {
                if recv_over(&e)? {
                    self.back.1 = None;
                }
            }
        }
        Ok(())
    }

    /// Sends a buffer that came back once more.
    fn send_again(&mut self, buf: Buffer, word: u64) -> Result<(), Broken> {
        let end = &mut self.to_receiver.1;
        if let Some(sender) = end
            && let Err(failed) = sender.send_timeout((buf, word), ROUND)
            && send_over(&failed.error)?
        {
            *end = None;
        }
        Ok(())
    }

    fn fresh(&mut self, seat: &mut Seat, id: u64) -> Result<Option<BufferMut>, Broken> {
        let len = match seat.random.below(3) {
            0 => 24 + seat.random.below(1000),
            1 => 1000 + seat.random.below(8000),
            _ => 8000 + seat.random.below(24_000),
        };
        let len = usize::try_from(len).map_err(broken)?;
        match self.pool.alloc_timeout(len, ROUND) {
            Ok(mut buf) => {
                fill(&mut buf, id);
                Ok(Some(buf))
            }
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(None),
            Err(other) => Err(format!("alloc: {other}")),
        }
    }

    fn send(&mut self, seat: &mut Seat, forward: bool) -> Result<(), Broken> {
        self.sent += 1;
        let id = (seat.start.incarnation << 40) | (self.sent * PIECES);
        let kind = seat.random.below(16);
        let mut pieces = Vec::new();
        let count = if kind < 3 {
            2 + seat.random.below(PIECES - 1)
        } else {
            1
        };
        for piece in 0..count {
            match self.fresh(seat, id + piece)? {
                Some(buf) => pieces.push(buf),
                None => return Ok(()), // those in flight come back first
            }
        }
        let end = if forward {
            &mut self.to_forwarder.1
        } else {
            &mut self.to_receiver.1
        };
        let Some(sender) = end else { return Ok(()) };
        let failure = match kind {
            3 => sender
                .send_timeout((&id.to_le_bytes(), id), ROUND)
                .err()
                .map(|e| e.error),
            4 => {
                let frozen: Vec<Buffer> = pieces.into_iter().map(BufferMut::freeze).collect();
                sender.send_many(frozen).err().map(|e| e.error)
            }
            _ if count == 1 => match pieces.pop() {
                Some(buf) if kind < 8 => {
                    sender.send_timeout((buf, id), ROUND).err().map(|e| e.error)
                }
                Some(buf) => sender
                    .send_timeout((buf.freeze(), id), ROUND)
                    .err()
                    .map(|e| e.error),
                None => None,
            },
            2 => {
                let mut list = AggregateMut::new();
                for piece in pieces {
                    list.push_back(piece).expect("a few");
                }
                sender
                    .send_timeout((list, id), ROUND)
                    .err()
                    .map(|e| e.error)
            }
            _ => {
                let mut list = Aggregate::new();
                for piece in pieces {
                    list.push_back(piece.freeze()).expect("a few");
                }
                sender
                    .send_timeout((list, id), ROUND)
                    .err()
                    .map(|e| e.error)
            }
        };
        let over = failure.as_ref().map_or(Ok(false), send_over)?;
        // Now and then a link is closed in order.
        if over || seat.random.one_in(500) {
            *end = None;
        }
        Ok(())
    }

    /// More than any pool may have, so that it is granted in part; and several chunks for one buffer, shown by one
    /// message.
    fn greed(&self, domain: &Domain) -> Result<(), Broken> {
        let more = WRITER_POOL + CHUNK;
        let options = PoolOptions::new(more).chunk_bytes(CHUNK).name("greed");
        match domain.create_pool(options.preallocate(more)) {
            Ok(_) => return Err("more than the quota".to_owned()),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
            Err(other) => bearable(&other)?,
        }
        let len = usize::try_from(2 * CHUNK).map_err(broken)?;
        match self.pool.alloc_timeout(len, ROUND) {
            Ok(buf) => drop(buf),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
            Err(other) => return Err(format!("alloc: {other}")),
        }
        Ok(())
    }

    /// Allocates as much as the quota allows at once.
    fn spike(&mut self, patience: Duration) -> Result<Vec<BufferMut>, Broken> {
        let len = usize::try_from(CHUNK).map_err(broken)?;
        let until = Instant::now() + patience;
        let mut all = Vec::new();
        while (all.len() as u64) < WRITER_POOL / CHUNK {
            match self
                .pool
                .alloc_timeout(len, until.saturating_duration_since(Instant::now()))
            {
                Ok(buf) => all.push(buf),
                Err(error) if error.kind() == ErrorKind::OutOfMemory => break,
                Err(other) => return Err(format!("alloc: {other}")),
            }
        }
        Ok(all)
    }

    /// All of the quota can be had: whatever died, none of it is lost.
    fn whole_quota(&mut self, seat: &mut Seat) -> Result<(), Broken> {
        let want = WRITER_POOL / CHUNK;
        let mut all = Vec::new();
        // Others of the flow only give back when we take the buffers that they send.
        while (all.len() as u64) < want {
            self.kept.clear()?;
            self.take_back(seat)?;
            self.take_replies(seat)?;
            self.accept()?;
            let len = usize::try_from(CHUNK).map_err(broken)?;
            match self.pool.alloc_timeout(len, ROUND) {
                Ok(mut buf) => {
                    fill(&mut buf, all.len() as u64);
                    all.push(buf);
                }
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
                Err(other) => return Err(format!("alloc: {other}")),
            }
        }
        for (id, buf) in (0..).zip(&all) {
            tranship_testkit::payload::verify(buf, id)
                .map_err(|torn| format!("own buffer: {torn}"))?;
        }
        Ok(())
    }
}
