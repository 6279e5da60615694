//! A client of the manager's protocol, written from `docs/protocol.md`, over a real socket.
#![allow(dead_code, unused_imports)] // each test file uses a part of it

pub mod claim;
pub use claim::*;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_proto::{
    ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, RefusalCode, Req, Request, Role, Trust,
    decode, encode,
};
use tranship_region::layout::{ControlPageRo, CountsRw, RefsRw, TableRw};
use tranship_region::{Opts, RwMapping, Sealing, make};
use tranship_ring::{HalfRw, Side};
use tranship_sys::socket;
pub use tranship_testkit::Watchdog;

pub const CHUNK: u64 = 64 << 10;
pub const SLOTS: u32 = 64;

/// The manager's number of this process, which has all clients, once one of them was told of a queue.
static OURS: AtomicU64 = AtomicU64::new(0);

/// Makes a watchdog for the time that a test with a manager may block.
#[track_caller]
pub fn watchdog() -> Watchdog {
    Watchdog::new()
}

pub struct Client {
    pub fd: OwnedFd,
    pub domain: DomainId,
    pub instance: u64,
    pub resumed: bool,
    pub control_page: Option<ControlPageRo>,
    pub inbox: VecDeque<(Event, Vec<OwnedFd>)>,
    next: u32,
}

pub fn hello(version: u16, name: &str, resume: Option<DomainId>) -> Request {
    Request::Hello {
        version,
        name: name.to_owned(),
        resume,
        dumpable: true,
    }
}

impl Client {
    pub fn raw(path: &Path) -> Client {
        Client {
            fd: socket::connect(path).expect("connect"),
            domain: DomainId(0),
            instance: 0,
            resumed: false,
            control_page: None,
            inbox: VecDeque::new(),
            next: 0,
        }
    }

    pub fn join(path: &Path, name: &str) -> Client {
        Client::join_as(path, name, None)
    }

    pub fn join_as(path: &Path, name: &str, resume: Option<DomainId>) -> Client {
        let mut c = Client::raw(path);
        c.send(&hello(PROTOCOL_VERSION, name, resume), &[]);
        let (event, fds) = c.recv().expect("an answer to Hello");
        let Event::Welcome {
            domain,
            instance,
            resumed,
            control_page_entries,
            ..
        } = event
        else {
            panic!("{event:?}");
        };
        c.control_page = Some(
            ControlPageRo::open(&fds[0], control_page_entries, instance).expect("control_page"),
        );
        (c.domain, c.instance, c.resumed) = (domain, instance, resumed);
        c
    }

    pub fn req(&mut self) -> Req {
        self.next += 1;
        Req(self.next)
    }

    pub fn send(&self, request: &Request, fds: &[BorrowedFd<'_>]) {
        socket::sendmsg(&self.fd, &encode(request), fds, false).expect("send");
    }

    /// Returns the next event; `None` at the end of the connection.
    pub fn recv(&mut self) -> Option<(Event, Vec<OwnedFd>)> {
        let mut buf = [0u8; 17000];
        let r = socket::recvmsg(&self.fd, &mut buf, false).ok()?;
        if r.bytes == 0 {
            return None;
        }
        let event: Event = decode(&buf[..r.bytes]).expect("the manager's own message");
        assert_eq!(event.fds(), r.fds.len(), "{event:?}");
        if let Event::QueueJoined { process, .. } = event {
            OURS.store(process, Ordering::Relaxed);
        }
        Some((event, r.fds))
    }

    /// Returns the next event that matches; others are kept for later.
    pub fn wait<T>(&mut self, mut f: impl FnMut(&Event) -> Option<T>) -> (T, Vec<OwnedFd>) {
        for i in 0..self.inbox.len() {
            if let Some(t) = f(&self.inbox[i].0) {
                let (_, fds) = self.inbox.remove(i).expect("there");
                return (t, fds);
            }
        }
        loop {
            let (event, fds) = self
                .recv()
                .unwrap_or_else(|| panic!("hung up; inbox {:?}", self.inbox));
            match f(&event) {
                Some(t) => return (t, fds),
                None => self.inbox.push_back((event, fds)),
            }
        }
    }

    pub fn refused(&mut self, wanted: Req) -> RefusalCode {
        self.wait(|e| match e {
            Event::Refused { req, refusal } if *req == wanted => Some(refusal.code),
            _ => None,
        })
        .0
    }

    /// Returns the refusal of a request, its code and numbers; `None`: the name was exported.
    pub fn refused_with(&mut self, wanted: Req) -> Option<(RefusalCode, u64, u64)> {
        self.wait(|e| match e {
            Event::Refused { req, refusal: r } if *req == wanted => {
                Some(Some((r.code, r.asked, r.available)))
            }
            Event::Exported { req, .. } if *req == wanted => Some(None),
            _ => None,
        })
        .0
    }

    /// Reads until the connection ends; returns the code of its end.
    pub fn expelled(&mut self) -> Option<RefusalCode> {
        let mut code = None;
        while let Some((event, _)) = self.recv() {
            if let Event::Expelled { refusal } = event {
                code = Some(refusal.code);
            }
        }
        code
    }

    pub fn create_pool(&mut self, chunks: u64) -> Pool {
        self.create_pool_of(Trust::Producer, chunks)
    }

    /// Asks for a pool of `chunks` chunks, with any object as its table.
    pub fn ask_pool(&mut self, trust: Trust, chunks: u64, table: impl AsFd) -> Req {
        let req = self.req();
        let request = Request::CreatePool {
            req,
            name: "pool".to_owned(),
            shape: tranship_proto::PoolShape {
                max_bytes: chunks * CHUNK,
                slots: SLOTS,
                chunk_bytes: CHUNK,
                trust,
            },
        };
        self.send(&request, &[table.as_fd()]);
        req
    }

    pub fn create_pool_of(&mut self, trust: Trust, chunks: u64) -> Pool {
        let (fd, table) = TableRw::create(SLOTS, chunks * CHUNK, CHUNK).expect("table");
        let req = self.ask_pool(trust, chunks, &fd);
        let ((id, entry), _) = self.wait(|e| match e {
            Event::PoolCreated {
                req: r,
                pool,
                entry,
                ..
            } if *r == req => Some((*pool, *entry)),
            _ => None,
        });
        Pool {
            id,
            entry,
            table,
            table_fd: fd,
            chunks: Vec::new(),
            max_bytes: chunks * CHUNK,
            trust,
        }
    }

    pub fn grant(&mut self, pool: PoolId, chunks: u32) -> Result<u32, RefusalCode> {
        let req = self.req();
        self.send(&Request::Grant { req, pool, chunks }, &[]);
        let r = req;
        self.wait(|e| match e {
            Event::Granted { req, chunks, .. } if *req == r => Some(Ok(*chunks)),
            Event::Refused { req, refusal } if *req == r => Some(Err(refusal.code)),
            _ => None,
        })
        .0
    }

    pub fn show_chunk(&mut self, pool: &mut Pool, index: u32, serial: u32) {
        let (fd, map) = chunk(pool.trust);
        let asked = self.try_show(pool.id, index, serial, &fd);
        self.wait(|e| matches!(e, Event::ChunksReady { req, .. } if *req == asked).then_some(()));
        pool.chunks.push((index, serial, fd, map));
    }

    pub fn try_show(&mut self, pool: PoolId, index: u32, serial: u32, fd: &OwnedFd) -> Req {
        let req = self.req();
        let show = Request::ShowChunks {
            req,
            pool,
            chunks: vec![(index, serial)],
            least: 1,
        };
        self.send(&show, &[fd.as_fd()]);
        req
    }

    pub fn export(&mut self, name: &str, role: Role) {
        self.ask_export(name, role);
        self.wait(|e| matches!(e, Event::Exported { .. }).then_some(()));
    }

    /// Asks for a name, and waits for nothing.
    pub fn ask_export(&mut self, name: &str, role: Role) -> Req {
        let (req, name) = (self.req(), name.to_owned());
        self.send(&Request::Export { req, name, role }, &[]);
        req
    }

    /// Connects to a name as its sink, and waits for nothing.
    pub fn ask_connect(&mut self, name: &str, wait: bool, half: &OwnedFd) -> Req {
        let req = self.req();
        let request = Request::Connect {
            req,
            name: name.to_owned(),
            role: Role::Sink,
            lines: 16,
            wait,
        };
        self.send(&request, &[half.as_fd()]);
        req
    }

    /// Asks the manager a question and waits for the end of the answer: all earlier requests were then handled.
    pub fn sync(&mut self) -> Vec<tranship_proto::StatRecord> {
        let r = self.req();
        self.send(&Request::Stat { req: r }, &[]);
        let mut records = Vec::new();
        self.wait(|e| match e {
            Event::Stat { req, record } if *req == r => {
                records.push(record.clone());
                None
            }
            Event::StatEnd { req } if *req == r => Some(()),
            _ => None,
        });
        self.inbox.retain(|(e, _)| !matches!(e, Event::Stat { .. }));
        records
    }
}

/// Makes a chunk for a pool of this level.
pub fn chunk(trust: Trust) -> (OwnedFd, RwMapping) {
    let sealing = match trust.all_write() {
        true => Sealing::Shared,
        false => Sealing::OneWriter,
    };
    let opts = Opts {
        sealing,
        ..Opts::default()
    };
    make("chunk", usize::try_from(CHUNK).expect("small"), opts).expect("chunk")
}

pub struct Pool {
    pub id: PoolId,
    pub entry: u32,
    pub table: TableRw,
    pub table_fd: OwnedFd,
    pub chunks: Vec<(u32, u32, OwnedFd, RwMapping)>,
    pub max_bytes: u64,
    pub trust: Trust,
}

/// A channel from `source` (the exporter) to `sink`.
pub struct Chan {
    pub id: ChannelId,
    pub source_half: (OwnedFd, HalfRw),
    pub sink_half: (OwnedFd, HalfRw),
}

pub fn open_channel(source: &mut Client, sink: &mut Client, name: &str) -> Chan {
    source.export(name, Role::Source);
    let sink_half = HalfRw::create(Side::Sink, 16).expect("half");
    let source_half = HalfRw::create(Side::Source, 16).expect("half");
    sink.ask_connect(name, false, &sink_half.0);
    let (id, _) = source.wait(|e| match e {
        Event::Incoming { channel, .. } => Some(*channel),
        _ => None,
    });
    let req = source.req();
    let accept = Request::Accept {
        req,
        channel: id,
        lines: 16,
    };
    source.send(&accept, &[source_half.0.as_fd()]);
    sink.wait(|e| matches!(e, Event::Opened { channel, .. } if *channel == id).then_some(()));
    source.wait(|e| matches!(e, Event::Accepted { channel, .. } if *channel == id).then_some(()));
    Chan {
        id,
        source_half,
        sink_half,
    }
}

/// The counters of one assignment.
pub struct Assigned {
    pub sent: (OwnedFd, CountsRw),
    pub rcvd: (OwnedFd, CountsRw),
    pub refs: Option<(OwnedFd, RefsRw)>,
}

/// Both sides' counters of an assignment that is still to be made.
pub struct Counts {
    pub sent: (OwnedFd, CountsRw),
    pub rcvd: (OwnedFd, CountsRw),
}

impl Counts {
    pub fn new() -> Counts {
        Counts {
            sent: CountsRw::create(tranship_region::layout::Way::Sent, SLOTS).expect("sent"),
            rcvd: CountsRw::create(tranship_region::layout::Way::Rcvd, SLOTS).expect("rcvd"),
        }
    }
}

pub fn assign(
    source: &mut Client,
    sink: &mut Client,
    channel: ChannelId,
    pool: PoolId,
) -> Assigned {
    let Counts { sent, rcvd } = Counts::new();
    let req = source.req();
    source.send(&Request::Assign { req, channel, pool }, &[sent.0.as_fd()]);
    let (known, _) = sink.wait(|e| match e {
        Event::PoolOffer { known, .. } => Some(*known),
        _ => None,
    });
    let refs = (!known).then(|| RefsRw::create(SLOTS).expect("refs"));
    let mut fds = vec![rcvd.0.as_fd()];
    fds.extend(refs.as_ref().map(|r| r.0.as_fd()));
    let accept = Request::AcceptPool {
        channel,
        pool,
        with_refs: refs.is_some(),
    };
    sink.send(&accept, &fds);
    source.wait(|e| matches!(e, Event::Assigned { req: r, .. } if *r == req).then_some(()));
    Assigned { sent, rcvd, refs }
}
