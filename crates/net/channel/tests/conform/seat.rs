//! Place of a domain of a world: a thread of this process, or a process of its own.

use crate::kit::{add, timing};
use crate::order::{Answer, Order};
use crate::party::Party;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use tranship_core::Domain;
use tranship_testkit::{Control, Peer, child};
use tranship_transport::net::Net;

pub type Answered = Result<Answer, String>;

pub enum Seat {
    Thread(Sender<Order>, Receiver<Answered>),
    Process(Peer),
    /// The process was killed.
    Empty,
}

child!(
    fn domain(ctl: Control) {
        let start: (String, String) = ctl.recv().expect("control").expect("where");
        let (scheme, socket) = start;
        let (domain, port) = begins(&scheme, socket.as_ref());
        let mut party = Party::new(Arc::new(domain), port, true);
        while let Some(order) = ctl.recv().expect("an order") {
            ctl.send(&party.obey(order)).expect("an answer");
        }
    }
);

/// The domain of a process, and the port at which it listens.
fn begins(scheme: &str, socket: &Path) -> (Domain, Option<SocketAddr>) {
    if scheme == "shm" {
        return (joins(socket), None);
    }
    let builder = Domain::builder().name("party").helper_thread(true);
    let domain = builder.embedded().expect("embedded");
    if scheme == "copy" {
        tranship_channel::add_to(&domain).expect("carriers");
        return (domain, None);
    }
    let net = Net::plain(timing()).expect("net");
    let port = net.open("127.0.0.1:0".parse().expect("address"));
    add(&domain, "tcp+plain", Arc::new(net));
    (domain, Some(port.expect("port")))
}

/// A member of the manager that listens there.
pub fn joins(socket: &Path) -> Domain {
    let builder = Domain::builder().name("party").socket(socket);
    builder.helper_thread(true).connect().expect("connect")
}

impl Seat {
    pub fn thread(domain: Arc<Domain>) -> Seat {
        let (to, orders) = channel();
        let (answers, from) = channel();
        thread::spawn(move || {
            let mut party = Party::new(domain, None, false);
            for order in orders {
                if answers.send(party.obey(order)).is_err() {
                    break;
                }
            }
        });
        Seat::Thread(to, from)
    }

    pub fn process(scheme: &str, socket: &Path) -> Seat {
        let peer = domain().start().expect("start");
        let path = socket.to_str().expect("a path in UTF-8");
        peer.send(&(scheme, path)).expect("send");
        Seat::Process(peer)
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Seat::Thread(..) => false,
            // A process that has panicked is of no use.
            Seat::Process(peer) => peer.has_ended(),
            Seat::Empty => true,
        }
    }

    pub fn pid(&self) -> Option<u32> {
        match self {
            Seat::Process(peer) => Some(peer.pid()),
            Seat::Thread(..) | Seat::Empty => None,
        }
    }

    pub fn send(&self, order: Order) -> Result<(), String> {
        match self {
            Seat::Thread(to, _) => to.send(order).map_err(|e| e.to_string()),
            Seat::Process(peer) => peer.send(&order).map_err(|e| e.to_string()),
            Seat::Empty => Err("it is dead".to_owned()),
        }
    }

    pub fn answer(&self) -> Answered {
        match self {
            Seat::Thread(_, from) => from.recv().map_err(|e| format!("its thread: {e}"))?,
            Seat::Process(peer) => peer.recv::<Answered>().map_err(|e| e.to_string())?,
            Seat::Empty => Err("it is dead".to_owned()),
        }
    }

    pub fn ask(&self, order: Order) -> Answered {
        self.send(order)?;
        self.answer()
    }

    /// Kills it by SIGKILL.
    pub fn kill(&mut self) {
        if let Seat::Process(peer) = self {
            peer.kill();
        }
        *self = Seat::Empty;
    }
}
