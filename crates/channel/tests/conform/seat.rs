//! Where a domain of a world is: in a thread of this process, or in a process of its own.

use crate::party::{Answer, Order, Party};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use tranship_core::Domain;
use tranship_testkit::{Control, Peer, child};

pub type Answered = Result<Answer, String>;

pub enum Seat {
    Thread(Sender<Order>, Receiver<Answered>),
    Process(Peer),
    /// It was killed.
    Empty,
}

child!(
    fn domain(ctl: Control) {
        let path: String = ctl.recv().expect("control").expect("a socket");
        let mut party = Party::new(Arc::new(joins(path.as_ref())));
        while let Some(order) = ctl.recv().expect("an order") {
            ctl.send(&party.obey(order)).expect("an answer");
        }
    }
);

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
            let mut party = Party::new(domain);
            for order in orders {
                if answers.send(party.obey(order)).is_err() {
                    break;
                }
            }
        });
        Seat::Thread(to, from)
    }

    pub fn process(socket: &Path) -> Seat {
        let peer = domain().start().expect("start");
        let path = socket.to_str().expect("a path in UTF-8");
        peer.send(path).expect("send");
        Seat::Process(peer)
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Seat::Thread(..) => false,
            // One that has panicked is of no use.
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

    /// By SIGKILL.
    pub fn kill(&mut self) {
        if let Seat::Process(peer) = self {
            peer.kill();
        }
        *self = Seat::Empty;
    }
}
