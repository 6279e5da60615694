//! Memory is short outside: memory that real writers only keep goes back to the kernel, in resident bytes, and memory
//! in use does not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tranship_core::admin::StatRecord;
use tranship_core::{BufferMut, Domain, PoolOptions, Trust};
use tranship_manager::{Config, PressureConfig};
use tranship_proto::Pressure;
use tranship_testkit::{Cgroup, Control, Held, Peer, Watchdog, child, skipped, until};

const CHUNK: usize = 256 << 10;
const ALL: usize = 64;

/// Kinds of pools: each level of trust, and sealed buffers.
const SEALED: usize = Trust::ALL.len();

fn options(kind: usize) -> PoolOptions {
    let most = (ALL * CHUNK) as u64;
    // The pool gives nothing back by itself.
    let options = PoolOptions::new(most).chunk_bytes(CHUNK as u64).keep(most);
    match kind {
        SEALED => options.trust(Trust::None).seal_from(1),
        level => options.trust(Trust::ALL[level]).seal_from(u64::MAX),
    }
}

// Commands: how many chunks to hold from now on. The answer is whether they have the bytes that were written, and are
// all there.
child!(
    fn keeps(ctl: Control) {
        let (socket, kind): (String, usize) = ctl.recv().unwrap().unwrap();
        let builder = Domain::builder().name("keeper").socket(&socket);
        let domain = builder.helper_thread(true).connect().expect("connect");
        let pool = domain.create_pool(options(kind)).expect("pool");
        let mut held: Vec<BufferMut> = Vec::new();
        while let Some(want) = ctl.recv::<usize>().unwrap() {
            held.truncate(want);
            let mut refused = false;
            while held.len() < want && !refused {
                match pool.alloc_timeout(CHUNK, Duration::from_millis(500)) {
                    Ok(mut buf) => {
                        let byte = u8::try_from(held.len()).unwrap();
                        buf.write(0, &vec![byte; CHUNK]).unwrap();
                        held.push(buf);
                    }
                    Err(_) => refused = true,
                }
            }
            let whole =
                |(i, buf): (usize, &BufferMut)| buf.to_vec().iter().all(|b| usize::from(*b) == i);
            assert!(held.iter().enumerate().all(whole), "what is in use changed");
            ctl.send(&held.len()).unwrap();
        }
    }
);

/// Files that look like the kernel's.
struct Tree(tempfile::TempDir);

const V1: &str = "36 30 0:29 / /cg/memory rw - cgroup cgroup rw,memory\n";
const V2: &str = "37 30 0:30 / /cg rw - cgroup2 cgroup2 rw\n";

impl Tree {
    fn new(own: &str, mounts: &str) -> Tree {
        let tree = Tree(tempfile::tempdir().expect("a folder"));
        tree.write("proc/self/cgroup", own);
        tree.write("proc/self/mountinfo", mounts);
        tree
    }

    /// At once, as the kernel would say it.
    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(&path, text).expect("a file");
    }
}

fn manager(total: usize, pressure: PressureConfig) -> Domain {
    let config = Config {
        total: Some((total * CHUNK) as u64),
        grace: Duration::from_millis(1),
        pressure: PressureConfig {
            every: Duration::from_millis(50),
            calm: Duration::from_millis(200),
            ..pressure
        },
        ..Config::default()
    };
    let builder = Domain::builder().name("manager").config(config);
    builder.embedded().expect("embedded")
}

fn below(root: &Path) -> PressureConfig {
    PressureConfig {
        root: root.to_path_buf(),
        ..PressureConfig::default()
    }
}

fn start(manager: &Domain, kind: usize) -> Peer {
    let peer = keeps().start().expect("keeper");
    tell_where(manager, &peer, kind);
    peer
}

fn tell_where(manager: &Domain, peer: &Peer, kind: usize) {
    let socket = manager.socket_path().expect("socket").display().to_string();
    peer.send(&(socket, kind)).expect("send");
}

fn default_kind() -> usize {
    let is_default = |level: &Trust| *level == Trust::default();
    Trust::ALL.iter().position(is_default).expect("a level")
}

/// Returns the chunks that a process has, by the kernel's list of its memfds.
fn chunks(peer: &Peer) -> usize {
    let held = Held::by([peer.pid()]).expect("held");
    let chunks = held.memfds_named("tranship-chunk");
    let resident: u64 = chunks.values().map(|m| m.resident).sum();
    usize::try_from(resident).expect("small") / CHUNK
}

/// Gets that far, however late the manager answers.
fn takes(keeper: &Peer, want: usize) {
    until(|| keeper.ask::<usize>(&want) == want);
}

/// Returns the level, and how much may be granted.
fn said(manager: &Domain) -> (Pressure, u64) {
    let records = manager.admin().stat().expect("statistics");
    let found = records.iter().find_map(|record| match record {
        StatRecord::Manager(m) => Some((m.pressure, m.limit_bytes)),
        _ => None,
    });
    found.expect("the manager's record")
}

#[test]
fn when_tasks_stall_idle_memory_goes_and_comes_back() {
    (0..=SEALED).for_each(idle_memory_goes_and_comes_back);
}

fn idle_memory_goes_and_comes_back(kind: usize) {
    let _dog = Watchdog::new();
    let tree = Tree::new("0::/\n", V2);
    let stalls = "proc/pressure/memory";
    tree.write(stalls, "some avg10=0.00\nfull avg10=0.00\n");
    let manager = manager(2 * ALL, below(tree.0.path()));
    let keeper = start(&manager, kind);
    takes(&keeper, ALL);
    assert_eq!(keeper.ask::<usize>(&4), 4);
    until(|| said(&manager).0 == Pressure::None);
    // The memory of sealed buffers is nobody's but theirs: none is kept.
    let kept = |held| if kind == SEALED { held } else { ALL };
    until(|| chunks(&keeper) == kept(4));
    tree.write(stalls, "some avg10=35.00\nfull avg10=0.00\n");
    until(|| chunks(&keeper) <= 5);
    until(|| said(&manager) == (Pressure::Some, (2 * ALL * CHUNK) as u64));
    assert!(chunks(&keeper) >= 4);
    assert_eq!(keeper.ask::<usize>(&4), 4, "whole");
    // It is over: memory is kept again.
    tree.write(stalls, "some avg10=0.10\nfull avg10=0.00\n");
    until(|| said(&manager).0 == Pressure::None);
    takes(&keeper, ALL);
    assert_eq!(keeper.ask::<usize>(&0), 0);
    until(|| chunks(&keeper) == kept(0));
}

#[test]
fn near_the_limit_of_a_cgroup_nobody_grows_and_nobody_loses_what_is_in_use() {
    let _dog = Watchdog::new();
    let tree = Tree::new("3:memory:/x\n", V1);
    let used = "cg/memory/x/memory.usage_in_bytes";
    tree.write("cg/memory/x/memory.limit_in_bytes", "1000\n");
    tree.write("cg/memory/x/memory.failcnt", "0\n");
    tree.write(used, "100\n");
    let total = 2 * ALL;
    let manager = manager(total, below(tree.0.path()));
    let [one, two] = [(); 2].map(|()| start(&manager, default_kind()));
    takes(&one, ALL);
    takes(&two, 20);
    assert_eq!(one.ask::<usize>(&40), 40);
    tree.write(used, "980\n");
    until(|| said(&manager) == (Pressure::Full, (60 * CHUNK) as u64));
    until(|| chunks(&one) <= 40);
    assert_eq!(two.ask::<usize>(&30), 20, "no more than there is");
    assert_eq!((chunks(&one), chunks(&two)), (40, 20));
    assert_eq!(one.ask::<usize>(&40), 40, "whole");
    tree.write(used, "500\n");
    until(|| said(&manager) == (Pressure::None, (total * CHUNK) as u64));
    takes(&two, ALL);
    takes(&one, ALL);
}

/// Also where it is a writer's cgroup that is full, not the manager's.
#[test]
fn the_kernels_own_cgroups_are_watched() {
    let _dog = Watchdog::new();
    let group = match Cgroup::new("pressed") {
        Ok(group) => group,
        Err(error) => return skipped(format!("no cgroup of its own: {error}")),
    };
    let limit = (2 * ALL * CHUNK) as u64;
    group.limit(limit).expect("a limit");
    let pressure = PressureConfig {
        cgroups: vec![PathBuf::from(group.path())],
        // Far from where the kernel acts; other activity here does not matter.
        some_filled: 0.4,
        full_filled: 1.0,
        some: 1.0,
        full: 1.0,
        ..PressureConfig::default()
    };
    let manager = manager(2 * ALL, pressure);
    let keeper = keeps().cgroup(&group).start().expect("keeper");
    tell_where(&manager, &keeper, default_kind());
    takes(&keeper, ALL);
    assert_eq!(keeper.ask::<usize>(&4), 4);
    // Half of its permitted memory is in use, then a tenth.
    until(|| chunks(&keeper) <= 5);
    until(|| group.usage().expect("usage") < limit / 4);
    assert_eq!(keeper.ask::<usize>(&4), 4, "whole");
    until(|| said(&manager).0 == Pressure::None);
}
