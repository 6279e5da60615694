//! Topics, queues and services over every kind of address: one list of cases each.
//!
//! The conformance suite of channels compares with a model; it is in `net/channel`.

mod queues;
mod services;
mod topics;

use tranship_core::Domain;
use tranship_testkit::Watchdog;

/// How the two sides of a name find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the manager, in two domains.
    Shm,
    /// In one domain, by a plain name.
    Own,
    /// In one domain, by a `local:` name.
    Local,
    /// In two domains of one process, by a `local:` name.
    LocalAcross,
}

/// The two sides' domains, and how they find each other.
struct World {
    way: Way,
    here: Domain,
    there: Domain,
}

impl World {
    fn new(way: Way) -> World {
        // The side that answers may do nothing for a while.
        let builder = || Domain::builder().helper_thread(true);
        let here = builder().name("here").embedded().expect("a domain");
        let there = match way {
            Way::Shm | Way::LocalAcross => {
                let socket = here.socket_path().expect("a socket");
                builder()
                    .name("there")
                    .socket(socket)
                    .connect()
                    .expect("a domain")
            }
            Way::Own | Way::Local => here.clone(),
        };
        World { way, here, there }
    }

    /// The name's address.
    fn address(&self, name: &str) -> String {
        match self.way {
            Way::Shm | Way::Own => name.into(),
            // The process has one space of names, and tests of several ways run at a time.
            Way::Local => format!("local:{name}"),
            Way::LocalAcross => format!("local:{name}/across"),
        }
    }

    /// Whether the buffers that arrive are handles of this process, and not another domain's memory.
    fn is_inside(&self) -> bool {
        self.way != Way::Shm
    }
}

/// A case: its name, and what it does.
type Case = (&'static str, fn(&World));

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        pub(crate) const CASES: &[crate::Case] = &[$((stringify!($case), $case)),*];
    };
}
use cases;

fn run(cases: &[Case], way: Way) {
    for (name, case) in cases {
        let _dog = Watchdog::new();
        println!("{name} over {way:?}");
        case(&World::new(way));
    }
}

#[test]
fn topics_by_the_manager() {
    run(topics::CASES, Way::Shm);
}

#[test]
fn topics_of_one_domain() {
    run(topics::CASES, Way::Own);
}

#[test]
fn topics_of_a_process() {
    run(topics::CASES, Way::Local);
}

#[test]
fn topics_across_domains_of_a_process() {
    run(topics::CASES, Way::LocalAcross);
}

#[test]
fn queues_by_the_manager() {
    run(queues::CASES, Way::Shm);
}

#[test]
fn queues_of_one_domain() {
    run(queues::CASES, Way::Own);
}

#[test]
fn queues_of_a_process() {
    run(queues::CASES, Way::Local);
}

#[test]
fn queues_across_domains_of_a_process() {
    run(queues::CASES, Way::LocalAcross);
}

#[test]
fn services_by_the_manager() {
    run(services::CASES, Way::Shm);
}

#[test]
fn services_of_a_process() {
    run(services::CASES, Way::Local);
}

#[test]
fn services_across_domains_of_a_process() {
    run(services::CASES, Way::LocalAcross);
}
