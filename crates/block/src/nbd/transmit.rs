//! The transmission phase: requests become jobs of the store, many at a time.

use super::budget::OWN;
use super::handshake::Agreed;
use super::incoming::Incoming;
use super::replies::{Replies, Reply};
use super::stream::Stream;
use super::whole::{self, Form, Whole};
use super::wire::{self, Command, MAX_BYTES, MOST_EXTENTS, MOST_REQUEST_BYTES, Of};
use crate::memory::Heap;
use crate::{Data, Done, Fault, Info, Job, Op, Request, Store, sum};
use std::io::{self, ErrorKind, Read};
use std::sync::{Arc, mpsc};

/// The longest trim of one job, and as many zeroes.
const LONG: u64 = 1 << 30;

/// One client.
pub(super) struct Client {
    pub store: Arc<dyn Store>,
    pub info: Info,
    pub agreed: Agreed,
    pub replies: Arc<Replies>,
}

impl Client {
    /// Serves until the client goes; an error is a client that broke the protocol, or its connection.
    pub(super) fn serve(&self, stream: Stream) -> io::Result<()> {
        let mut from = Incoming::new(stream);
        let extended = self.agreed.extended;
        let head = wire::request_bytes(extended);
        loop {
            while from.here() < head {
                self.before_waiting();
                if !from.wait()? {
                    return Ok(());
                }
            }
            let mut bytes = [0; MOST_REQUEST_BYTES];
            from.read_exact(&mut bytes[..head])?;
            let request = wire::Request::decode(&bytes, extended);
            let request = request.ok_or_else(|| broken("no request"))?;
            if request.command == Command::Disconnect {
                self.store.kick();
                return Ok(());
            }
            // If other requests follow, the answers go together. A request that goes on to another process is not
            // answered here.
            let bytes = if request.command == Command::Write {
                request.len
            } else {
                0
            };
            match from.here() as u64 > bytes && !self.store.is_checked() {
                true => self.replies.hold(),
                false => self.before_waiting(),
            }
            self.one(&request, &mut from)?;
        }
    }

    /// Sends what this thread holds, before it waits: no ready reply and no question waits with this thread.
    fn before_waiting(&self) {
        self.replies.release();
        self.store.kick();
    }

    fn one(&self, request: &wire::Request, from: &mut impl Read) -> io::Result<()> {
        let brings = request.command == Command::Write || request.payload;
        if brings && request.len > u64::from(MAX_BYTES) {
            return Err(broken("a write that is too long"));
        }
        if !self.replies.begin(|| self.before_waiting()) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let extended = self.agreed.extended.then_some(request.offset);
        let cookie = request.cookie;
        let of = Of { cookie, extended };
        if request.command == Command::Status && !request.payload {
            self.replies
                .end(Reply::new(self.status(of, request), Vec::new(), 0));
            return Ok(());
        }
        let checked = self.check(request);
        // Only what brings bytes, or asks for them in a request that is checked, has as many as memory can have.
        let len = usize::try_from(request.len).unwrap_or(usize::MAX);
        let form = match (request.command, checked) {
            (Command::Read, _) if self.agreed.structured => Form::Chunks(len),
            _ if self.agreed.extended => Form::Chunks(0),
            (_, Ok(Op::Read)) => match self.replies.charge_whole(len, || self.before_waiting()) {
                Some(true) => Form::Simple(len),
                Some(false) => return self.piece_by_piece(request),
                None => Form::Simple(0),
            },
            _ => Form::Simple(0),
        };
        let whole = Whole::new(&self.replies, of, form);
        let begun = match checked {
            Ok(op) => self.begin(&whole, request, op, from),
            Err(fault) if brings => skip(from, len).map(|()| Err(fault)),
            Err(fault) => Ok(Err(fault)),
        };
        // Also for a connection that broke: requests under way are answered into the void.
        whole.part(*begun.as_ref().unwrap_or(&Err(Fault::Gone)));
        begun.map(drop)
    }

    fn check(&self, request: &wire::Request) -> Result<Op, Fault> {
        let op = match request.command {
            Command::Read => Op::Read,
            Command::Write => Op::Write,
            Command::Flush => Op::Flush,
            Command::Trim => Op::Trim,
            Command::Zero => Op::Zero {
                punch: !request.keep_space,
            },
            Command::Disconnect | Command::Status | Command::Other(_) => {
                return Err(Fault::Invalid);
            }
        };
        if request.strange || op == Op::Read && request.len > u64::from(MAX_BYTES) {
            return Err(Fault::Invalid);
        }
        if op == Op::Flush && (request.offset, request.len) != (0, 0) {
            return Err(Fault::Invalid);
        }
        self.is_inside(request)?;
        // Its length was looked at: the rest is that of any.
        Request::new(op, request.offset, 0).check(&self.info)?;
        Ok(op)
    }

    fn is_inside(&self, request: &wire::Request) -> Result<(), Fault> {
        let (offset, len, size) = (request.offset, request.len, self.info.size);
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Fault::Bounds { offset, len, size }),
        }
    }

    /// Returns the answer that says which bytes are holes.
    fn status(&self, of: Of, request: &wire::Request) -> Vec<u8> {
        let asks = self.agreed.allocation && !request.strange && request.len > 0;
        let valid = if asks { Ok(()) } else { Err(Fault::Invalid) };
        match valid.and_then(|()| self.is_inside(request)) {
            Ok(()) => {
                let most = if request.one { 1 } else { MOST_EXTENTS };
                let extents = self.store.extents(request.offset, request.len, most);
                wire::extents_chunk(of, &extents)
            }
            Err(fault) if self.agreed.structured => wire::end_chunk(of, Err(fault)),
            Err(fault) => wire::simple(of.cookie, Err(fault)),
        }
    }

    /// Begins all jobs of a request. An error of the outer kind is one of the connection.
    fn begin(
        &self,
        whole: &Arc<Whole>,
        asked: &wire::Request,
        op: Op,
        from: &mut impl Read,
    ) -> io::Result<Result<(), Fault>> {
        let mut request = Request::new(op, asked.offset, 0);
        request.durable = asked.durable;
        if !matches!(op, Op::Read | Op::Write) {
            let mut left = asked.len;
            loop {
                let mut part = request.clone();
                let len = left.min(LONG);
                part.len = u32::try_from(len).unwrap_or(0);
                request.offset += len;
                left -= len;
                self.submit(whole, part, Data::None);
                if left == 0 {
                    return Ok(Ok(()));
                }
            }
        }
        let len = usize::try_from(asked.len).unwrap_or(0);
        let mut at = 0;
        while at < len {
            let piece = self.piece(len - at);
            let mut part = request.clone();
            part.offset += at as u64;
            part.len = u32::try_from(piece).unwrap_or(0);
            // A request that is charged as a whole was charged before its parts.
            let by_itself = op == Op::Write || matches!(whole.form(), Form::Chunks(_));
            let charged = !by_itself || self.replies.charge(piece, || self.before_waiting());
            if !charged {
                return Err(ErrorKind::BrokenPipe.into());
            }
            at += piece;
            let data = match op {
                Op::Write => self.incoming(&mut part, piece, from),
                _ => Ok(self.store.data(op, piece)),
            };
            match data {
                Ok(Ok(data)) if op == Op::Write => self.submit(whole, part, data),
                Ok(Ok(data)) => self.read(whole, part, data),
                failed => {
                    if by_itself {
                        self.replies.give_back(piece);
                    }
                    if let (Ok(Err(_)), Op::Write) = (&failed, op) {
                        skip(from, len - at)?;
                    }
                    return failed.map(|inner| inner.map(drop));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Returns how many of `left` bytes go into one job.
    fn piece(&self, left: usize) -> usize {
        self.store.piece(left).min(OWN)
    }

    /// Takes the next bytes of a write from the client, in any case.
    fn incoming(
        &self,
        part: &mut Request,
        piece: usize,
        from: &mut impl Read,
    ) -> io::Result<Result<Data, Fault>> {
        let mut data = match self.store.data(Op::Write, piece) {
            Ok(data) => data,
            Err(fault) => return skip(from, piece).map(|()| Err(fault)),
        };
        data.fill_from(from, piece)?;
        if self.store.is_checked() {
            match sum::sums_of(part.offset, &data, piece) {
                Ok(sums) => part.sums = sums,
                Err(fault) => return Ok(Err(fault)),
            }
        }
        Ok(Ok(data))
    }

    fn read(&self, whole: &Arc<Whole>, part: Request, data: Data) {
        whole.expect();
        let (whole, asked) = (Arc::clone(whole), part.clone());
        whole::read(Arc::clone(&self.store), part, data, move |read| {
            whole.read(&asked, read);
        });
    }

    /// Serves a read for all of which there is no memory, and whose answer is in one piece. Nothing else is under way
    /// meanwhile. Once some of it is sent, hanging up is the only way to report that the rest failed.
    fn piece_by_piece(&self, asked: &wire::Request) -> io::Result<()> {
        self.before_waiting();
        self.replies.drain(1);
        let mut head = wire::simple(asked.cookie, Ok(()));
        let (len, mut at) = (usize::try_from(asked.len).unwrap_or(0), 0);
        let failed = loop {
            if at == len {
                break None;
            }
            let piece = self.piece(len - at);
            if !self.replies.charge(piece, || self.before_waiting()) {
                break Some(ErrorKind::BrokenPipe.into());
            }
            match self.read_alone(asked.offset + at as u64, piece) {
                Ok(heap) => {
                    let head = std::mem::take(&mut head);
                    let reply = Reply::new(head, vec![(heap, piece)], piece);
                    self.replies.give(reply);
                    at += piece;
                }
                Err(fault) => {
                    self.replies.give_back(piece);
                    if at > 0 {
                        break Some(io::Error::other(fault));
                    }
                    head = wire::simple(asked.cookie, Err(fault));
                    break None;
                }
            }
        };
        self.replies.end(Reply::new(head, Vec::new(), 0));
        failed.map_or(Ok(()), Err)
    }

    /// Reads a piece, and waits for it.
    fn read_alone(&self, offset: u64, len: usize) -> Result<Heap, Fault> {
        let data = self.store.data(Op::Read, len)?;
        let request = Request::new(Op::Read, offset, u32::try_from(len).unwrap_or(0));
        let (tell, told) = mpsc::channel();
        whole::read(Arc::clone(&self.store), request, data, move |read| {
            let _ = tell.send(read);
        });
        self.store.kick();
        told.recv().unwrap_or(Err(Fault::Gone))
    }

    fn submit(&self, whole: &Arc<Whole>, request: Request, data: Data) {
        whole.expect();
        let whole = Arc::clone(whole);
        let charged = data.len().min(request.len as usize);
        let done: Done = Box::new(move |data, result| {
            drop(data);
            if charged > 0 {
                whole.replies.give_back(charged);
            }
            whole.part(result.map(drop));
        });
        self.store.submit(Job {
            request,
            data,
            done,
        });
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn skip(from: &mut impl Read, len: usize) -> io::Result<()> {
    let gone = io::copy(&mut from.take(len as u64), &mut io::sink())?;
    match gone == len as u64 {
        true => Ok(()),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}
