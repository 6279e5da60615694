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
/// Jobs of one trim or zero request that are under way at once.
const PARTS: u64 = 64;

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
        // `is_inside` has checked the length. Everything else is checked as for a request without one.
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
            return self.begin_long(whole, request, asked.len);
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
                Ok(Ok(data)) if op == Op::Write => self.submit(whole, part, data, None),
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

    /// Begins all jobs of a request without data. The length of such a request has no bound but the size of the export:
    /// this thread waits while [`PARTS`] jobs are under way. After a fault no more jobs begin.
    fn begin_long(
        &self,
        whole: &Arc<Whole>,
        mut request: Request,
        mut left: u64,
    ) -> io::Result<Result<(), Fault>> {
        // Short requests need no channel.
        let ends = (left > LONG * PARTS).then(mpsc::channel);
        let mut under_way = 0;
        loop {
            if let Some((_, told)) = &ends
                && under_way == PARTS
            {
                self.before_waiting();
                if let Err(fault) = told.recv().unwrap_or(Err(Fault::Gone)) {
                    return Ok(Err(fault));
                }
                // No byte is charged: the call fails if the connection is broken.
                if !self.replies.charge(0, || self.before_waiting()) {
                    return Err(ErrorKind::BrokenPipe.into());
                }
                under_way -= 1;
            }
            let mut part = request.clone();
            let len = left.min(LONG);
            part.len = u32::try_from(len).unwrap_or(0);
            request.offset += len;
            left -= len;
            let tell = ends.as_ref().map(|(tell, _)| tell.clone());
            self.submit(whole, part, Data::None, tell);
            if left == 0 {
                return Ok(Ok(()));
            }
            under_way += 1;
        }
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

    /// Begins a job. Its result goes to the request, and to `tell`.
    fn submit(
        &self,
        whole: &Arc<Whole>,
        request: Request,
        data: Data,
        tell: Option<mpsc::Sender<Result<(), Fault>>>,
    ) {
        whole.expect();
        let whole = Arc::clone(whole);
        let charged = data.len().min(request.len as usize);
        let done: Done = Box::new(move |data, result| {
            drop(data);
            if charged > 0 {
                whole.replies.give_back(charged);
            }
            let result = result.map(drop);
            whole.part(result);
            if let Some(tell) = tell {
                let _ = tell.send(result);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lease;
    use std::fmt;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    /// A store that does its jobs when it is kicked.
    struct Slow {
        result: Result<(), Fault>,
        waiting: Mutex<Vec<Job>>,
        /// The most jobs that waited, and the jobs that are done.
        counts: Mutex<(usize, u64)>,
    }

    impl fmt::Debug for Slow {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Slow")
        }
    }

    impl Store for Slow {
        fn info(&self) -> Result<Info, Fault> {
            Err(Fault::Gone)
        }
        fn is_checked(&self) -> bool {
            false
        }
        fn lease(&self) -> Lease {
            Lease::forever()
        }
        fn data(&self, _: Op, len: usize) -> Result<Data, Fault> {
            Ok(Data::heap(len))
        }
        fn piece(&self, len: usize) -> usize {
            len
        }
        fn submit(&self, job: Job) {
            let mut waiting = self.waiting.lock().expect("no panic");
            waiting.push(job);
            let mut counts = self.counts.lock().expect("no panic");
            counts.0 = counts.0.max(waiting.len());
        }
        fn kick(&self) {
            let jobs = std::mem::take(&mut *self.waiting.lock().expect("no panic"));
            self.counts.lock().expect("no panic").1 += jobs.len() as u64;
            for job in jobs {
                (job.done)(job.data, self.result.map(|()| Vec::new()));
            }
        }
    }

    /// Trims that many bytes. Returns the result, the most jobs at once, and all jobs.
    fn trim(len: u64, result: Result<(), Fault>) -> (Result<(), Fault>, (usize, u64)) {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let store = Arc::new(Slow {
            result,
            waiting: Mutex::default(),
            counts: Mutex::default(),
        });
        let info = Info {
            size: len,
            read_only: false,
            boot: 0,
        };
        let client = Client {
            store: Arc::clone(&store) as Arc<dyn Store>,
            info,
            agreed: Agreed::default(),
            replies: Arc::new(Replies::new(Stream::Unix(ours), &Arc::default())),
        };
        assert!(client.replies.begin(|| ()));
        let of = Of {
            cookie: 1,
            extended: None,
        };
        let whole = Whole::new(&client.replies, of, Form::Simple(0));
        let begun = client.begin_long(&whole, Request::new(Op::Trim, 0, 0), len);
        let begun = begun.expect("a connection");
        whole.part(begun);
        store.kick();
        let counts = *store.counts.lock().expect("no panic");
        (begun, counts)
    }

    #[test]
    fn a_long_trim_has_few_jobs_at_once() {
        let _dog = tranship_testkit::Watchdog::new();
        assert_eq!(trim(3 * LONG + 1, Ok(())), (Ok(()), (4, 4)));
        assert_eq!(trim(1000 * LONG, Ok(())), (Ok(()), (64, 1000)));
        // Those under way are done; no more begin.
        let full = Err(Fault::NoSpace);
        assert_eq!(trim(1 << 62, full), (full, (64, 64)));
    }
}
