//! Services in this process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use tranship_block::front::{Direct, Forwarding, Front};
use tranship_block::{Access, Cache, Cached, Disk, DiskOptions, Endpoint, Remote, Store};
use tranship_core::{Domain, Error, ErrorKind, Trust};
use tranship_manager::Config;
use tranship_testkit::Watchdog;

pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn watchdog() -> Watchdog {
    Watchdog::new()
}

/// Returns an address that no other test has.
pub fn endpoint(scheme: &str, trust: Trust) -> Endpoint {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{scheme}:block-{}-{count}", std::process::id());
    Endpoint::new(&name, trust).with_domains(|| member(manager()))
}

/// A domain of a manager's, which knows every kind of address.
pub fn member(manager: &Domain) -> Result<Domain, Error> {
    let socket = manager.socket_path().expect("its socket");
    let domain = Domain::builder().socket(socket).connect()?;
    tranship_channel::add_to(&domain)?;
    Ok(domain)
}

/// Returns the configuration of a manager that does not watch the machine's memory: on a machine that is short of it
/// caches would have to give theirs back, and nothing would be found in them.
pub fn config() -> Config {
    let mut config = Config::default();
    config.pressure.watch = false;
    config
}

/// Returns a domain with a manager of its own.
pub fn embedded(config: Config) -> Domain {
    let builder = Domain::builder().config(config);
    builder.embedded().expect("a manager")
}

/// The manager of this process's tests: names of `shm:` are its.
pub fn manager() -> &'static Domain {
    static MANAGER: OnceLock<Domain> = OnceLock::new();
    MANAGER.get_or_init(|| embedded(config()))
}

/// A file of its own, on the file system of the build folder: those of `/tmp` are often in memory.
pub struct File {
    _dir: TempDir,
    pub path: PathBuf,
}

pub fn file() -> File {
    let near = std::env::current_exe().expect("this test's path");
    let near = near.parent().expect("a folder");
    let dir = tempfile::tempdir_in(near).expect("a folder");
    let path = dir.path().join("disk");
    File { _dir: dir, path }
}

pub fn disk(file: &File, size: u64, access: Access, threads: bool) -> Arc<Disk> {
    let options = DiskOptions {
        size: Some(size),
        access,
        threads,
        ..DiskOptions::default()
    };
    Disk::open(&file.path, &options).expect("a disk")
}

/// A served disk.
pub struct Service {
    pub at: Endpoint,
    pub front: Option<Front>,
    file: File,
}

impl Service {
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A disk's service at an address.
pub fn front(at: &Endpoint, disk: Arc<dyn Store>) -> Front {
    started(at, &Arc::new(Direct::new(disk).expect("a thread")))
}

/// Starts a service, also where one has ended just now.
pub fn started(at: &Endpoint, direct: &Arc<Direct>) -> Front {
    loop {
        match Front::start(at, Arc::clone(direct) as _) {
            Ok(front) => return front,
            // The manager has not heard yet that the last one is gone.
            Err(error) if error.kind() == ErrorKind::NameTaken => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

pub fn serve(scheme: &str, trust: Trust, size: u64) -> Service {
    let file = file();
    let disk = disk(&file, size, Access::Auto, false);
    let at = endpoint(scheme, trust);
    let front = front(&at, disk);
    Service {
        at,
        front: Some(front),
        file,
    }
}

/// A proxy for local clients.
pub fn proxy(server: &Endpoint, scheme: &str, cache: Option<&Arc<Cache>>) -> (Endpoint, Front) {
    let at = endpoint(scheme, server.trust());
    let behind = Forwarding::new(server, cache);
    let front = Front::start(&at, Arc::new(behind)).expect("a front");
    (at, front)
}

pub fn connect(at: &Endpoint) -> Arc<Remote> {
    reached(Remote::new(at))
}

fn reached(remote: Arc<Remote>) -> Arc<Remote> {
    remote.wait(PATIENCE).expect("the server");
    remote
}

/// Connects like `connect`, for a cache.
pub fn leased(at: &Endpoint) -> Arc<Remote> {
    reached(Remote::leased(at))
}

pub fn cached(at: &Endpoint, bytes: u64) -> impl Store {
    Cached::new(&Cache::new(bytes), leased(at))
}
