//! A manager that a test plays: what it says, and when, is the test's.

use crate::kit::until;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use tranship_core::Domain;
use tranship_proto::{DomainId, Event, PoolId, Refusal, RefusalCode, Req, Request};
use tranship_region::layout::ControlPageRw;
use tranship_sys::socket;

pub(crate) fn refused(req: Req, code: RefusalCode) -> Event {
    let refusal = Refusal {
        code,
        asked: 1,
        available: 0,
    };
    Event::Refused { req, refusal }
}

pub(crate) fn hang(path: &Path) -> OwnedFd {
    socket::listen(path, 0o600).expect("listen")
}

/// The connection of a domain that is back. Nothing more is read of it.
pub(crate) struct Back {
    pub(crate) peer: OwnedFd,
    pub(crate) control_page: Option<ControlPageRw>,
    /// Its claim of a pool, if it has one: request, pool, size.
    pub(crate) claim: Option<(Req, PoolId, u64)>,
}

impl Back {
    pub(crate) fn say(&self, event: &Event, fd: Option<&OwnedFd>) {
        let fds: Vec<_> = fd.into_iter().map(AsFd::as_fd).collect();
        socket::sendmsg(&self.peer, &tranship_proto::encode(event), &fds, false).expect("sendmsg");
    }

    /// Announces what was said.
    pub(crate) fn rings(&self) {
        let control_page = self.control_page.as_ref().expect("a control page");
        control_page.wake().fetch_add(1, Ordering::Release);
    }

    /// The next request.
    pub(crate) fn hears(&self) -> Request {
        self.hears_with().0
    }

    /// Returns the answer together with its descriptors.
    pub(crate) fn hears_with(&self) -> (Request, Vec<OwnedFd>) {
        self.look(false).expect("a request")
    }

    /// The next one, if it is there.
    pub(crate) fn heard(&self) -> Option<Request> {
        match self.look(true) {
            Ok((request, _)) => Some(request),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next one, waiting for it or not; `UnexpectedEof` after the last.
    pub(crate) fn look(&self, now: bool) -> io::Result<(Request, Vec<OwnedFd>)> {
        let mut bytes = vec![0; tranship_proto::MAX_MESSAGE_BYTES];
        let got = socket::recvmsg(&self.peer, &mut bytes, now)?;
        if got.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let said = tranship_proto::decode(&bytes[..got.bytes]);
        Ok((said.expect("a request"), got.fds))
    }

    /// Chunks: which, and that all of them are of use, or none.
    pub(crate) fn is_shown(&self, of_use: u32) -> (Req, Vec<(u32, u32)>) {
        match self.hears() {
            Request::ShowChunks {
                req, chunks, least, ..
            } if least == of_use => (req, chunks),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn takes(&self, req: Req, pool: PoolId, chunks: u32) {
        self.say(&Event::ChunksReady { req, pool, chunks }, None);
    }

    /// The pool gets its place in the control page.
    pub(crate) fn list(&self) {
        let Some((_, pool, bytes)) = self.claim else {
            return;
        };
        let entry = self.control_page.as_ref().and_then(|map| map.entry(0));
        let entry = entry.expect("a control page");
        entry.quota.store(bytes, Ordering::Release);
        entry.epoch.store(1, Ordering::Release);
        entry.pool.store(pool.0.into(), Ordering::Release);
    }

    pub(crate) fn answer(&self) {
        self.list();
        if let Some((req, pool, quota_bytes)) = self.claim {
            let event = Event::PoolCreated {
                req,
                pool,
                entry: 0,
                quota_bytes,
            };
            self.say(&event, None);
        }
    }
}

/// Takes one connection and welcomes its new domain.
pub(crate) fn welcome_new(listener: &OwnedFd) -> Back {
    let mut back = Back {
        peer: socket::accept(listener).expect("accept"),
        control_page: None,
        claim: None,
    };
    assert!(matches!(back.hears(), Request::Hello { resume: None, .. }));
    let (fd, map) = ControlPageRw::create(8, 77).expect("a control page");
    let event = Event::Welcome {
        domain: DomainId(7),
        instance: 77,
        resumed: false,
        control_page_entries: 8,
        total_bytes: 1 << 30,
    };
    back.say(&event, Some(&fd));
    back.control_page = Some(map);
    back
}

/// Takes one connection and welcomes its returning domain.
pub(crate) fn welcome_one(listener: &OwnedFd) -> Back {
    let mut back = Back {
        peer: socket::accept(listener).expect("accept"),
        control_page: None,
        claim: None,
    };
    loop {
        match back.hears() {
            Request::Hello {
                resume: Some(domain),
                ..
            } => {
                let (fd, map) = ControlPageRw::create(8, 77).expect("a control page");
                let event = Event::Welcome {
                    domain,
                    instance: 77,
                    resumed: true,
                    control_page_entries: 8,
                    total_bytes: 1 << 30,
                };
                back.say(&event, Some(&fd));
                back.control_page = Some(map);
            }
            Request::ClaimPool {
                req, pool, shape, ..
            } => back.claim = Some((req, pool, shape.max_bytes)),
            Request::ClaimDone { .. } => return back,
            _ => {}
        }
    }
}

/// It comes back to that manager, which says nothing more by itself.
pub(crate) fn comes_back(domain: &Domain, manager: &OwnedFd) -> Back {
    std::thread::scope(|s| {
        let welcomes = s.spawn(|| welcome_one(manager));
        until(|| {
            let _ = domain.turn();
            domain.admin().is_managed() && welcomes.is_finished()
        });
        welcomes.join().expect("the manager")
    })
}
