//! `tranship cache` with the clients that people have: libmemcached's tools and conformance test, and pymemcache.

use super::kit::{MIB, NO_MANAGER, Served, cache, joined, say};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tranship_testkit::{Home, Lines, Said, Watchdog, has, skipped, tranship};

fn exists(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns a Python with pymemcache: Debian's, which has Debian's modules. Reports the skip where there is none.
fn python() -> Option<Command> {
    let mut python = Command::new("/usr/bin/python3");
    let there = python.args(["-c", "import pymemcache"]);
    if there
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return Some(Command::new("/usr/bin/python3"));
    }
    skipped("pymemcache (package python3-pymemcache) is not there");
    None
}

/// libmemcached's own test of servers, its ASCII part.
#[test]
fn memcapable() {
    if !exists("memccapable") {
        return skipped("memccapable (package libmemcached-tools) is not there");
    }
    let _dog = Watchdog::new();
    let server = Served::start(&["--memory", "64MiB"]);
    let mut client = Command::new("memccapable");
    let said = Said::of(client.args(["-h", "127.0.0.1", "-p", server.port(), "-a"]));
    said.ends(0, &[]);
    has(&(said.out + &said.err), &["All tests passed"]);
}

/// Files in and out.
#[test]
fn memccp_and_memccat() {
    if !exists("memccp") || !exists("memccat") {
        return skipped("memccp and memccat (package libmemcached-tools) are not there");
    }
    let _dog = Watchdog::new();
    let server = Served::start(&["--memory", "64MiB"]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    let bytes: Vec<u8> = (0..300_000u32).map(|n| n.to_be_bytes()[2] | 1).collect();
    std::fs::write(&file, &bytes).expect("write");
    let servers = format!("--servers={}", server.address);
    let run = |program: &str, args: &[&str]| {
        let said = Command::new(program).arg(&servers).args(args).output();
        let said = said.expect("runs");
        assert!(said.status.success(), "{program}: {said:?}");
        said.stdout
    };
    run("memccp", &[file.to_str().expect("UTF-8")]);
    let back = run("memccat", &["file"]);
    assert!(back.starts_with(&bytes), "{} bytes came back", back.len());
    run("memcrm", &["file"]);
}

/// A client in Python that many have.
#[test]
fn pymemcache() {
    let Some(mut python) = python() else { return };
    let _dog = Watchdog::new();
    let server = Served::start(&["--memory", "64MiB"]);
    python.args(["-c", include_str!("cache/client.py"), server.port()]);
    Said::of(&mut python).ends(0, &[]);
}

/// A client in Python talks on while servers come and go.
#[test]
fn a_warm_cache_survives_its_server() {
    let Some(mut python) = python() else { return };
    let _dog = Watchdog::new();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("cache.sock");
    let args = ["--take-over", socket.to_str().expect("UTF-8")];
    let mut first = Served::start(&args);
    assert!(first.line().contains("begins empty"));
    python.args(["-c", include_str!("cache/survive.py"), first.port()]);
    let mut client = Lines::of(python.stdin(Stdio::piped()));
    let mut to_client = client.program.0.stdin.take().expect("piped");
    let mut heard = |what: &str| assert_eq!(client.line(), what);
    heard("2000 stored");
    let mut second = Served::start(&args);
    let said = second.line();
    has(&said, &["took over 2", "; 0 values could not"]);
    assert_eq!(second.address, first.address);
    assert!(first.line().contains("handed over"));
    first.lines.program.ends_well();
    let mut third = Served::start(&args);
    assert!(third.line().contains("took over 2"));
    to_client.write_all(b"count\n").expect("write");
    heard("all there");
    // The values of a killed server are gone, and the next one reports that.
    third.lines.program.kill();
    let mut fourth = Served::start(&args);
    assert!(fourth.line().contains("begins empty"));
    drop(to_client);
    client.program.ends_well();
}

#[test]
fn what_cannot_be_is_said() {
    let run = |args: &[&str]| Said::of(tranship(&["cache"]).args(args));
    let server = Served::start(&[]);
    let taken = run(&["--listen", &server.address]);
    taken.ends(2, &[&server.address, "in use"]);
    run(&["--memory", "1MiB"]).ends(2, &["at least"]);
    let args = ["--listen", "127.0.0.1:0", "--socket", NO_MANAGER];
    // As in every command.
    run(&args).ends(3, &["the manager that --socket names", NO_MANAGER]);
    run(&["--memory", "64MiB", "-I", "64MiB"]).ends(2, &["at most half"]);
}

/// The kernel lets it wait for no client: its threads end by themselves, as they would by a panic.
#[test]
fn a_server_that_loses_a_thread_says_so_and_keeps_nothing() {
    let _dog = Watchdog::new();
    let waits = [
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait,
    ];
    let rules = waits.map(|call| (call, Vec::new())).into_iter().collect();
    let no = SeccompAction::Errno(libc::EIO.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().expect("a processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, no, arch);
    let filter: BpfProgram = filter.expect("a filter").try_into().expect("a program");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("cache.sock");
    let mut program = cache(&["--threads", "1", "--take-over"]);
    program.arg(&socket);
    let confine = move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other);
    // SAFETY: two system calls, no memory, no lock.
    unsafe { program.pre_exec(confine) };
    let said = Said::of(&mut program);
    said.ends(2, &[]);
    let Said { out, err, .. } = said;
    assert!(out.starts_with("memcached protocol at 127.0.0.1:"), "{out}");
    let why =
        "tranship: the cache ends, and what it stored with it: thread `cache-0` ended by itself";
    assert!(err.lines().any(|line| line == why), "{err}");
    assert!(!out.contains("handed over"), "{out}");
    assert!(!socket.exists(), "nobody is to take over from it");
}

#[test]
fn values_by_reference() {
    let home = Home::new("");
    let (socket, values) = (home.socket(), ["--shm", "values"]);
    let name = socket.to_str().expect("UTF-8");
    let mut server = Served::start(&["--shm", "values", "--socket", name]);
    assert_eq!(server.line(), "and by reference at values");
    let mut client = server.client();
    for set in [
        &b"set k 7 1000 5\r\nhello\r\n"[..],
        b"set two 0 0 6\r\n world\r\n",
    ] {
        assert_eq!(say(&mut client, set), "STORED");
    }
    let get = |args: &[&str]| home.run(&[&["cache", "get"], args].concat());
    let at = |args: &[&'static str]| get(&[&values[..], args].concat());
    assert_eq!(at(&["k", "two"]).well(), "hello world");
    let some = at(&["k", "nothing"]);
    some.ends(1, &["nothing is stored under `nothing`"]);
    assert_eq!(some.out, "hello");
    let all = at(&["--json", "k"]).json();
    let row = &all[0];
    assert_eq!((&row["flags"], &row["bytes"]), (&7.into(), &5.into()));
    assert!(
        row["expires_in_s"]
            .as_u64()
            .is_some_and(|left| left <= 1000),
        "{row}"
    );
    let other = get(&["--shm", "other", "--wait", "200ms", "k"]);
    other.ends(1, &["no cache server shows its values at `other`"]);
}

/// Values are charged to the server as a domain, which `stat` shows; memory that is wanted back is evicted.
#[test]
fn a_manager_admits_its_memory() {
    // On a machine that is short of memory the cache would have to give its own back.
    let home = Home::new("[pressure]\nwatch = false");
    let socket = home.socket();
    let server = Served::start(&["--socket", socket.to_str().expect("UTF-8")]);
    let mut client = server.client();
    for key in 0..100 {
        let head = format!("set {key} 0 0 65536\r\n").into_bytes();
        let set = [&head[..], &[b'v'; 65536], b"\r\n"].concat();
        assert_eq!(say(&mut client, &set), "STORED");
    }
    let heap = || {
        let all = home.run(&["stat", "--json"]).json();
        let [heap] = &all["heaps"].as_array().expect("a list")[..] else {
            panic!("one heap: {all}");
        };
        assert_eq!(heap["name"], "zcopy");
        let domains = all["domains"].as_array().expect("a list");
        let owner = domains.iter().find(|d| d["domain"] == heap["owner"]);
        assert_eq!(owner.expect("its owner")["name"], "tranship-cache");
        heap.clone()
    };
    let bytes = |heap: &serde_json::Value, of: &str| heap[of].as_u64().expect("a number");
    while bytes(&heap(), "live_bytes") < 100 * 65536 {}
    let full = heap();
    assert!(bytes(&full, "admitted_bytes") >= bytes(&full, "live_bytes"));
    has(&home.run(&["stat"]).well(), &["zcopy"]);
    let id = tranship::PoolId(u32::try_from(bytes(&full, "heap")).expect("an id"));
    let operator = joined("operator", &socket);
    operator.admin().set_quota(id, MIB).expect("a quota");
    while bytes(&heap(), "admitted_bytes") > MIB {}
}
