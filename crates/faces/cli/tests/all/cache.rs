//! `tranship cache` with the clients that people have: libmemcached's tools and conformance test, and pymemcache.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use tranship_testkit::{Watchdog, skipped, start_manager};

/// Path where no manager is: a manager that the test does not start does not admit its memory.
const NO_MANAGER: &str = "/nowhere/manager.sock";

struct Served {
    program: Child,
    address: String,
    out: BufReader<ChildStdout>,
}

impl Served {
    fn start(args: &[&str]) -> Served {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tranship"))
            .args(["cache", "--listen", "127.0.0.1:0"])
            .args(args)
            .env("TRANSHIP_SOCKET", NO_MANAGER)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server");
        let mut line = String::new();
        let mut out = BufReader::new(program.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        let address = line
            .trim()
            .rsplit(' ')
            .next()
            .expect("an address")
            .to_owned();
        Served {
            program,
            address,
            out,
        }
    }

    /// Returns its next line.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line
    }

    fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("a port")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// libmemcached's own test of servers, its ASCII part.
#[test]
fn memcapable() {
    if !has("memccapable") {
        return skipped("memccapable (package libmemcached-tools) is not there");
    }
    let _dog = Watchdog::new();
    let server = Served::start(&["--memory", "64MiB"]);
    let said = Command::new("memccapable")
        .args(["-h", "127.0.0.1", "-p", server.port(), "-a"])
        .output()
        .expect("memccapable");
    let text =
        String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(
        said.status.success() && text.contains("All tests passed"),
        "{text}"
    );
}

/// Files in and out.
#[test]
fn memccp_and_memccat() {
    if !has("memccp") || !has("memccat") {
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
        let said = Command::new(program)
            .arg(&servers)
            .args(args)
            .output()
            .expect("runs");
        assert!(
            said.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&said.stderr)
        );
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
    // Debian's, which has Debian's modules.
    let there = Command::new("/usr/bin/python3")
        .args(["-c", "import pymemcache"])
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return skipped("pymemcache (package python3-pymemcache) is not there");
    }
    let _dog = Watchdog::new();
    let server = Served::start(&["--memory", "64MiB"]);
    let said = Command::new("/usr/bin/python3")
        .args(["-c", include_str!("cache/client.py"), server.port()])
        .output()
        .expect("python3");
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
}

/// A client in Python talks on while servers come and go.
#[test]
fn a_warm_cache_survives_its_server() {
    // Debian's, which has Debian's modules.
    let there = Command::new("/usr/bin/python3")
        .args(["-c", "import pymemcache"])
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return skipped("pymemcache (package python3-pymemcache) is not there");
    }
    let _dog = Watchdog::new();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("cache.sock");
    let args = ["--take-over", socket.to_str().expect("UTF-8")];
    let mut first = Served::start(&args);
    assert!(first.line().contains("begins empty"));
    let mut client = Command::new("/usr/bin/python3")
        .args(["-c", include_str!("cache/survive.py"), first.port()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut to_client = client.stdin.take().expect("piped");
    let mut from_client = BufReader::new(client.stdout.take().expect("piped"));
    let mut heard = |what: &str| {
        let mut line = String::new();
        from_client.read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), what);
    };
    heard("2000 stored");
    let mut second = Served::start(&args);
    let said = second.line();
    assert!(
        said.contains("took over 2") && said.contains("; 0 values could not"),
        "{said}"
    );
    assert_eq!(second.address, first.address);
    assert!(first.line().contains("handed over"));
    assert!(first.program.wait().expect("its end").success());
    let mut third = Served::start(&args);
    assert!(third.line().contains("took over 2"));
    to_client.write_all(b"count\n").expect("write");
    heard("all there");
    // The values of a killed server are gone, and the next one reports that.
    third.program.kill().expect("kill");
    third.program.wait().expect("its end");
    let mut fourth = Served::start(&args);
    assert!(fourth.line().contains("begins empty"));
    drop(to_client);
    assert!(client.wait().expect("its end").success());
}

#[test]
fn what_cannot_be_is_said() {
    let ends_with = |code: i32, args: &[&str]| {
        let said = Command::new(env!("CARGO_BIN_EXE_tranship"))
            .arg("cache")
            .args(args)
            .output()
            .expect("runs");
        assert_eq!(said.status.code(), Some(code));
        String::from_utf8_lossy(&said.stderr).into_owned()
    };
    let run = |args: &[&str]| ends_with(2, args);
    let server = Served::start(&[]);
    let taken = run(&["--listen", &server.address]);
    assert!(
        taken.contains(&server.address) && taken.contains("in use"),
        "{taken}"
    );
    assert!(run(&["--memory", "1MiB"]).contains("at least"));
    let args = ["--listen", "127.0.0.1:0", "--socket", NO_MANAGER];
    let nobody = ends_with(3, &args); // as in every command
    assert!(
        nobody.contains("the manager that --socket names") && nobody.contains(NO_MANAGER),
        "{nobody}"
    );
    assert!(run(&["--memory", "64MiB", "-I", "64MiB"]).contains("at most half"));
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
    let mut program = Command::new(env!("CARGO_BIN_EXE_tranship"));
    program
        .args(["cache", "--listen", "127.0.0.1:0", "--threads", "1"])
        .arg("--take-over")
        .arg(&socket)
        .env("TRANSHIP_SOCKET", NO_MANAGER);
    let confine = move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other);
    // SAFETY: two system calls, no memory, no lock.
    unsafe { program.pre_exec(confine) };
    let said = program.output().expect("runs");
    let [out, err] = [&said.stdout, &said.stderr].map(|said| String::from_utf8_lossy(said));
    assert_eq!(said.status.code(), Some(2), "{out}{err}");
    assert!(out.starts_with("memcached protocol at 127.0.0.1:"), "{out}");
    let why =
        "tranship: the cache ends, and what it stored with it: thread `cache-0` ended by itself";
    assert!(err.lines().any(|line| line == why), "{err}");
    assert!(!out.contains("handed over"), "{out}");
    assert!(!socket.exists(), "nobody is to take over from it");
}

/// Returns the output of `tranship cache get`, and its exit code.
fn get(manager: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let said = Command::new(env!("CARGO_BIN_EXE_tranship"))
        .args(["cache", "get", "--socket", manager])
        .args(args)
        .output()
        .expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (said.status.code(), text(said.stdout), text(said.stderr))
}

#[test]
fn values_by_reference() {
    let _dog = Watchdog::new();
    let folder = tempfile::tempdir().expect("a folder");
    let manager = folder.path().join("manager.sock");
    let name = manager.to_str().expect("UTF-8");
    let _manager = start_manager(&manager, "");
    let mut server = Served::start(&["--shm", "values", "--socket", name]);
    assert_eq!(server.line(), "and by reference at values\n");
    let stream = std::net::TcpStream::connect(&server.address).expect("connect");
    let mut client = BufReader::new(stream);
    let sets = b"set k 7 1000 5\r\nhello\r\nset two 0 0 6\r\n world\r\n";
    client.get_mut().write_all(sets).expect("write");
    for _ in 0..2 {
        let mut line = String::new();
        client.read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), "STORED");
    }
    let at = ["--shm", "values"];
    let (code, out, err) = get(name, &[&at[..], &["k", "two"]].concat());
    assert_eq!((code, &*out), (Some(0), "hello world"), "{err}");
    let (code, out, err) = get(name, &[&at[..], &["k", "nothing"]].concat());
    assert_eq!((code, &*out), (Some(1), "hello"));
    assert!(err.contains("nothing is stored under `nothing`"), "{err}");
    let (code, out, _) = get(name, &[&at[..], &["--json", "k"]].concat());
    let all: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let row = &all[0];
    assert_eq!(
        (code, &row["flags"], &row["bytes"]),
        (Some(0), &7.into(), &5.into())
    );
    assert!(
        row["expires_in_s"]
            .as_u64()
            .is_some_and(|left| left <= 1000),
        "{row}"
    );
    let (code, _, err) = get(name, &["--shm", "other", "--wait", "200ms", "k"]);
    assert!(
        code == Some(1) && err.contains("no cache server shows its values at `other`"),
        "{err}"
    );
}

/// Values are charged to the server as a domain, which `stat` shows; memory that is wanted back is evicted.
#[test]
fn a_manager_admits_its_memory() {
    const MIB: u64 = 1 << 20;
    let _dog = Watchdog::new();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("manager.sock");
    let name = socket.to_str().expect("UTF-8");
    // On a machine that is short of memory the cache would have to give its own back.
    let _manager = tranship_testkit::start_manager(&socket, "[pressure]\nwatch = false");
    let server = Served::start(&["--socket", name]);
    let mut client = std::net::TcpStream::connect(&server.address).expect("connect");
    for key in 0..100 {
        let mut set = format!("set {key} 0 0 65536\r\n").into_bytes();
        set.extend_from_slice(&[b'v'; 65536]);
        set.extend_from_slice(b"\r\n");
        client.write_all(&set).expect("write");
        let mut line = [0; 8];
        client.read_exact(&mut line).expect("an answer");
        assert_eq!(&line, b"STORED\r\n");
    }
    let stat = |more: &[&str]| {
        let mut stat = Command::new(env!("CARGO_BIN_EXE_tranship"));
        let said = stat.args(["stat", "--socket", name]).args(more).output();
        let said = said.expect("runs");
        assert!(said.status.success());
        String::from_utf8(said.stdout).expect("UTF-8")
    };
    let heap = || {
        let all: serde_json::Value = serde_json::from_str(&stat(&["--json"])).expect("JSON");
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
    assert!(stat(&[]).contains("zcopy"));
    let id = tranship::PoolId(u32::try_from(bytes(&full, "heap")).expect("an id"));
    let operator = tranship::Domain::builder().socket(&socket).connect();
    let operator = operator.expect("the manager");
    operator.admin().set_quota(id, MIB).expect("a quota");
    while bytes(&heap(), "admitted_bytes") > MIB {}
}
