//! A manager that dies and is started again, and its clients' claims.

use super::*;
use tranship_manager::{Config, Embedded};
use tranship_proto::ChannelClaim;

/// The place of a manager, and the manager that is there at the moment.
pub struct House {
    _dog: Watchdog,
    manager: Option<Embedded>,
    config: Config,
    pub path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl House {
    pub fn new(config: Config) -> House {
        let dog = watchdog();
        let dir = tranship_testkit::folder().expect("a folder");
        let path = dir.path().join("m.sock");
        let manager = Some(Embedded::start(config.clone(), Some(&path)).expect("a manager"));
        House {
            _dog: dog,
            manager,
            config,
            path,
            _dir: dir,
        }
    }

    pub fn join(&self, name: &str) -> Client {
        Client::join(&self.path, name)
    }

    /// Ends the manager, and starts the next one, which knows nothing.
    pub fn restart(&mut self) {
        self.restart_with(self.config.clone());
    }

    pub fn restart_with(&mut self, config: Config) {
        drop(self.manager.take());
        self.manager = Some(Embedded::start(config, Some(&self.path)).expect("a manager"));
    }

    /// Joins again as the old client's domain, over a new connection.
    pub fn back(&self, old: &Client) -> Client {
        let back = Client::join_as(&self.path, "back", Some(old.domain));
        assert!(back.resumed);
        back
    }
}

/// A channel with its pool, from both of its ends.
pub struct Way {
    pub chan: Chan,
    pub name: String,
    pub source: DomainId,
    pub sink: DomainId,
    pub counts: Assigned,
}

impl Way {
    /// Opens a channel and assigns a pool to it.
    pub fn new(source: &mut Client, sink: &mut Client, name: &str, pool: PoolId) -> Way {
        let chan = open_channel(source, sink, name);
        let counts = assign(source, sink, chan.id, pool);
        Way {
            chan,
            name: name.to_owned(),
            source: source.domain,
            sink: sink.domain,
            counts,
        }
    }

    pub fn refs(&self) -> &(OwnedFd, RefsRw) {
        self.counts.refs.as_ref().expect("the reader's first way")
    }

    fn on_reader_set(&self) -> (ChannelId, DomainId, u64) {
        (self.chan.id, self.sink, OURS.load(Ordering::Relaxed))
    }
}

/// Makes a writer with a pool, of which it has shown these chunks, and a reader of the pool.
pub fn pair(house: &House, chunks: u64, shown: &[(u32, u32)]) -> (Client, Client, Pool, Way) {
    let (mut writer, mut reader) = (house.join("writer"), house.join("reader"));
    let mut pool = writer.create_pool(chunks);
    for (index, serial) in shown {
        writer.show_chunk(&mut pool, *index, *serial);
    }
    let way = Way::new(&mut writer, &mut reader, "n", pool.id);
    (writer, reader, pool, way)
}

pub fn inode(fd: &OwnedFd) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::File::from(fd.try_clone().expect("a descriptor"));
    file.metadata().expect("fstat").ino()
}

impl Client {
    pub fn claim_pool(&mut self, pool: &Pool) {
        let claim = Request::ClaimPool {
            req: self.req(),
            pool: pool.id,
            name: "pool".into(),
            shape: tranship_proto::PoolShape {
                max_bytes: pool.max_bytes,
                slots: SLOTS,
                chunk_bytes: CHUNK,
                trust: pool.trust,
            },
        };
        self.send(&claim, &[pool.table_fd.as_fd()]);
        for (index, serial, fd, _) in &pool.chunks {
            self.claim_chunk(pool.id, *index, *serial, fd);
        }
    }

    pub fn claim_chunk(&mut self, pool: PoolId, index: u32, serial: u32, fd: &OwnedFd) -> Req {
        let req = self.req();
        let claim = Request::ClaimChunk {
            req,
            pool,
            index,
            serial,
        };
        self.send(&claim, &[fd.as_fd()]);
        req
    }

    /// Claims the writer's reader set: these ways' sinks as readers, and these ways.
    pub fn claim_reader_set(&mut self, pool: &Pool, readers: &[&Way], queues: &[&Way]) {
        let reader = |w: &&Way| (w.sink, inode(&w.refs().0));
        let claim = Request::ClaimReaderSet {
            req: self.req(),
            pool: pool.id,
            readers: readers.iter().map(reader).collect(),
            queues: queues.iter().map(|w| w.on_reader_set()).collect(),
        };
        self.send(&claim, &[]);
    }

    pub fn claim_reader(&mut self, pool: &Pool, way: &Way, mapped: &[(u32, u32)]) {
        let claim = Request::ClaimReader {
            req: self.req(),
            pool: pool.id,
            slots: SLOTS,
            table: inode(&pool.table_fd),
            trust: pool.trust,
            mapped: mapped.to_vec(),
        };
        self.send(&claim, &[way.refs().0.as_fd()]);
    }

    /// Claims this client's end of a channel.
    pub fn claim_end(&mut self, way: &Way) -> Req {
        let halves = (&way.chan.source_half.0, &way.chan.sink_half.0);
        let (role, peer, (own, other)) = match self.domain == way.source {
            true => (Role::Source, way.sink, halves),
            false => (Role::Sink, way.source, (halves.1, halves.0)),
        };
        let req = self.req();
        let claim = ChannelClaim {
            channel: way.chan.id,
            name: way.name.clone(),
            role,
            peer,
            lines: 16,
            peer_inode: inode(other),
        };
        self.send(&Request::ClaimChannel { req, claim }, &[own.as_fd()]);
        req
    }

    /// Claims this client's counters of an assignment.
    pub fn claim_assign(&mut self, way: &Way, pool: PoolId) -> Req {
        let (req, channel) = (self.req(), way.chan.id);
        let claim = Request::ClaimAssign { req, channel, pool };
        let counts = &way.counts;
        let own = match self.domain == way.source {
            true => &counts.sent.0,
            false => &counts.rcvd.0,
        };
        self.send(&claim, &[own.as_fd()]);
        req
    }

    /// Ends the claims, and waits until the manager has read that.
    pub fn claim_done(&mut self) {
        let done = self.req();
        self.send(&Request::ClaimDone { req: done }, &[]);
        self.claimed(done);
    }

    /// Claims everything that a pool's writer with one reader has.
    pub fn claims_to_write(&mut self, pool: &Pool, way: &Way) {
        self.claim_pool(pool);
        self.claim_reader_set(pool, &[way], &[way]);
        self.claim_end(way);
        self.claim_assign(way, pool.id);
        self.claim_done();
    }

    /// Claims everything that a pool's reader over one channel has.
    pub fn claims_to_read(&mut self, pool: &Pool, way: &Way, mapped: &[(u32, u32)]) {
        self.claim_reader(pool, way, mapped);
        self.claim_end(way);
        self.claim_assign(way, pool.id);
        self.claim_done();
    }

    pub fn claimed(&mut self, req: Req) {
        self.wait(|e| matches!(e, Event::Claimed { req: r } if *r == req).then_some(()));
    }

    /// Ends the domain, as the end of its process does.
    pub fn goes(mut self) {
        self.send(&Request::Goodbye, &[]);
        assert_eq!(self.expelled(), None);
    }

    pub fn unmaps(&mut self, pool: PoolId, (index, serial): (u32, u32)) {
        let unmapped = Request::Unmapped {
            pool,
            index,
            serial,
        };
        self.send(&unmapped, &[]);
    }

    /// Gives up a pool of which nothing is mapped.
    pub fn gives_up(&mut self, pool: PoolId) {
        self.unmaps(pool, (0, 0));
    }

    /// Says whether such an event has come.
    pub fn has_heard(&mut self, what: impl Fn(&Event) -> bool) -> bool {
        self.sync();
        self.inbox.iter().any(|(e, _)| what(e))
    }

    /// Returns the manager's granted and stranded memory.
    pub fn sums(&mut self) -> (u64, u64) {
        match &self.sync()[0] {
            tranship_proto::StatRecord::Manager(m) => (m.granted_bytes, m.stranded_bytes),
            other => panic!("{other:?}"),
        }
    }
}
