//! All memory of data, of every kind at once. `tranship stat` accounts for the memory that the kernel has, and memory
//! that the manager wants back goes, of each kind. Bytes are the kernel's: of memfds, each counted once, and of the
//! pages of a private mapping.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tranship_block::{Cache, Cached, Data, Fault, Info, Job, Lease, Op, Request, Store};
use tranship_cache::{Mode, Options, Outcome, Server};
use tranship_core::admin::{HeapStat, ManagerStat, PoolStat, StatRecord};
use tranship_core::{
    Buffer, ChannelOptions, Domain, Message, PoolId, PoolOptions, Receiver, Sender, Trust,
};
use tranship_manager::{Config, PressureConfig};
use tranship_testkit::{Control, Held, Peer, Watchdog, child, until};

const CHUNK: usize = 256 << 10;
/// Chunks that a pool may have.
const MOST: usize = 64;
const MIB: u64 = 1 << 20;

/// Kinds of pools: each level of trust, and sealed buffers.
const SEALED: usize = Trust::ALL.len();

/// A value of the cache server that fills a pageblock: so all that is charged for values has been touched.
const VALUE: usize = 64 << 10;

/// Page in which a process counts the bytes that it sends from arenas (`tranship-zcopy-tally`): not data, and no
/// manager knows it.
const TALLY: &str = "tranship-zcopy-tally";

/// Pages of the block cache: no other mapping is as long.
const BLOCKS: u64 = 3077;
const BLOCK: u64 = 4096;

fn join(name: &str, socket: &str) -> Domain {
    let builder = Domain::builder().name(name).socket(socket);
    builder.helper_thread(true).connect().expect("connect")
}

fn name(kind: usize) -> String {
    format!("kind-{kind}")
}

fn options(kind: usize) -> PoolOptions {
    let options = PoolOptions::new((MOST * CHUNK) as u64).chunk_bytes(CHUNK as u64);
    let options = options.name(&name(kind));
    match kind {
        SEALED => options.trust(Trust::None).seal_from(1),
        level => options.trust(Trust::ALL[level]).seal_from(u64::MAX),
    }
}

// Has the manager in it, which looks for pressure below the folder that it is told first; reports its figures, or sets
// a quota first.
child!(
    fn manages(ctl: Control) {
        let root: String = ctl.recv().unwrap().unwrap();
        let config = Config {
            pressure: PressureConfig {
                root: root.into(),
                every: Duration::from_millis(50),
                calm: Duration::from_millis(200),
                ..PressureConfig::default()
            },
            ..Config::default()
        };
        let builder = Domain::builder().name("manager").config(config);
        let domain = builder.embedded().unwrap();
        let socket = domain.socket_path().unwrap().display().to_string();
        ctl.send(&socket).unwrap();
        while let Some(quota) = ctl.recv::<Option<(PoolId, u64)>>().unwrap() {
            if let Some((id, bytes)) = quota {
                domain.admin().set_quota(id, bytes).unwrap();
            }
            ctl.send(&domain.admin().stat().unwrap()).unwrap();
        }
    }
);

// A pool of each kind. Commands: how many chunks of each to send and to hold from now on.
child!(
    fn writes(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = join("writer", &socket);
        let pools: Vec<_> = (0..=SEALED)
            .map(|kind| domain.create_pool(options(kind)).unwrap())
            .collect();
        let mut senders: Vec<Sender> = (0..=SEALED)
            .map(|kind| domain.open::<Sender>(&name(kind)).unwrap())
            .collect();
        let mut held: Vec<Buffer> = Vec::new();
        while let Some(chunks) = ctl.recv::<usize>().unwrap() {
            held.clear();
            for (pool, sender) in pools.iter().zip(&mut senders) {
                for chunk in 0..chunks {
                    let mut buf = pool.alloc(CHUNK).unwrap();
                    buf.write(0, &vec![chunk.to_le_bytes()[0]; CHUNK]).unwrap();
                    let buf = buf.freeze();
                    sender.send(buf.clone()).unwrap();
                    held.push(buf);
                }
            }
            ctl.send(&chunks).unwrap();
        }
    }
);

// Takes and holds so many of each.
child!(
    fn reads(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = join("reader", &socket);
        // For buffers that come from a pool of level `none` and are not sealed.
        let room = PoolOptions::new((MOST * CHUNK) as u64).chunk_bytes(CHUNK as u64);
        let copies = domain.create_pool(room.name("copies")).unwrap();
        let listeners: Vec<_> = (0..=SEALED)
            .map(|kind| {
                let options = ChannelOptions::new().snapshots(copies.id());
                domain
                    .listen_with::<Receiver>(&name(kind), options)
                    .unwrap()
            })
            .collect();
        ctl.send(&0).unwrap();
        let accept = |listener: &tranship_core::Listener<Receiver>| listener.accept().unwrap();
        let mut receivers: Vec<_> = listeners.iter().map(accept).collect();
        let mut held: Vec<Message> = Vec::new();
        while let Some(messages) = ctl.recv::<usize>().unwrap() {
            held.clear();
            for receiver in &mut receivers {
                held.extend((0..messages).map(|_| receiver.recv().unwrap()));
            }
            ctl.send(&held.len()).unwrap();
        }
    }
);

// A cache server. Commands: how many values to store, under keys from 0 on. Says how many of these there are then.
child!(
    fn serves(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let server = Server::start(Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            threads: 1,
            domain: Some(join("cache", &socket)),
            ..Options::default()
        });
        let server = server.unwrap();
        let store = server.store();
        while let Some(values) = ctl.recv::<u64>().unwrap() {
            for key in 0..values {
                let mut value = loop {
                    match store.reserve(VALUE) {
                        Some(value) => break value,
                        // A busy manager answers later than a cache waits, and there may be no value to evict yet.
                        None => assert_eq!(key, 0, "it evicts"),
                    }
                    std::thread::yield_now();
                };
                value.fill(key.to_le_bytes()[0]);
                let put = store.put(&key.to_le_bytes(), value.freeze(), 0, 0, Mode::Set);
                assert!(matches!(put, Outcome::Stored { .. }));
            }
            let found = (0..values).filter(|key| {
                let item = store.peek(&key.to_le_bytes());
                let whole = |value: &[u8]| value.iter().all(|byte| *byte == key.to_le_bytes()[0]);
                item.is_some_and(|item| {
                    assert!(whole(&item.value));
                    true
                })
            });
            ctl.send(&(found.count() as u64)).unwrap();
        }
    }
);

/// A disk whose blocks say which they are.
#[derive(Debug)]
struct Numbers;

impl Store for Numbers {
    fn info(&self) -> Result<Info, Fault> {
        Ok(Info {
            size: BLOCKS * BLOCK,
            read_only: true,
            boot: 0,
        })
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
    fn submit(&self, mut job: Job) {
        let number = (job.request.offset / BLOCK).to_le_bytes();
        job.data.write(0, &number).expect("in bounds");
        (job.done)(job.data, Ok(Vec::new()));
    }
    fn kick(&self) {}
}

// A block cache. Commands: how many blocks to read from the first on. Says for how many bytes it has memory, and how
// many the kernel says.
child!(
    fn caches(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = join("proxy", &socket);
        let cache: Arc<Cache> = Cache::new(BLOCKS * BLOCK);
        cache.charge_to(&domain).unwrap();
        let blocks = Cached::new(&cache, Numbers);
        while let Some(count) = ctl.recv::<u64>().unwrap() {
            let (tell, told) = mpsc::channel();
            for block in 0..count {
                let tell = tell.clone();
                blocks.submit(Job {
                    request: Request::new(Op::Read, block * BLOCK, 4096),
                    data: Data::heap(4096),
                    done: Box::new(move |data, result| {
                        let mut number = [0; 8];
                        data.read(0, &mut number).unwrap();
                        let _ = tell.send(result.is_ok().then_some(u64::from_le_bytes(number)));
                    }),
                });
                assert_eq!(told.recv().unwrap(), Some(block));
            }
            ctl.send(&cache.held_bytes()).unwrap();
        }
    }
);

/// Resident bytes of the one mapping of a process that is so long.
fn mapping(peer: &Peer, bytes: u64) -> u64 {
    let all = std::fs::read_to_string(format!("/proc/{}/smaps", peer.pid())).expect("smaps");
    let of = |line: &str, what: &str| -> Option<u64> {
        let kib = line.strip_prefix(what)?.trim().strip_suffix(" kB")?;
        Some(kib.parse::<u64>().expect("a number") << 10)
    };
    let (mut sizes, mut found) = (None, Vec::new());
    for line in all.lines() {
        sizes = of(line, "Size:").or(sizes);
        if let Some(rss) = of(line, "Rss:").filter(|_| sizes == Some(bytes)) {
            found.push(rss);
        }
    }
    assert_eq!(found.len(), 1, "mappings of {bytes} B:\n{all}");
    found[0]
}

/// Figures of the manager.
#[derive(Clone, PartialEq, Debug)]
struct Told {
    manager: ManagerStat,
    pools: BTreeMap<String, PoolStat>,
    heaps: BTreeMap<String, HeapStat>,
}

struct World {
    dog: Watchdog,
    /// Files that look like the kernel's.
    root: tempfile::TempDir,
    manager: Peer,
    writer: Peer,
    reader: Peer,
    server: Peer,
    proxy: Peer,
}

/// Of the last ten seconds, tasks waited for memory in so many of a hundred.
fn stalls(root: &Path, some: u32) {
    let write = |path: &str, text: &str| {
        let path = root.join("proc").join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(&path, text).expect("a file");
    };
    write("self/cgroup", "0::/\n");
    write(
        "self/mountinfo",
        "37 30 0:30 / /cg rw - cgroup2 cgroup2 rw\n",
    );
    write(
        "pressure/memory",
        &format!("some avg10={some}.00\nfull avg10=0.00\n"),
    );
}

impl World {
    fn new() -> World {
        let dog = Watchdog::new();
        let root = tempfile::tempdir().expect("a folder");
        stalls(root.path(), 0);
        let manager = manages().start().expect("manager");
        let socket: String = manager.ask(&root.path().display().to_string());
        let reader = reads().start().expect("reader");
        assert_eq!(reader.ask::<usize>(&socket), 0);
        let others = [writes(), serves(), caches()].map(|peer| peer.start().expect("a process"));
        others
            .iter()
            .for_each(|peer| peer.send(&socket).expect("send"));
        let [writer, server, proxy] = others;
        World {
            dog,
            root,
            manager,
            writer,
            reader,
            server,
            proxy,
        }
    }

    /// Checks that so many chunks of each kind of pool are in use, at both ends.
    fn pools(&self, chunks: usize) {
        self.reader.send(&chunks).expect("send");
        assert_eq!(self.writer.ask::<usize>(&chunks), chunks);
        assert_eq!(self.reader.expect::<usize>(), chunks * (SEALED + 1));
    }

    fn told(&self, quota: Option<(PoolId, u64)>) -> Told {
        let records: Vec<StatRecord> = self.manager.ask(&quota);
        let (mut manager, mut pools, mut heaps) = (None, BTreeMap::new(), BTreeMap::new());
        for record in records {
            match record {
                StatRecord::Manager(found) => manager = Some(found),
                StatRecord::Pool(pool) => drop(pools.insert(pool.name.clone(), pool)),
                StatRecord::Heap(heap) => drop(heaps.insert(heap.name.clone(), heap)),
                _ => {}
            }
        }
        let manager = manager.expect("the manager");
        Told {
            manager,
            pools,
            heaps,
        }
    }

    /// Bytes of memfds of all processes: all but the pages of counts, of which there is one at most for each, and the
    /// arenas.
    fn kernel(&self) -> (u64, u64) {
        let all = [
            &self.manager,
            &self.writer,
            &self.reader,
            &self.server,
            &self.proxy,
        ];
        let held = Held::by(all.map(Peer::pid)).expect("held");
        let of = |name: &str| -> u64 {
            let files = held.memfds_named(name);
            files.values().map(|file| file.resident).sum()
        };
        assert!(held.memfds_named(TALLY).len() <= all.len());
        let arena = of("tranship-zcopy") - of(TALLY);
        (held.resident() - of(TALLY) - arena, arena)
    }

    /// Waits until both sides have the same figures, of each kind: memory that is given back is being unmapped
    /// meanwhile, and heaps report four times a second.
    fn accounted(&self) -> Told {
        let mut last = None;
        loop {
            let told = self.told(None);
            let (shared, arena) = self.kernel();
            let blocks = mapping(&self.proxy, BLOCKS * BLOCK);
            let granted: u64 = told.pools.values().map(|pool| pool.granted_bytes).sum();
            let admitted: u64 = told.heaps.values().map(|heap| heap.admitted_bytes).sum();
            let kernel = [shared, arena, blocks, granted + admitted];
            let says = [
                told.manager.shared_bytes(),
                told.heaps["zcopy"].live_bytes,
                told.heaps["block cache"].live_bytes,
                told.manager.granted_bytes,
            ];
            if kernel == says {
                return told;
            }
            if last != Some((kernel, says)) {
                last = Some((kernel, says));
                self.dog.step(format!(
                    "the kernel has {kernel:?}, the manager says {says:?}"
                ));
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn stat_accounts_for_what_the_kernel_has_and_each_kind_gives_back() {
    let world = World::new();
    world.pools(20);
    // A manager on a busy machine may not answer in time: then there is less for a while.
    until(|| world.server.ask::<u64>(&200u64) == 200);
    until(|| world.proxy.ask::<u64>(&BLOCKS) == BLOCKS * BLOCK);
    let full = loop {
        let told = world.accounted();
        if told.heaps["zcopy"].live_bytes == 200 * VALUE as u64 {
            break told;
        }
    };
    for kind in 0..=SEALED {
        let pool = &full.pools[&name(kind)];
        assert!(pool.data_bytes >= (20 * CHUNK) as u64, "{pool:?}");
        let level = Trust::ALL.get(kind).copied();
        assert_eq!(pool.trust, level.unwrap_or(Trust::None));
    }
    assert_eq!(full.heaps["block cache"].live_bytes, BLOCKS * BLOCK);

    // A quarter of each one's memory is to be left; pools are not used any more.
    world.pools(0);
    for (name, pool) in &full.pools {
        world.told(Some((pool.pool, (4 * CHUNK) as u64)));
        until(|| world.told(None).pools[name].granted_bytes <= (4 * CHUNK) as u64);
    }
    for heap in full.heaps.values() {
        world.told(Some((heap.heap, 3 * MIB)));
    }
    let less = loop {
        let told = world.accounted();
        let fits = |heap: &HeapStat| heap.admitted_bytes <= 3 * MIB;
        if told.heaps.values().all(fits) {
            break told;
        }
    };
    let (shared, arena) = world.kernel();
    let data = full.manager.data_bytes - less.manager.data_bytes;
    assert!(
        data >= (16 * CHUNK * (SEALED + 1)) as u64,
        "{data} B of data went"
    );
    assert!(
        shared < full.manager.shared_bytes() - data / 2,
        "{shared} B"
    );
    assert!((MIB..=3 * MIB).contains(&arena), "{arena} B");
    let blocks = mapping(&world.proxy, BLOCKS * BLOCK);
    assert!((MIB..=3 * MIB).contains(&blocks), "{blocks} B");

    // No operation fails for it, and the memory that is left is right.
    let left = world.server.ask::<u64>(&100u64);
    assert!((1..=48).contains(&left), "{left} values in 3 MiB");
    assert!(world.proxy.ask::<u64>(&BLOCKS) <= 3 * MIB);
    world.pools(2);
    world.accounted();
}

/// The memory that pools only keep is taken by `pressed.rs`.
#[test]
fn when_tasks_stall_caches_give_back() {
    let world = World::new();
    until(|| world.server.ask::<u64>(&200u64) == 200);
    until(|| world.proxy.ask::<u64>(&BLOCKS) == BLOCKS * BLOCK);
    let resident = || {
        let (_, arena) = world.kernel();
        (arena, mapping(&world.proxy, BLOCKS * BLOCK))
    };
    until(|| resident() == (200 * VALUE as u64, BLOCKS * BLOCK));
    stalls(world.root.path(), 35);
    until(|| resident().0 <= 100 * VALUE as u64);
    until(|| resident().1 <= BLOCKS * BLOCK / 2);
    stalls(world.root.path(), 0);
    // The shortage is over: the processes may have the memory again.
    until(|| world.server.ask::<u64>(&200u64) == 200);
    until(|| world.proxy.ask::<u64>(&BLOCKS) == BLOCKS * BLOCK);
    world.accounted();
}
