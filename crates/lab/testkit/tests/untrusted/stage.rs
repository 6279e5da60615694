//! The processes, each as its own user, and the page that never comes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tranship_core::Domain;
use tranship_testkit::{
    Launch, Peer, Privilege, Watchdog, fuse, listening, manager, own_user, skipped,
};

pub use tranship_testkit::hostile::SOCKET;

const MANAGER: u32 = 1;
const HONEST: u32 = 2;
const ATTACKER: u32 = 3;

pub struct Stage {
    /// File whose pages block each thread that touches them.
    pub file: Arc<fuse::Silent>,
    _manager: Option<Actor>,
    path: PathBuf,
    _dir: tempfile::TempDir,
    _dog: Watchdog,
}

pub fn path() -> PathBuf {
    std::env::var_os(SOCKET).unwrap().into()
}

/// A process of the play. At its end, whatever has become of the test, nobody waits for the file any more: else it
/// might not end.
pub struct Actor {
    peer: Peer,
    file: Arc<fuse::Silent>,
}

impl std::ops::Deref for Actor {
    type Target = Peer;
    fn deref(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.file.let_go();
    }
}

impl Stage {
    /// `None`, after saying so, where there cannot be three users and a file that does not answer.
    pub fn new() -> Option<Stage> {
        if let Err(why) = fuse::possible() {
            skipped(format!("three users: {why}"));
            return None;
        }
        let dog = Watchdog::new();
        let dir = tranship_testkit::folder().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let mut stage = Stage {
            file: Arc::new(fuse::Silent::new().unwrap()),
            _manager: None,
            path: dir.path().join("manager.sock"),
            _dir: dir,
            _dog: dog,
        };
        let launch = stage.launch(manager(&stage.path, "socket_mode = 0o666"), MANAGER);
        stage._manager = Some(stage.actor(listening(&launch, &stage.path)));
        Some(stage)
    }

    pub fn honest(&self, launch: Launch) -> Actor {
        self.start(launch, HONEST)
    }

    pub fn attacker(&self, launch: Launch) -> Actor {
        self.start(launch, ATTACKER)
    }

    fn start(&self, launch: Launch, user: u32) -> Actor {
        self.actor(self.launch(launch, user).start().unwrap())
    }

    fn launch(&self, launch: Launch, user: u32) -> Launch {
        let id = own_user(user);
        let launch = launch.privilege(Privilege::User { uid: id, gid: id });
        launch.env(SOCKET, &self.path).capture_stderr()
    }

    fn actor(&self, peer: Peer) -> Actor {
        Actor {
            peer,
            file: Arc::clone(&self.file),
        }
    }
}

pub fn join(name: &str) -> Domain {
    let builder = Domain::builder().name(name).socket(path());
    builder.connect().unwrap()
}

/// Maps pages of the file: a thread that touches them waits.
#[allow(dead_code, reason = "not every play needs them")]
pub fn never(file: &Path) -> &'static mut [u8] {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    const LEN: usize = 4096;
    // SAFETY: a new mapping, for ever; only the kernel touches it.
    unsafe {
        let at = mmap(std::ptr::null_mut(), LEN, prot, MapFlags::PRIVATE, &file, 0).unwrap();
        std::mem::forget(file);
        std::slice::from_raw_parts_mut(at.cast(), LEN)
    }
}
