//! The forwarder: passes the writer's buffers on to the receiver and back to the writer, by reference. It moves on, to
//! one of the two, the buffers that were moved to it, or sends them back.

use tranship_core::{
    Aggregate, AggregateMut, Body, Buffer, BufferMut, Domain, ErrorKind, Listener, Message, Pool,
    PoolOptions, Receiver, Sender,
};
use tranship_testkit::{Control, child};

use crate::flow::Kept;
use crate::seat::{Broken, Order, ROUND, Seat, bearable, options, recv_over, send_over};
use crate::stage::CHUNK;
use crate::writer::patiently;

/// The forwarder's own pool, for the lists of aggregates.
pub const LIST_POOL: u64 = CHUNK;

child!(
    pub fn forwarder(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "forwarder", 1)?;
        let lists = patiently(|| {
            seat.domain
                .create_pool(PoolOptions::new(LIST_POOL).chunk_bytes(CHUNK).name("lists"))
        })?;
        let mut forwarder = Forwarder::new(&seat.domain, lists)?;
        loop {
            match seat.round()? {
                None => forwarder.round(&mut seat)?,
                Some(Order::Strip) => {
                    forwarder.kept.clear()?;
                    drop(forwarder);
                    return seat.stripped();
                }
                Some(Order::Quit) => return forwarder.kept.clear(),
                Some(other) => return Err(format!("forwarder: {other:?}")),
            }
        }
    }
);

struct Forwarder {
    from: Option<Receiver>,
    back: Option<Sender>,
    onward: (Listener<Sender>, Option<Sender>),
    kept: Kept,
    lists: Pool,
}

impl Forwarder {
    fn new(domain: &Domain, lists: Pool) -> Result<Forwarder, Broken> {
        let listener = patiently(|| domain.listen_with::<Sender>("onward", options()))?;
        Ok(Forwarder {
            from: None,
            back: None,
            onward: (listener, None),
            kept: Kept::default(),
            lists,
        })
    }

    fn round(&mut self, seat: &mut Seat) -> Result<(), Broken> {
        self.connect(&seat.domain)?;
        let Some(from) = &mut self.from else {
            seat.idle();
            return Ok(());
        };
        let mut most = seat.random.below(4);
        match from.recv_timeout(ROUND) {
            Ok(message) => {
                seat.ways[0] += 1;
                self.kept.keep(message)?;
            }
            Err(e) => {
                if recv_over(&e)? {
                    self.from = None;
                    self.kept.clear()?;
                }
                most = 0; // the writer may wait for kept buffers
            }
        }
        while self.kept.len() as u64 > most {
            if let Some(message) = self.kept.pop()? {
                let word = message.word;
                match message.body {
                    Body::BufferMut(buf) if seat.random.one_in(4) => self.pass_back(buf, word)?,
                    Body::Buffer(buf) if seat.random.one_in(4) => self.hand_back(buf, word)?,
                    Body::BufferMut(buf) => self.move_on(buf, word, seat.random.one_in(2))?,
                    Body::AggregateMut(all) => {
                        self.move_all_on(all, word, seat.random.one_in(2))?
                    }
                    body => self.pass_on(&Message { word, body })?,
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self, domain: &Domain) -> Result<(), Broken> {
        if self.from.is_none() {
            match domain.open_with::<Receiver>("through", options()) {
                Ok(link) => self.from = Some(link),
                Err(e) => bearable(&e)?,
            }
        }
        if self
            .back
            .as_ref()
            .is_some_and(|sender| sender.status().peer_gone)
        {
            self.back = None;
        }
        if self.back.is_none() {
            match domain.open_with::<Sender>("back", options()) {
                Ok(link) => self.back = Some(link),
                Err(e) => bearable(&e)?,
            }
        }
        if self
            .onward
            .1
            .as_ref()
            .is_some_and(|sender| sender.status().peer_gone)
        {
            self.onward.1 = None;
        }
        if self.onward.1.is_none() {
            match self.onward.0.accept_timeout(std::time::Duration::ZERO) {
                Ok(link) => self.onward.1 = Some(link),
                Err(e) => bearable(&e)?,
            }
        }
        Ok(())
    }

    fn pass_on(&mut self, message: &Message) -> Result<(), Broken> {
        for end in [&mut self.onward.1, &mut self.back] {
            let Some(sender) = end else { continue };
            let word = message.word;
            let failure = match &message.body {
                Body::Inline(bytes) => sender
                    .send_timeout((&bytes[..], word), ROUND)
                    .err()
                    .map(|e| e.error),
                Body::Buffer(buf) => sender
                    .send_timeout((buf.clone(), word), ROUND)
                    .err()
                    .map(|e| e.error),
                Body::Aggregate(list) => {
                    let mut copy = Aggregate::new();
                    copy.set_list_pool(&self.lists);
                    list.pieces()
                        .iter()
                        .for_each(|piece| copy.push_back(piece.clone()).expect("as many"));
                    sender
                        .send_timeout((copy, word), ROUND)
                        .err()
                        .map(|e| e.error)
                }
                Body::BufferMut(_) | Body::AggregateMut(_) | Body::Released(_) => None,
            };
            if failure.as_ref().map_or(Ok(false), send_over)? {
                *end = None;
            }
        }
        Ok(())
    }

    fn move_all_on(&mut self, mut all: AggregateMut, word: u64, back: bool) -> Result<(), Broken> {
        let end = match back {
            true => &mut self.back,
            false => &mut self.onward.1,
        };
        let Some(sender) = end else { return Ok(()) };
        all.set_list_pool(&self.lists);
        if let Err(failed) = sender.send_timeout((all, word), ROUND)
            && send_over(&failed.error)?
        {
            *end = None;
        }
        Ok(())
    }

    fn pass_back(&mut self, buf: BufferMut, word: u64) -> Result<(), Broken> {
        let Some(from) = &mut self.from else {
            return Ok(());
        };
        match from.send_back((buf, word)) {
            Ok(()) => Ok(()),
            // Perhaps it is of a writer that is gone; dropped, it is nobody's.
            Err(failed) if failed.kind() == ErrorKind::PoolNotAssigned => Ok(()),
            Err(failed) => send_over(&failed.error).map(|_| ()),
        }
    }

    /// Hands it back, if it was given; what was shared is dropped.
    fn hand_back(&mut self, buf: Buffer, word: u64) -> Result<(), Broken> {
        let Some(from) = &mut self.from else {
            return Ok(());
        };
        match from.send_back((buf, word)) {
            Ok(()) => Ok(()),
            Err(failed)
                if matches!(
                    failed.kind(),
                    ErrorKind::PoolNotAssigned | ErrorKind::BufferNotOwned
                ) =>
            {
                Ok(())
            }
            Err(failed) => send_over(&failed.error).map(|_| ()),
        }
    }

    fn move_on(&mut self, buf: BufferMut, word: u64, back: bool) -> Result<(), Broken> {
        let end = match back {
            true => &mut self.back,
            false => &mut self.onward.1,
        };
        let Some(sender) = end else { return Ok(()) };
        // A buffer that is not sent is dropped here, and so is the writer's again.
        if let Err(failed) = sender.send_timeout((buf, word), ROUND)
            && send_over(&failed.error)?
        {
            *end = None;
        }
        Ok(())
    }
}
