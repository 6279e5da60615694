//! The manager and the victim, each a user of its own.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tranship_core::{ChannelOptions, Domain, Error, PoolOptions, Receiver, Sender, Wait};
use tranship_manager::{Config, Listener, Shutdown};
use tranship_testkit::{Control, Held, Launch, Peer, Privilege, Watchdog, child, is_root, skipped};

pub use tranship_testkit::hostile::SOCKET;

const MANAGER: u32 = 64_001;
/// Of managers whose descriptors are counted: the kernel counts those on their way for each user, whatever the process.
fn nobody_else() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    100_000 + std::process::id() % 1_000_000 * 16 + NEXT.fetch_add(1, Ordering::Relaxed) % 16
}

const VICTIM: u32 = 64_002;
/// The first attackers' user, and the other one.
pub const ATTACKERS: [u32; 2] = [64_003, 64_004];

pub fn socket() -> PathBuf {
    std::env::var_os(SOCKET).unwrap().into()
}

child!(
    fn manager(ctl: Control) {
        let (config, files): (String, u64) = ctl.recv().unwrap().unwrap();
        if files > 0 {
            let limit = rustix::process::Rlimit {
                current: Some(files),
                maximum: Some(files),
            };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        }
        let config = Config::parse(&config).unwrap();
        let listener = Listener::bind(&socket(), 0o666).unwrap();
        ctl.send(&()).unwrap();
        tranship_manager::run(config, listener, &Shutdown::new().unwrap(), true).unwrap();
    }
);

fn join(name: &str) -> Result<Domain, Error> {
    Domain::builder()
        .name(name)
        .socket(socket())
        .helper_thread(true)
        // The watchdog says how long is too long: a busy machine answers late.
        .manager_timeout(Duration::from_secs(3600))
        .connect()
}

/// Everything that needs the manager, once.
fn everything(round: u64) -> Result<(), String> {
    let words = |e: &dyn std::fmt::Display| e.to_string();
    let from = join("from").map_err(|e| words(&e))?;
    let to = join("to").map_err(|e| words(&e))?;
    let pool = from
        .create_pool(PoolOptions::new(1 << 20))
        .map_err(|e| words(&e))?;
    let buf = pool.alloc(64 << 10).map_err(|e| words(&e))?;
    let name = format!("victim-{round}");
    let listener = from.listen::<Sender>(&name).map_err(|e| words(&e))?;
    let (sender, receiver) = std::thread::scope(|s| {
        let sender = s.spawn(|| listener.accept());
        let receiver = to.open_with::<Receiver>(&name, ChannelOptions::new().wait(Wait::Sleep));
        (sender.join().unwrap(), receiver)
    });
    let mut sender = sender.map_err(|e| words(&e))?;
    let mut receiver = receiver.map_err(|e| words(&e))?;
    sender.send(buf.freeze()).map_err(|e| words(&e))?;
    let got = receiver.recv().map_err(|e| words(&e))?;
    if got.len() != 64 << 10 {
        return Err(format!("{} bytes", got.len()));
    }
    drop((got, receiver, sender));
    to.admin().stat().map_err(|e| words(&e))?;
    Ok(())
}

/// Users of the domains that there are.
fn users() -> Vec<u32> {
    let records = join("asker").unwrap().admin().stat().unwrap();
    let uid = |r: tranship_core::admin::StatRecord| match r {
        tranship_core::admin::StatRecord::Domain(d) => Some(d.uid),
        _ => None,
    };
    records.into_iter().filter_map(uid).collect()
}

/// Bytes that are granted at the moment, in all.
fn granted() -> u64 {
    let records = join("asker").unwrap().admin().stat().unwrap();
    let bytes = |r: tranship_core::admin::StatRecord| match r {
        tranship_core::admin::StatRecord::Manager(m) => Some(m.granted_bytes),
        _ => None,
    };
    records.into_iter().find_map(bytes).unwrap()
}

/// Order to the victim.
#[derive(Serialize, Deserialize)]
enum Ask {
    Everything,
    Users,
    Granted,
}

child!(
    fn victim(ctl: Control) {
        let mut round = 0;
        while let Some(ask) = ctl.recv().unwrap() {
            round += 1;
            match ask {
                Ask::Everything => ctl.send(&everything(round)),
                Ask::Users => ctl.send(&users()),
                Ask::Granted => ctl.send(&granted()),
            }
            .unwrap();
        }
    }
);

pub struct Stage {
    pub manager: Peer,
    victim: Peer,
    path: PathBuf,
    dog: Watchdog,
    _dir: tempfile::TempDir,
}

impl Stage {
    /// `None`, after saying so, without root.
    pub fn new(config: &str) -> Option<Self> {
        Self::with_files(config, 0)
    }

    /// The manager may have so many descriptors; 0: as many as the test.
    pub fn with_files(config: &str, files: u64) -> Option<Self> {
        if !is_root() {
            skipped("four users need root to start them");
            return None;
        }
        let dog = Watchdog::new();
        let dir = tranship_testkit::folder().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let home = dir.path().join("run");
        std::fs::create_dir(&home).unwrap();
        let own = if files > 0 { nobody_else() } else { MANAGER };
        chown(&home, Some(own), Some(own)).unwrap();
        let path = home.join("manager.sock");
        let start = |launch: Launch, id: u32| {
            let launch = launch.privilege(Privilege::User { uid: id, gid: id });
            launch.env(SOCKET, &path).capture_stderr().start().unwrap()
        };
        let manager = start(manager(), own);
        let () = manager.ask(&(config, files));
        let victim = start(victim(), VICTIM);
        let stage = Self {
            manager,
            victim,
            path,
            dog,
            _dir: dir,
        };
        stage.still_serving("before anything");
        Some(stage)
    }

    /// Starts an attacker of the first or the second kind of user.
    pub fn attacker(&self, launch: Launch, which: usize) -> Peer {
        self.start(launch, ATTACKERS[which])
    }

    /// Starts another process of the victim's user.
    pub fn victim_of(&self, launch: Launch) -> Peer {
        self.start(launch, VICTIM)
    }

    fn start(&self, launch: Launch, id: u32) -> Peer {
        launch
            .privilege(Privilege::User { uid: id, gid: id })
            .env(SOCKET, &self.path)
            .capture_stderr()
            .start()
            .unwrap()
    }

    /// The victim gets all that it asks for.
    #[track_caller]
    pub fn still_serving(&self, after: &str) {
        self.dog.step(after);
        let done: Result<(), String> = self.victim.ask(&Ask::Everything);
        assert_eq!(done, Ok(()), "after {after}\n{}", self.manager.stderr());
    }

    /// Bytes that are granted at the moment, in all, as the manager says.
    pub fn granted(&self) -> u64 {
        self.victim.ask(&Ask::Granted)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Descriptors that the manager has open.
    pub fn fds(&self) -> usize {
        Held::by([self.manager.pid()]).unwrap().fds
    }

    /// The manager's helper processes.
    pub fn helpers(&self) -> Vec<u32> {
        tranship_testkit::resource::descendants(self.manager.pid())
    }

    /// Waits until no domain of an attacker is left.
    pub fn until_forgotten(&self, which: usize) {
        while self
            .victim
            .ask::<Vec<u32>>(&Ask::Users)
            .contains(&ATTACKERS[which])
        {
            std::thread::yield_now();
        }
    }
}
