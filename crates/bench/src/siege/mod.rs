//! `siege`: a manager under hostile clients of two users, and what an honest user sees of it.
//!
//! Manager, honest clients and attackers are processes of four users, so that this needs root. The attackers are the testkit's:
//! everything that is known to have stopped a manager, and everything malformed, in random order. The honest client speaks the
//! protocol by hand, so that what is measured is the manager and nothing of the library.

mod cast;
mod channels;
mod clients;
mod groups;
mod pair;
mod watch;

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tranship_testkit::hostile::{Load, SOCKET};
use tranship_testkit::{Launch, Peer, Privilege, Random, is_root};

use crate::options::Common;
use crate::plan::Outcome;
pub use clients::PROMISED;
use groups::Groups;

/// Users of the manager, of honest clients, of the attackers.
const MANAGER: u32 = 64_011;
const HONEST: u32 = 64_012;
const ATTACKERS: [u32; 2] = [64_013, 64_014];

/// Small enough to be reached.
const CONFIG: &str = "total = \"1GiB\"\n[limits]\nconnections = 256\npools = 512\nchannels = 512\nnames = 512\ndescriptors = 2048\nrecords = 20000\n";
/// Names that honest domains offer.
const NAMES: [&str; 2] = ["honest", "honest-too"];
/// The longest that is waited for the attackers' things to be gone.
const GONE: Duration = Duration::from_secs(60);

/// What is measured.
pub const MODES: [&str; 2] = ["clients", "channels"];

/// The manager, in a folder of its own.
struct Stage {
    manager: Peer,
    groups: Groups,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn new(core: Option<usize>) -> Result<Stage> {
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

    fn honest(&self, launch: Launch) -> Result<Peer> {
        start(launch, HONEST, &self.path)
    }

    fn load(&self, attackers: usize, core: Option<usize>) -> Result<Load> {
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

/// Measures; nothing without root, after saying so.
pub fn bench(common: &Common, attackers: usize, modes: &[String]) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if !is_root() {
        eprintln!("SKIPPED: siege: needs root, to be four users");
        return Ok(outcome);
    }
    if let Err(why) = Load::whole() {
        eprintln!("SKIPPED: of siege, files that nobody answers for: {why}");
    }
    let wants = |mode: &str| modes.is_empty() || modes.iter().any(|m| m == mode);
    if wants("clients") {
        clients::measure(common, attackers, &mut outcome)?;
    }
    if wants("channels") {
        channels::measure(common, attackers, &mut outcome)?;
    }
    Ok(outcome)
}
