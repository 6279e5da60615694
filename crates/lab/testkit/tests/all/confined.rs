//! Privileges that the manager's daemon has given up, and its end when its loop stands still.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tranship_core::admin::StatRecord;
use tranship_core::{Domain, DomainId, PoolOptions, Receiver, Sender};
use tranship_manager::{Config, Listener, Shutdown};
use tranship_sys::crash;
use tranship_testkit::{Control, Exit, Peer, Privilege, Watchdog, child};

/// Whenever its thread comes to a point after it was told so, it stands still there.
fn stand_still_if(told: Arc<AtomicBool>) {
    crash::insert("manager.before_action", move || {
        while told.load(Ordering::Relaxed) {
            std::thread::park();
        }
        stand_still_if(told);
    });
}

child!(
    fn manager(ctl: Control) {
        let (path, config): (PathBuf, String) = ctl.recv().unwrap().unwrap();
        let listener = Listener::bind(&path, 0o600).unwrap();
        let told = Arc::new(AtomicBool::new(false));
        stand_still_if(told.clone());
        ctl.send(&()).unwrap();
        std::thread::spawn(move || {
            if let Ok(Some(())) = ctl.recv() {
                told.store(true, Ordering::Relaxed);
                ctl.send(&()).unwrap();
            }
            let _ = ctl.recv::<()>();
        });
        let config = Config::parse(&config).unwrap();
        tranship_manager::run(config, listener, &Shutdown::new().unwrap(), true).unwrap();
    }
);

// Receives one message and keeps it.
child!(
    fn keeps(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder().name("keeper").socket(path);
        let domain = domain.autostart(false).connect().unwrap();
        let mut receiver = domain.open::<Receiver>("film").unwrap();
        let _held = receiver.recv().unwrap();
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

fn start(path: &Path, config: &str) -> Peer {
    let peer = manager().capture_stderr().start().unwrap();
    let () = peer.ask(&(path, config));
    peer
}

fn join(path: &Path, name: &str) -> Domain {
    let domain = Domain::builder().name(name).socket(path);
    // Each process answers the other while this one waits.
    domain.helper_thread(true).connect().unwrap()
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    let mut all: Vec<u32> = list.split_whitespace().flat_map(str::parse).collect();
    for child in all.clone() {
        all.extend(children(child));
    }
    all
}

#[test]
fn it_has_no_more_than_it_needs() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("manager.sock");
    let manager = start(&path, "");
    // Helpers are at work.
    let domain = join(&path, "one");
    domain.create_pool(PoolOptions::new(1 << 20)).unwrap();
    let mut all = children(manager.pid());
    assert!(all.len() >= 2, "{all:?}");
    all.push(manager.pid());
    for pid in all {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name));
            line.unwrap().trim_start_matches(':').trim().to_owned()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(field(set), "0".repeat(16), "{set} of {status}");
        }
        if tranship_testkit::is_root() {
            assert_eq!(field("CapBnd"), "0".repeat(16), "{status}");
        }
        assert_eq!((&*field("NoNewPrivs"), &*field("Seccomp")), ("1", "2"));
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        for limit in [
            "Max core file size",
            "Max locked memory",
            "Max msgqueue size",
        ] {
            let line = limits.lines().find(|l| l.starts_with(limit)).unwrap();
            assert_eq!(line.split_whitespace().rev().nth(1), Some("0"), "{line}");
        }
    }
}

/// Returns the time slice that a process wants; nothing before Linux 6.12.
fn slice(pid: u32) -> Duration {
    let size = u32::try_from(size_of::<libc::sched_attr>()).unwrap();
    // SAFETY: integers only; the kernel writes at most `size` bytes, which are there.
    let (attr, got) = unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let got = libc::syscall(libc::SYS_sched_getattr, pid, &raw mut attr, size, 0);
        (attr, got)
    };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    Duration::from_nanos(attr.sched_runtime)
}

#[test]
fn it_and_its_helpers_want_short_slices() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("manager.sock");
    let manager = start(&path, "");
    let own = slice(std::process::id());
    if own.is_zero() {
        return tranship_testkit::skipped("this kernel knows no slices");
    }
    // Helpers are at work.
    let domain = join(&path, "one");
    domain.create_pool(PoolOptions::new(1 << 20)).unwrap();
    let short = Duration::from_micros(100);
    assert!(own > short, "{own:?}");
    for pid in children(manager.pid()).into_iter().chain([manager.pid()]) {
        assert_eq!(slice(pid), short, "{pid}");
    }
}

#[test]
fn it_says_what_it_may_need_and_how_long_it_took() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("manager.sock");
    let limits = "[limits]\ndescriptors = 1000\nrecords = 3000\n";
    let _manager = start(&path, limits);
    let domain = join(&path, "one");
    let records = domain.admin().stat().unwrap();
    let manager = records.iter().find_map(|record| match record {
        StatRecord::Manager(manager) => Some(manager),
        _ => None,
    });
    let manager = manager.unwrap();
    assert_eq!(manager.own_bytes_per_user, 1000 * 16384 + 3000 * 256);
    assert!(manager.longest_turn_us > 0, "{manager:?}");
}

/// Name of an attempt, and the function that says whether it succeeded.
type Attempt = (&'static str, fn() -> bool);

/// Returns the attempts that succeeded.
fn what_it_can() -> Vec<String> {
    let attempts: [Attempt; 6] = [
        ("a network socket", || {
            std::net::UdpSocket::bind("127.0.0.1:0").is_ok()
        }),
        ("a Unix socket with a name", || {
            UnixDatagram::unbound().is_ok()
        }),
        ("a program", || {
            let run = std::process::Command::new("/bin/true").status();
            run.is_ok_and(|s| s.success())
        }),
        ("a signal to another process", || {
            let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
            // SAFETY: it only asks whether that is allowed.
            unsafe { libc::kill(parent, 0) == 0 }
        }),
        ("memory that is executed", || {
            // SAFETY: a new mapping of its own, which nobody uses.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    libc::PROT_READ | libc::PROT_EXEC,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            at != libc::MAP_FAILED
        }),
        ("a directory", || {
            let dir = std::env::temp_dir().join(format!("confined-{}", std::process::id()));
            std::fs::create_dir(&dir).is_ok_and(|()| std::fs::remove_dir(&dir).is_ok())
        }),
    ];
    let could = attempts.iter().filter(|(_, attempt)| attempt());
    could.map(|(name, _)| (*name).to_owned()).collect()
}

child!(
    fn ends_at_once(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let before = what_it_can();
        let listener = Listener::bind(&path, 0o600).unwrap();
        let config = Config::parse("idle_exit = \"1ms\"\n").unwrap();
        tranship_manager::run(config, listener, &Shutdown::new().unwrap(), true).unwrap();
        ctl.send(&(before, what_it_can())).unwrap();
    }
);

#[test]
fn it_cannot_do_what_it_does_not_need() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let child = ends_at_once().start().unwrap();
    let (before, after): (Vec<String>, Vec<String>) = child.ask(&dir.path().join("sock"));
    assert_eq!(before.len(), 6, "{before:?}");
    assert_eq!(after, Vec::<String>::new());
}

#[test]
fn a_loop_that_stands_still_is_ended_and_the_next_manager_goes_on() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("manager.sock");
    let manager = start(&path, "watchdog = \"3s\"\n");
    let (from, to) = (join(&path, "from"), join(&path, "to"));
    let pool = from.create_pool(PoolOptions::new(4 << 20)).unwrap();
    let listener = from.listen::<Sender>("still").unwrap();
    let (mut sender, mut receiver) = std::thread::scope(|s| {
        let sender = s.spawn(|| listener.accept().unwrap());
        let receiver = to.open::<Receiver>("still").unwrap();
        (sender.join().unwrap(), receiver)
    });
    let mut exchange = |byte: u8| {
        let mut buf = pool.alloc(4 << 10).unwrap();
        buf.copy_from_slice(&vec![byte; 4 << 10]);
        sender.send(buf.freeze()).unwrap();
        let got = receiver.recv().unwrap();
        assert_eq!(got.to_vec(), vec![byte; 4 << 10]);
    };
    exchange(1);
    let () = manager.ask(&());
    // The loop stands still for the next client that asks. No thread waits for an answer.
    let asker = std::thread::spawn({
        let path = path.clone();
        move || drop(Domain::builder().name("last").socket(path).connect())
    });
    assert_eq!(
        manager.wait(),
        Exit::Signal(libc::SIGABRT),
        "{}",
        manager.stderr()
    );
    let said = manager.stderr();
    let words = "one turn of the loop has taken more than 3s, while ";
    assert!(
        said.contains(words) && said.contains("; aborting"),
        "{said}"
    );
    let uid = tranship_sys::process::getuid();
    let place = said.contains("taking connections") || said.contains(&format!("for user {uid} "));
    assert!(place, "{said}");
    // The state is as after a kill.
    exchange(2);
    let _next = start(&path, "");
    let ids = [from.id(), to.id()];
    let both_are_back = || {
        let records = from.admin().stat().unwrap_or_default();
        let here = |id: &DomainId| {
            let it = |r: &StatRecord| matches!(r, StatRecord::Domain(d) if d.domain == *id && d.connected);
            records.iter().any(it)
        };
        let _ = to.admin().stat();
        ids.iter().all(here)
    };
    while !both_are_back() {
        std::thread::yield_now();
    }
    exchange(3);
    from.create_pool(PoolOptions::new(1 << 20)).unwrap();
    asker.join().unwrap();
}

#[test]
fn the_service_manager_hears_that_the_loop_turns() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let (path, notify) = (dir.path().join("manager.sock"), dir.path().join("notify"));
    let systemd = UnixDatagram::bind(&notify).unwrap();
    let manager = manager()
        .env("NOTIFY_SOCKET", &notify)
        .env("WATCHDOG_USEC", "20000")
        .capture_stderr()
        .start()
        .unwrap();
    let () = manager.ask(&(&path, ""));
    let hear = || {
        let mut buf = [0; 64];
        let n = systemd.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..n]).into_owned()
    };
    // No client asks the manager anything.
    let said: Vec<String> = (0..4).map(|_| hear()).collect();
    assert_eq!(said, ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
}

/// It can send signals to others only if a rule says so, and then also to other users' processes, if it was started as
/// root.
#[test]
fn it_kills_where_a_rule_says_so() {
    let _dog = Watchdog::new();
    let whom = [Privilege::Inherit, Privilege::nobody()];
    for whom in whom.into_iter().filter(|w| w.impossible().is_none()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manager.sock");
        let rules =
            "linger = \"50ms\"\n[[hog]]\nname = \"keeper\"\nover = \"0%\"\naction = \"kill\"\n";
        let manager = start(&path, rules);
        let domain = join(&path, "writer");
        for open in [dir.path(), &path] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let keeper = keeps().privilege(whom.clone()).start().unwrap();
        keeper.send(&path).unwrap();
        let listener = domain.listen::<Sender>("film").unwrap();
        let mut sender = listener.accept().unwrap();
        let pool = domain.create_pool(PoolOptions::new(1 << 20)).unwrap();
        sender.send(pool.alloc(4096).unwrap().freeze()).unwrap();
        let ended = keeper.wait();
        assert_eq!(ended, Exit::Signal(9), "{whom:?}: {}", manager.stderr());
    }
}
