//! Children: they talk, die, stop, and hold their resources; the watchdog barks.

use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use tranship_testkit::resource::{Held, fds, shmem};
use tranship_testkit::{
    Control, Exit, Launch, PeerError, Privilege, Watchdog, child, skipped, until,
};

fn dog() -> Watchdog {
    Watchdog::new()
}

child!(
    fn echo(ctl: Control) -> Result<(), PeerError> {
        while let Some((line, fds)) = ctl.recv_fds::<String>()? {
            let fds: Vec<_> = fds.iter().map(|f| f.as_fd()).collect();
            ctl.send_fds(&format!("{line}!"), &fds)?;
        }
        Ok(())
    }
);

/// Variables by which a run controls the skips of all its processes: the only ones that children of tests inherit.
const OF_THE_RUN: [&str; 2] = ["TRANSHIP_SKIPS", "TRANSHIP_NO_SKIP"];

child!(
    fn environment(ctl: Control) {
        let keys: Vec<String> = std::env::vars()
            .map(|(k, _)| k)
            .filter(|k| k.starts_with("TRANSHIP") && !OF_THE_RUN.contains(&k.as_str()))
            .collect();
        ctl.send(&keys).unwrap();
    }
);

child!(
    fn panics(_ctl: Control) {
        panic!("on purpose");
    }
);

child!(
    fn fails(_ctl: Control) -> Result<(), String> {
        Err("no luck".into())
    }
);

child!(
    fn bitten(_ctl: Control) {
        fn place_of_the_hang() {
            let (_keep, never) = std::sync::mpsc::channel::<()>();
            let _ = never.recv();
        }
        let _dog = Watchdog::within(Duration::from_millis(20));
        place_of_the_hang();
    }
);

child!(
    fn identity(ctl: Control) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let field = |f: &str| {
            status
                .lines()
                .find_map(|l| l.strip_prefix(f))
                .unwrap_or("")
                .trim()
                .to_owned()
        };
        let opens = std::fs::File::open("/etc/shadow").is_ok();
        // SAFETY: reads a flag.
        let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
        ctl.send(&(
            field("Uid:"),
            field("CapEff:"),
            field("CapBnd:"),
            field("NoNewPrivs:"),
            opens,
            dumpable,
        ))
        .unwrap();
    }
);

child!(
    fn holder(ctl: Control) {
        let mut kept = Vec::new();
        let mut mapped = Vec::new();
        while let Some(command) = ctl.recv::<String>().unwrap() {
            match command.as_str() {
                "grow" => {
                    let fd = memfd_create("held", MemfdFlags::CLOEXEC).unwrap();
                    rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, 1 << 20)
                        .unwrap();
                    kept.push(fd);
                }
                "map" => {
                    let (prot, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
                    // SAFETY: a fresh mapping.
                    let at = unsafe {
                        rustix::mm::mmap(std::ptr::null_mut(), 1 << 20, prot, flags, &kept[0], 0)
                    };
                    mapped.push(at.unwrap());
                }
                "close" => kept.clear(),
                "unmap" => {
                    for at in mapped.drain(..) {
                        // SAFETY: mapped above, used by nobody.
                        unsafe { rustix::mm::munmap(at, 1 << 20) }.unwrap();
                    }
                }
                _ => {}
            }
            ctl.send(&()).unwrap();
        }
    }
);

#[test]
fn answers_until_the_socket_closes() {
    let _dog = dog();
    let peer = echo().start().unwrap();
    assert_eq!(peer.ask::<String>("a"), "a!");
    assert!(!peer.has_ended());
    let file = memfd_create("sent", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 77).unwrap();
    peer.send_fds("fd", &[file.as_fd(), file.as_fd()]).unwrap();
    let (line, back) = peer.recv_fds::<String>().unwrap();
    assert_eq!((line.as_str(), back.len()), ("fd!", 2));
    assert_eq!(rustix::fs::fstat(&back[1]).unwrap().st_size, 77);
}

#[test]
fn a_killed_child_is_an_error_not_a_hang() {
    let _dog = dog();
    let peer = echo().start().unwrap();
    peer.stop();
    // A page that it waits for may come first.
    let stat = format!("/proc/{}/stat", peer.pid());
    until(|| std::fs::read_to_string(&stat).unwrap().contains(") T "));
    peer.send("while stopped").unwrap();
    assert!(!peer.control().is_ready());
    peer.resume();
    assert_eq!(peer.expect::<String>(), "while stopped!");
    assert_eq!(peer.kill(), Exit::Signal(libc::SIGKILL));
    assert!(peer.has_ended());
    assert!(matches!(
        peer.recv::<String>(),
        Err(PeerError::Ended(Exit::Signal(9)))
    ));
    peer.resume();
}

#[test]
fn nothing_is_inherited_but_what_is_named() {
    let _dog = dog();
    let leak = memfd_create("leak", MemfdFlags::empty()).unwrap();
    let peer = environment()
        .env("TRANSHIP_SOCKET", "/x")
        .crash_at("p")
        .start()
        .unwrap();
    assert_eq!(
        peer.expect::<Vec<String>>(),
        ["TRANSHIP_SOCKET", "TRANSHIP_CRASH_AT"]
    );
    assert_eq!(peer.wait(), Exit::Code(0));
    drop(leak);
    let peer = echo().start().unwrap();
    peer.ask::<String>("up");
    let open = fds(peer.pid()).unwrap();
    assert!(open.iter().all(|f| !f.target.contains("leak")), "{open:?}");
    assert_eq!(open.len(), 4, "stdio and the control socket: {open:?}");
}

#[test]
fn failures_are_told_apart() {
    let _dog = dog();
    let peer = panics().capture_stderr().start().unwrap();
    assert_eq!(peer.wait(), Exit::Code(101));
    assert!(peer.stderr().contains("on purpose"));
    let peer = fails().capture_stderr().start().unwrap();
    assert_eq!(peer.wait(), Exit::Code(1));
    assert!(peer.stderr().contains("no luck"));
    assert!(Launch::program("/nowhere").start().is_err());
    assert!(matches!(
        Launch::program("/etc/passwd").start(),
        Err(PeerError::Setup { step: "exec", .. })
    ));
    let peer = Launch::program("/bin/sh")
        .arg("-c")
        .arg("exit 7")
        .start()
        .unwrap();
    assert_eq!(peer.wait(), Exit::Code(7));
}

#[test]
fn the_watchdog_says_where_and_aborts() {
    let peer = bitten().capture_stderr().start().unwrap();
    assert_eq!(peer.wait(), Exit::Signal(libc::SIGABRT));
    let text = peer.stderr();
    assert!(
        text.contains("place_of_the_hang") && text.contains("tests/all/peers.rs"),
        "{text}"
    );
    assert!(text.contains("state S"), "{text}");
}

type Identity = (String, String, String, String, bool, i32);

#[test]
fn privileges_are_what_they_say() {
    let _dog = dog();
    let root_of_files = "000000000000000f";
    if let Some(reason) = Privilege::nobody().impossible() {
        return skipped(reason);
    }
    let (uid, caps, _, _, opens, dumpable): Identity = identity()
        .privilege(Privilege::nobody())
        .start()
        .unwrap()
        .expect();
    assert!(uid.starts_with("65534\t65534\t65534"), "{uid}");
    assert_eq!(
        (caps.as_str(), opens, dumpable),
        ("0000000000000000", false, 1)
    );
    if let Some(reason) = Privilege::root_of_files().impossible() {
        return skipped(reason);
    }
    let (uid, caps, bound, no_new, opens, dumpable): Identity = identity()
        .privilege(Privilege::root_of_files())
        .undumpable()
        .start()
        .unwrap()
        .expect();
    assert!(uid.starts_with("0\t0"), "{uid}");
    assert_eq!(
        (caps.as_str(), bound.as_str()),
        (root_of_files, root_of_files)
    );
    assert_eq!((no_new.as_str(), opens, dumpable), ("1", true, 0));
}

#[test]
fn what_a_child_holds_is_counted_once() {
    let _dog = dog();
    let (one, two) = (holder().start().unwrap(), holder().start().unwrap());
    one.ask::<()>("");
    two.ask::<()>("");
    let both = || Held::by([one.pid(), two.pid()]).unwrap();
    let start = both();
    assert_eq!(
        (start.memfds.len(), start.mappings, start.threads),
        (0, 0, 2)
    );
    one.ask::<()>("grow");
    one.ask::<()>("map");
    one.ask::<()>("map");
    let now = both();
    assert_eq!(
        (now.memfds.len(), now.resident(), now.memfd_fds),
        (1, 1 << 20, 1)
    );
    assert_eq!((now.mappings, now.mapped), (2, 2 << 20), "{now}");
    assert_eq!(now.memfds_named("held").len(), 1);
    assert!(shmem().unwrap() >= 1 << 20);
    assert_eq!(
        now.differences(&start).len(),
        7,
        "{:?}",
        now.differences(&start)
    );
    one.ask::<()>("close");
    let now = both();
    assert_eq!(
        (now.memfd_fds, now.memfds.len()),
        (0, 1),
        "seen through its mapping"
    );
    if tranship_testkit::is_root() {
        // Others see only the pages that the process itself has touched.
        assert_eq!(now.resident(), 1 << 20);
    } else {
        skipped("what others see of a mapping, in part: needs root");
    }
    one.ask::<()>("unmap");
    assert_eq!(both().differences(&start), [""; 0]);
    two.ask::<()>("grow");
    two.kill();
    assert_eq!(both().memfds.len(), 0, "the dead hold nothing");
}
