//! The manager, and the processes that are started beside it.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;

use anyhow::{Context, Result};
use tranship_testkit::hostile::{Load, SOCKET};
use tranship_testkit::{Launch, Peer, Privilege, Random};

use super::cast;
use super::groups::Groups;

/// Users of the manager, of honest clients, of the attackers.
const MANAGER: u32 = 64_011;
const HONEST: u32 = 64_012;
pub(super) const ATTACKERS: [u32; 2] = [64_013, 64_014];

/// Small enough to be reached.
pub(super) const CONFIG: &str = "total = \"1GiB\"\n[limits]\nconnections = 256\npools = 512\nchannels = 512\nnames = 512\ndescriptors = 2048\nrecords = 20000\n";
/// Names that honest domains offer.
pub(super) const NAMES: [&str; 2] = ["honest", "honest-too"];

/// The manager, in a folder of its own.
pub(super) struct Stage {
    pub(super) manager: Peer,
    pub(super) groups: Groups,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Stage {
    pub(super) fn new(core: Option<usize>) -> Result<Stage> {
        let dir = tranship_testkit::folder()?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        let home = dir.path().join("run");
        std::fs::create_dir(&home)?;
        chown(&home, Some(MANAGER), Some(MANAGER))?;
        let path = home.join("manager.sock");
        let manager = start(cast::manager(), MANAGER, &path)?;
        manager.send(&(CONFIG, core))?;
        let () = manager.recv().with_context(|| manager.stderr())?;
        let groups = Groups::new(MANAGER, [HONEST, ATTACKERS[0], ATTACKERS[1]]);
        Ok(Stage {
            manager,
            groups,
            path,
            _dir: dir,
        })
    }

    pub(super) fn honest(&self, launch: Launch) -> Result<Peer> {
        start(launch, HONEST, &self.path)
    }

    pub(super) fn load(&self, attackers: usize, core: Option<usize>) -> Result<Load> {
        let names = NAMES.map(str::to_owned);
        let random = Random::printed("siege");
        Ok(Load::start(
            &self.path, attackers, &ATTACKERS, &names, core, random,
        )?)
    }
}

fn start(launch: Launch, user: u32, socket: &std::path::Path) -> Result<Peer> {
    let (uid, gid) = (user, user);
    let launch = launch.privilege(Privilege::User { uid, gid });
    let launch = launch.env(SOCKET, socket).own_session();
    Ok(launch.capture_stderr().start()?)
}
