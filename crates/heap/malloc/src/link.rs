//! The conversation with the manager, over one socket and without any other resource of the process.
//!
//! The client library does not serve here: it starts threads, keeps tables, and may wait for any time. This code runs
//! inside `malloc` of any program. A manager that does not answer soon therefore counts as absent. The descriptor has a
//! high number, and is checked before each use. Programs close descriptors that they do not know, and may then get the
//! same number for a file of their own.

use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};
use tranship_proto::{
    Event, PROTOCOL_VERSION, PoolId, Refusal, Req, Request, as_name, decode, encode,
};
use tranship_sys::{epoll, process, socket};

/// The longest wait for an answer: an allocation waits for it. On an idle machine an answer takes 50 us.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an event: those for this connection are far shorter.
const MAX_EVENT_BYTES: usize = 512;
/// The distance of the descriptor's number from the soft limit, at least.
const BELOW_LIMIT: u64 = 24;

/// The manager is not there, does not answer, or is none.
#[derive(Debug)]
pub(crate) struct Gone;

/// A connection with a heap on it.
#[derive(Debug)]
pub(crate) struct Link {
    fd: RawFd,
    identity: (u64, u64),
    heap: PoolId,
    next_req: u32,
}

/// The manager's messages that are no answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The heap is to come down to this many bytes.
    Shrink(u64),
    /// The quota is now this.
    Quota(u64),
}

/// A new connection, and the admitted bytes.
pub(crate) struct Opened {
    pub(crate) link: Link,
    pub(crate) admitted_bytes: u64,
}

impl Link {
    /// Joins the manager at `path` as a domain of its own, with a heap that has `held_bytes` already.
    pub(crate) fn open(
        path: &Path,
        name: &str,
        max_bytes: u64,
        held_bytes: u64,
    ) -> Result<Opened, Gone> {
        let fd = socket::connect_now(path).map_err(|_| Gone)?;
        let fd = out_of_the_way(fd);
        let identity = process::identity(&fd).map_err(|_| Gone)?;
        let mut link = Link {
            fd: fd.into_raw_fd(),
            identity,
            heap: PoolId(0),
            next_req: 1,
        };
        let name = as_name(name, 16);
        let name = if name.is_empty() { "heap".into() } else { name };
        let hello = Request::Hello {
            version: PROTOCOL_VERSION,
            name: name.clone(),
            resume: None,
            dumpable: process::is_dumpable().unwrap_or(true),
        };
        link.send(&hello)?;
        let mut ignored = Vec::new();
        let end = Instant::now() + PATIENCE;
        while !matches!(link.next(end)?, Event::Welcome { .. }) {}
        let req = link.req();
        link.send(&Request::CreateHeap {
            req,
            name,
            max_bytes,
            held_bytes,
        })?;
        match link.answer(req, end, &mut ignored)? {
            Ok(Event::HeapCreated {
                heap,
                admitted_bytes,
                ..
            }) => {
                link.heap = heap;
                Ok(Opened {
                    link,
                    admitted_bytes,
                })
            }
            // A limit for the user is reached: the manager counts as absent.
            _ => Err(Gone),
        }
    }

    /// Asks for memory; returns how much was admitted.
    pub(crate) fn admit(
        &mut self,
        least_bytes: u64,
        bytes: u64,
        news: &mut Vec<News>,
    ) -> Result<Result<u64, Refusal>, Gone> {
        let req = self.req();
        self.send(&Request::Admit {
            req,
            heap: self.heap,
            bytes,
            least_bytes,
        })?;
        match self.answer(req, Instant::now() + PATIENCE, news)? {
            Ok(Event::Admitted { bytes, .. }) => Ok(Ok(bytes)),
            Ok(_) => Err(Gone),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Gives back; `false` if the manager is behind with reading: later, then.
    pub(crate) fn give_back(&mut self, bytes: u64) -> Result<bool, Gone> {
        let heap = self.heap;
        self.try_send(&Request::GiveBack { heap, bytes })
    }

    /// Reports the heap's figures, unless the manager is behind with reading.
    pub(crate) fn report(&mut self, live_bytes: u64, cached_bytes: u64) -> Result<(), Gone> {
        let heap = self.heap;
        self.try_send(&Request::HeapFigures {
            heap,
            live_bytes,
            cached_bytes,
        })?;
        Ok(())
    }

    /// Takes the messages that have come meanwhile.
    pub(crate) fn listen(&mut self, news: &mut Vec<News>) -> Result<(), Gone> {
        while let Some(event) = self.receive()? {
            note(&event, news);
        }
        Ok(())
    }

    fn req(&mut self) -> Req {
        self.next_req = self.next_req.wrapping_add(1).max(1);
        Req(self.next_req)
    }

    fn answer(
        &mut self,
        wanted: Req,
        end: Instant,
        news: &mut Vec<News>,
    ) -> Result<Result<Event, Refusal>, Gone> {
        loop {
            match self.next(end)? {
                Event::Refused { req, refusal } if req == wanted => return Ok(Err(refusal)),
                event @ (Event::HeapCreated { req, .. } | Event::Admitted { req, .. })
                    if req == wanted =>
                {
                    return Ok(Ok(event));
                }
                other => note(&other, news),
            }
        }
    }

    /// Waits for the next event, and returns it.
    fn next(&mut self, end: Instant) -> Result<Event, Gone> {
        loop {
            if let Some(event) = self.receive()? {
                return Ok(event);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Gone);
            }
            epoll::wait_readable(self.fd()?, Some(left)).map_err(|_| Gone)?;
        }
    }

    fn receive(&mut self) -> Result<Option<Event>, Gone> {
        let mut buffer = [0; MAX_EVENT_BYTES];
        let received = match socket::recvmsg(self.fd()?, &mut buffer, true) {
            Ok(received) => received,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(_) => return Err(Gone),
        };
        if received.bytes == 0 || received.truncated || received.ctrunc {
            return Err(Gone);
        }
        // A control page that comes with it is closed: it has no use here.
        let event: Event = decode(&buffer[..received.bytes]).map_err(|_| Gone)?;
        match event {
            Event::Expelled { .. } => Err(Gone),
            event => Ok(Some(event)),
        }
    }

    /// Sends a request, as soon as there is room for it.
    fn send(&self, request: &Request) -> Result<(), Gone> {
        let end = Instant::now() + PATIENCE;
        while !self.try_send(request)? {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Gone);
            }
            epoll::wait_writable(self.fd()?, Some(left)).map_err(|_| Gone)?;
        }
        Ok(())
    }

    fn try_send(&self, request: &Request) -> Result<bool, Gone> {
        match socket::sendmsg(self.fd()?, &encode(request), &[], true) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(Gone),
        }
    }

    /// Returns the descriptor, if it still stands for the same file.
    fn fd(&self) -> Result<BorrowedFd<'_>, Gone> {
        // SAFETY: not -1. If the number stands for no file, or for another one, only `fstat` uses it.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        match process::identity(fd) {
            Ok(identity) if identity == self.identity => Ok(fd),
            _ => Err(Gone),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Ok(fd) = self.fd() {
            process::close(fd.as_raw_fd());
        }
    }
}

fn note(event: &Event, news: &mut Vec<News>) {
    match *event {
        Event::Shrink { target_bytes, .. } => news.push(News::Shrink(target_bytes)),
        Event::Quota { quota_bytes, .. } => news.push(News::Quota(quota_bytes)),
        _ => {}
    }
}

/// Moves a descriptor to a high number. Programs expect the lowest numbers for their own files; `select` cannot bear
/// any above 1023.
fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    let limit = process::nofile_soft().min(1024).saturating_sub(BELOW_LIMIT);
    process::dup_above(fd, i32::try_from(limit).unwrap_or(0))
}
