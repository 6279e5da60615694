//! Containers share only named things. That each is charged for its memory is in `containers_exchange.rs`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use std::io::Read as _;
use tranship_testkit::{Container, Control, Exit, Watchdog, child, skipped};

type Seen = (Vec<String>, u32, u32, Vec<String>, String, bool);

child!(
    fn looks_around(ctl: Control) {
        let names = |dir: &str| {
            let mut v: Vec<_> = std::fs::read_dir(dir)
                .map(|d| {
                    d.flatten()
                        .map(|e| e.file_name().to_string_lossy().into_owned())
                        .collect()
                })
                .unwrap_or_default();
            v.sort();
            v
        };
        let namespaces: Vec<_> = ["mnt", "pid", "ipc", "net", "uts", "user"]
            .iter()
            .map(|n| {
                std::fs::read_link(format!("/proc/self/ns/{n}"))
                    .unwrap()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        // SAFETY: no arguments.
        let uid = unsafe { libc::getuid() };
        let mut hello = String::new();
        let reached =
            UnixStream::connect("/run/tranship/socket").map(|mut s| s.read_to_string(&mut hello));
        if let Err(e) = reached {
            hello = e.to_string();
        }
        let writes = std::fs::write("/usr/written", b"x").is_ok();
        let seen: Seen = (
            names("/"),
            std::process::id(),
            uid,
            namespaces,
            hello,
            writes,
        );
        ctl.send(&seen).unwrap();
        let _ = ctl.recv::<()>();
    }
);

fn look(container: Container, users: bool) {
    let dir = tranship_testkit::folder().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).unwrap();
    let peer = looks_around()
        .container(container.share(dir.path(), "/run/tranship"))
        .start()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut stream, b"hello").unwrap();
    drop(stream);
    let (root, pid, uid, namespaces, hello, writes): Seen = peer.expect();
    assert!(
        root.iter().all(|n| [
            "bin", "lib", "lib32", "lib64", "etc", "proc", "run", "tmp", "usr"
        ]
        .contains(&n.as_str())),
        "{root:?}"
    );
    assert_eq!((pid, uid, hello.as_str(), writes), (1, 0, "hello", false));
    for (name, inside) in ["mnt", "pid", "ipc", "net", "uts", "user"]
        .iter()
        .zip(namespaces)
    {
        let ours = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        let own = inside != ours.to_string_lossy();
        assert_eq!(own, *name != "user" || users, "{name}: {inside}");
    }
    assert_eq!(peer.kill(), Exit::Signal(libc::SIGKILL));
    assert!(!std::path::Path::new("/usr/written").exists());
}

#[test]
fn a_container_has_its_own_everything() {
    let _dog = Watchdog::new();
    if let Some(reason) = Container::impossible() {
        return skipped(reason);
    }
    look(Container::new(), true);
}

#[test]
fn a_container_may_share_users() {
    let _dog = Watchdog::new();
    if let Some(reason) = Container::impossible() {
        return skipped(reason);
    }
    look(Container::new().without_users(), false);
}
