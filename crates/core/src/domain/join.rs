//! Joining a manager that was found: hello, and what a domain begins with.

use super::conn::Conn;
use super::cut_off::Root;
use super::discover::Found;
use super::greeting::Greeting;
use super::haste::Haste;
use super::notes::{Leaks, Notes};
use super::register::Register;
use super::starter::Starter;
use super::state::{DomainCore, Shared};
use super::tasks::Tasks;
use super::{helper, trace};
use crate::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use std::sync::{Arc, Mutex};
use tranship_manager::Embedded;
use tranship_sys::fork::ForkGuard;
use tranship_sys::process;

/// Library descriptors live above what programs that use select() can bear.
pub(super) const FD_FLOOR: i32 = 1024;

/// How to join which manager.
pub(crate) struct Join {
    pub(crate) found: Found,
    /// If it runs in this process.
    pub(crate) embedded: Option<Embedded>,
    pub(crate) name: String,
    /// That was named.
    pub(crate) socket: Option<PathBuf>,
    /// What starts it again, if this process did.
    pub(crate) program: Option<PathBuf>,
    pub(crate) high_descriptors: bool,
    pub(crate) leaks: Leaks,
    pub(crate) helper_thread: bool,
}

impl DomainCore {
    pub(crate) fn join(how: Join) -> Result<DomainCore, Error> {
        let Join { found, name, .. } = how;
        let fd = if how.high_descriptors {
            process::dup_above(found.fd, FD_FLOOR)
        } else {
            found.fd
        };
        let (fd, welcome) = Greeting::say(fd, &name, None)?.wait()?;
        let poller = tranship_sys::epoll::Epoll::new().map_err(Error::system("epoll_create"))?;
        let board = Arc::new(welcome.board);
        let core = DomainCore::new(Shared {
            fork: ForkGuard::new().map_err(Error::system("mmap of the fork guard"))?,
            id: AtomicU32::new(welcome.domain.0),
            name,
            socket: how.socket,
            board: AtomicPtr::new(Arc::as_ptr(&board).cast_mut()),
            boards: Mutex::new(vec![board]),
            seen: AtomicU32::new(0),
            conn: Mutex::new(Conn::new(fd, welcome.instance)),
            register: Register::default(),
            haste: Haste::default(),
            exports: Mutex::default(),
            exporting: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            left: AtomicBool::new(false),
            helper: AtomicBool::new(false),
            embedded: Mutex::new(how.embedded),
            starter: found
                .started
                .then(|| Arc::new(Starter::new(found.path.clone(), how.program))),
            place: found.path,
            root: Root::now(),
            poller,
            tasks: Tasks::default(),
            high_descriptors: how.high_descriptors,
            leaks: Notes::of(how.leaks),
            trace: trace::Ring::default(),
        });
        core.poll_socket()?;
        if how.helper_thread {
            helper::start(core.clone())?;
        }
        Ok(core)
    }
}
