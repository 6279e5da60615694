//! Joining a manager that was found: hello, and the initial state of a domain.

use super::conn::Conn;
use super::control_pages::ControlPages;
use super::cut_off::Root;
use super::discover::Found;
use super::exports::Exports;
use super::greeting::Greeting;
use super::home::{FD_FLOOR, Home};
use super::notes::{Leaks, Notes};
use super::places::{KEY_ENV, operator_key};
use super::pressure::MemoryPressure;
use super::register::Register;
use super::starter::Starter;
use super::state::{DomainCore, Life, Shared};
use super::tasks::Tasks;
use super::trace;
use crate::error::{self, Error};
use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tranship_sys::fork::ForkGuard;
use tranship_sys::process;

/// The manager to join, and how.
pub struct Join {
    pub found: Found,
    /// The manager that runs in this process, if one does: it is dropped last when the domain closes.
    pub embedded: Option<Box<dyn Any + Send>>,
    pub name: String,
    /// The named socket.
    pub socket: Option<PathBuf>,
    /// The program that starts the manager again, if this process did.
    pub program: Option<PathBuf>,
    pub leaks: Leaks,
    pub helper_thread: bool,
    /// The longest wait for each answer of the manager.
    pub manager_timeout: Duration,
}

impl DomainCore {
    pub fn join(how: Join) -> Result<DomainCore, Error> {
        let Join { found, name, .. } = how;
        let fd = process::dup_above(found.fd, FD_FLOOR);
        let key = process::trusted_env(KEY_ENV).and_then(|key| key.into_string().ok());
        let key = key.or_else(|| operator_key(&found.path));
        let greeting = Greeting::say(fd, &name, None, key.as_deref(), how.manager_timeout)?;
        let (fd, welcome) = greeting.wait()?;
        let poller = tranship_sys::epoll::Epoll::new().map_err(error::system("epoll_create"))?;
        let core = DomainCore::new(Shared {
            fork: ForkGuard::new().map_err(error::system("mmap of the fork guard"))?,
            id: AtomicU32::new(welcome.domain.0),
            name,
            home: Home {
                socket: how.socket,
                starter: found
                    .started
                    .then(|| Arc::new(Starter::new(found.path.clone(), how.program))),
                place: found.path,
                root: Root::now(),
                key,
            },
            control_pages: ControlPages::new(welcome.control_page),
            surveys: Mutex::new(()),
            conn: Mutex::new(Conn::new(fd, welcome.instance)),
            register: Register::default(),
            pressure: MemoryPressure::default(),
            exports: Exports::default(),
            life: Life::new(how.embedded),
            poller,
            tasks: Tasks::default(),
            leaks: Notes::of(how.leaks),
            manager_timeout: how.manager_timeout,
            trace: trace::Ring::default(),
        });
        core.poll_socket()?;
        if how.helper_thread {
            core.start_helper()?;
        }
        Ok(core)
    }
}
