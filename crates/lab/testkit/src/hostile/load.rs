//! All attacks together, by processes of several users.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ATTACKS, Attacker, NUISANCES, SOCKET, raw};
use crate::{Control, Peer, PeerError, Privilege, Random, child, fuse};

/// Longest time that an attacker waits for an answer: then it does something else.
const PATIENCE: Duration = Duration::from_millis(500);

/// Count of an attacker's work: for each attack the bursts that were begun, and those that came to their end.
pub type Tally = BTreeMap<String, [u64; 2]>;

/// Orders to an attacker.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    seed: u64,
    names: Vec<String>,
    silent: Option<PathBuf>,
    core: Option<usize>,
}

child!(
    fn attacker(ctl: Control) {
        let orders: Orders = ctl.recv().unwrap().unwrap();
        if let Some(core) = orders.core {
            tranship_sys::process::pin_to_cpu(core).unwrap();
        }
        raw::set_patience(PATIENCE);
        let _ = tranship_sys::process::raise_nofile_soft_to_hard();
        // An attacker that is thrown out ends a burst, which is no news.
        std::panic::set_hook(Box::new(|_| {}));
        let silent = orders.silent.as_ref();
        let silent = silent.map(|path| std::fs::File::open(path).unwrap());
        let tally = Arc::new(Mutex::new(Tally::new()));
        let (random, written) = (Random::seeded(orders.seed), Arc::clone(&tally));
        std::thread::spawn(move || attack(Attacker::new(random, orders.names, silent), &written));
        // Asked after the work that was done, until no test is there any more.
        while let Ok(Some(())) = ctl.recv() {
            let tally = tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if ctl.send(&tally).is_err() {
                break;
            }
        }
        std::process::exit(0);
    }
);

/// Bursts in an order of its own, without end.
fn attack(mut attacker: Attacker, tally: &Mutex<Tally>) {
    type Burst = Box<dyn Fn(&mut Attacker)>;
    let attacks = ATTACKS.iter().map(|a| (a.name, Box::new(a.burst) as Burst));
    let nuisances = NUISANCES.iter().map(|n| {
        let burst = move |attacker: &mut Attacker| drop((n.act)(&mut attacker.random));
        (n.name, Box::new(burst) as Burst)
    });
    let all: Vec<(&str, Burst)> = attacks.chain(nuisances).collect();
    let count = |name: &str, which: usize| {
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.entry(name.to_owned()).or_default()[which] += 1;
    };
    loop {
        let at = attacker.random.below(all.len() as u64);
        let Some((name, burst)) = usize::try_from(at).ok().and_then(|at| all.get(at)) else {
            return;
        };
        count(name, 0);
        if catch_unwind(AssertUnwindSafe(|| burst(&mut attacker))).is_ok() {
            count(name, 1);
        }
    }
}

/// Hostile clients of a manager. They are gone when it is dropped.
#[derive(Debug)]
pub struct Load {
    attackers: Vec<Peer>,
    file: Option<fuse::Silent>,
}

impl Load {
    /// Starts so many attackers, of these users in turn, against the manager at `socket`, whose honest domains offer
    /// `names`. Each is in a session of its own; all on one core, if it is given.
    ///
    /// # Errors
    /// When a process, or a file that nobody answers for, cannot be made. Where there is no FUSE it goes without.
    pub fn start(
        socket: &Path,
        attackers: usize,
        users: &[u32],
        names: &[String],
        core: Option<usize>,
        mut random: Random,
    ) -> Result<Load, PeerError> {
        let file = match fuse::possible() {
            Ok(()) => Some(fuse::Silent::new()?),
            Err(_) => None,
        };
        let mut load = Load {
            attackers: Vec::new(),
            file,
        };
        for (n, user) in users.iter().cycle().take(attackers).enumerate() {
            let privilege = Privilege::User {
                uid: *user,
                gid: *user,
            };
            let launch = attacker().privilege(privilege).env(SOCKET, socket);
            let peer = launch.own_session().capture_stderr().start()?;
            // Of whose descriptors nothing ends, nothing more is looked at: the others go on sending them.
            let first = n % users.len() == 0;
            let path = |file: &fuse::Silent| file.path().to_owned();
            peer.send(&Orders {
                seed: random.next(),
                names: names.to_vec(),
                silent: load.file.as_ref().filter(|_| first).map(path),
                core,
            })?;
            load.attackers.push(peer);
        }
        Ok(load)
    }

    /// Returns their work so far.
    ///
    /// # Errors
    /// When one has ended.
    pub fn tally(&self) -> Result<Tally, PeerError> {
        let mut all = Tally::new();
        for attacker in &self.attackers {
            attacker.send(&())?;
            for (name, [begun, ended]) in attacker.recv::<Tally>()? {
                let sum = all.entry(name).or_default();
                *sum = [sum[0] + begun, sum[1] + ended];
            }
        }
        Ok(all)
    }

    /// Makes them stand still.
    pub fn pause(&self) {
        self.attackers.iter().for_each(Peer::stop);
    }

    /// Makes them go on.
    pub fn resume(&self) {
        self.attackers.iter().for_each(Peer::resume);
    }

    /// Checks whether one of the attacks needs a feature that is missing here.
    ///
    /// # Errors
    /// The missing feature, in words.
    pub fn whole() -> Result<(), String> {
        fuse::possible()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // A process that has the file cannot end before the file is closed here.
        self.file = None;
        self.attackers.clear();
    }
}
