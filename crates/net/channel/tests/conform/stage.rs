//! Stage on which worlds are made, one after the other: the domains, and the carriers between them.

use crate::kit::{add, credentials, timing};
use crate::seat::{Seat, joins};
use crate::slow::Slow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tranship_core::Domain;
use tranship_model::{ErrorKind, Op, Outcome, Way};
use tranship_testkit::Random;
use tranship_transport::net::Net;

pub struct Stage {
    pub way: Way,
    /// Whether buffers of level `none` are sealed.
    pub seals: bool,
    prefix: String,
    /// Domain with the manager in it.
    manager: Arc<Domain>,
    seats: RefCell<Vec<Seat>>,
    processes: bool,
    scheme: String,
    runs: Cell<u32>,
    steps: Cell<u32>,
    /// Memory that all of its users may write, of former worlds, too.
    all_write: RefCell<BTreeSet<(String, u64)>>,
    /// Number of times that each operation had each outcome.
    tally: RefCell<BTreeMap<String, u64>>,
}

fn embedded() -> Domain {
    let builder = Domain::builder().name("manager").helper_thread(true);
    builder.embedded().expect("embedded")
}

impl Stage {
    /// A thread for each domain; with `local:` there is one domain only, of which each has ends.
    pub fn threads(scheme: &str, domains: u8) -> Stage {
        let manager = Arc::new(embedded());
        let socket = manager.socket_path().expect("its socket");
        let of = |_| match scheme {
            "local" => Arc::clone(&manager),
            _ => Arc::new(joins(&socket)),
        };
        let all: Vec<Arc<Domain>> = (0..domains).map(of).collect();
        let any = || "127.0.0.1:0".parse().expect("address");
        let net = match scheme {
            "tcp" => Some(Net::tls(credentials(), timing()).expect("net")),
            "tcp+plain" => Some(Net::plain(timing()).expect("net")),
            _ => None,
        };
        let prefix = match (&net, scheme) {
            (Some(net), _) => format!("{scheme}:{}/", net.open(any()).expect("port")),
            (None, "copy" | "slow") => format!(
                "{scheme}:conform-{}-{:p}-",
                std::process::id(),
                &raw const *manager
            ),
            (None, _) => format!("{scheme}:"),
        };
        let slow = Arc::new(Slow::new(Random::printed("slow")));
        for domain in &all {
            match &net {
                Some(net) => {
                    let scheme = if scheme == "tcp" { "tcp" } else { "tcp+plain" };
                    add(domain, scheme, Arc::new(net.clone()));
                }
                None if scheme == "copy" => tranship_channel::add_to(domain).expect("carriers"),
                None if scheme == "slow" => add(domain, "slow", slow.clone()),
                None => {}
            }
        }
        let way = match scheme {
            "local" => Way::Inside,
            "shm" => Way::Shared,
            _ => Way::Carried,
        };
        Stage {
            way,
            seals: false,
            prefix,
            seats: RefCell::new(all.into_iter().map(Seat::thread).collect()),
            manager,
            processes: false,
            scheme: scheme.to_owned(),
            runs: Cell::new(0),
            steps: Cell::new(0),
            all_write: RefCell::default(),
            tally: RefCell::default(),
        }
    }

    /// A process for each domain: of one manager over `shm:`, each with one of its own over anything else.
    pub fn processes(scheme: &str, domains: u8) -> Stage {
        Stage {
            way: match scheme {
                "shm" => Way::Shared,
                _ => Way::Carried,
            },
            seals: false,
            prefix: match scheme {
                "copy" => format!("copy:processes-{}-", std::process::id()),
                // The port is that of the listener.
                _ => format!("{scheme}:"),
            },
            manager: Arc::new(embedded()),
            seats: RefCell::new((0..domains).map(|_| Seat::Empty).collect()),
            processes: true,
            scheme: scheme.to_owned(),
            runs: Cell::new(0),
            steps: Cell::new(0),
            all_write: RefCell::default(),
            tally: RefCell::default(),
        }
    }

    /// Returns this stage with large buffers only at level `none`.
    pub fn sealing(self) -> Stage {
        Stage {
            seals: true,
            ..self
        }
    }

    /// Whether domains can be killed.
    pub fn kills(&self) -> bool {
        self.processes && self.way == Way::Shared
    }

    /// Counts a step, and returns whether it is one in so many of this stage.
    pub fn is_step_of(&self, many: u32) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.steps.get().is_multiple_of(many)
    }

    pub fn seats(&self) -> &RefCell<Vec<Seat>> {
        &self.seats
    }

    pub fn is_written_by_all(&self, files: impl IntoIterator<Item = (String, u64)>) {
        self.all_write.borrow_mut().extend(files);
    }

    pub fn may_all_write(&self, file: &(String, u64)) -> bool {
        self.all_write.borrow().contains(file)
    }

    pub fn count(&self, op: &Op, outcome: &Result<Outcome, ErrorKind>) {
        let op = format!("{op:?}");
        let op = op.split(' ').next().unwrap_or_default();
        let name = match outcome {
            Ok(Outcome::Nothing) => format!("{op}: nothing"),
            Ok(_) => op.to_owned(),
            Err(kind) => format!("{op}: {}", kind.name()),
        };
        *self.tally.borrow_mut().entry(name).or_default() += 1;
    }

    /// Returns which of these outcomes did not occur.
    pub fn lacks<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        let tally = self.tally.borrow();
        let missing = wanted.iter().copied();
        missing
            .filter(|outcome| !tally.contains_key(*outcome))
            .collect()
    }

    /// All that was done; and that it had each of these outcomes.
    pub fn has_done(&self, name: &str, wanted: &[&str]) {
        let tally = self.tally.borrow();
        println!("{name}: {tally:?}");
        assert_eq!(self.lacks(wanted), [""; 0], "{name}: {tally:?}");
    }

    /// Returns the start of a new world's addresses. Each domain that was killed in the world before has a successor.
    pub fn begin(&self) -> String {
        let socket: PathBuf = self.manager.socket_path().expect("its socket");
        for seat in self.seats.borrow_mut().iter_mut() {
            if seat.is_empty() {
                *seat = Seat::process(&self.scheme, &socket);
            }
        }
        self.runs.set(self.runs.get() + 1);
        format!("{}{}-", self.prefix, self.runs.get())
    }
}
