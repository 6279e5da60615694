//! A liar is a process, which runs the body of a test; each honest end is another, which does what it is told. When the liar has
//! ended, and in a second run at a random moment, it is killed by SIGKILL: each honest end learns that, and has nothing of it left.

use crate::honest::{Honest, Order, honest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::rc::Rc;
use tranship_core::Domain as Manager;
use tranship_testkit::{Control, Launch, Peer, Random, Watchdog};

/// The process in which this is the liar's.
pub struct Stage {
    ctl: Rc<Control>,
    pub seed: u64,
}

#[derive(Serialize, Deserialize)]
pub enum Says {
    /// To this honest process.
    To(usize, Value),
    Done,
}

impl Stage {
    pub fn new(ctl: Control) -> Stage {
        let seed = ctl.recv().expect("control").expect("a seed");
        let ctl = Rc::new(ctl);
        Stage { ctl, seed }
    }

    pub fn honest(&self) -> Honest {
        Honest::new(&self.ctl, 0)
    }

    /// Another one, that the liar has no channel to.
    pub fn other(&self) -> Honest {
        Honest::new(&self.ctl, 1)
    }

    pub fn done(&self) {
        self.ctl.send(&Says::Done).expect("control");
        // Whoever has ended by itself was not killed.
        let _ = self.ctl.recv::<()>();
    }
}

/// Runs a body to its end, and again to somewhere in the middle.
pub fn play(name: &str, liar: &Launch) {
    let mut random = Random::printed(name);
    let asked = act(liar, random.seed(), u64::MAX);
    act(liar, random.seed(), random.below(asked));
}

/// Until the liar has asked so often, or is done; says how often it has.
fn act(liar: &Launch, seed: u64, asks: u64) -> u64 {
    let dog = Watchdog::new();
    let manager = Manager::embedded().expect("a manager");
    let socket = manager.socket_path().expect("its socket").to_owned();
    let start = |launch: Launch| {
        let torture = std::env::var_os("TRANSHIP_TORTURE").map(|all| ("TRANSHIP_TORTURE", all));
        let launch = torture
            .into_iter()
            .fold(launch, |launch, (name, all)| launch.env(name, all));
        launch.env("TRANSHIP_SOCKET", &socket).start()
    };
    let all: [Peer; 2] = [(); 2].map(|()| start(honest()).expect("start"));
    let liar = start(liar.clone()).expect("start");
    liar.send(&seed).expect("control");
    let mut asked = 0;
    while let Says::To(who, order) = liar.expect() {
        if asked == asks {
            break;
        }
        asked += 1;
        let answer: Value = all[who].ask(&order);
        liar.send(&answer).expect("control");
        dog.step(asked);
    }
    liar.kill();
    for honest in &all {
        let left: Vec<String> = honest.ask(&Order::Left);
        assert!(left.is_empty(), "after {asked} questions: {left:?}");
    }
    asked
}

/// The test whose body is the function of this name.
macro_rules! liar {
    ($name:ident) => {
        mod $name {
            #[test]
            fn in_a_process() {
                tranship_testkit::child!(
                    fn $name(ctl: tranship_testkit::Control) {
                        let stage = $crate::stage::Stage::new(ctl);
                        super::$name(&stage);
                        stage.done();
                    }
                );
                $crate::stage::play(stringify!($name), &$name());
            }
        }
    };
}
pub(crate) use liar;
