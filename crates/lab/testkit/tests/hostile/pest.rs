//! Through the manager's socket: wrong requests, wrong descriptors, floods, silence.

use tranship_testkit::hostile::NUISANCES;
use tranship_testkit::{Control, Random, child};

use crate::stage::Stage;

child!(
    fn pest(ctl: Control) {
        let mut random = Random::printed("pest");
        while let Some(index) = ctl.recv::<usize>().unwrap() {
            let said = (NUISANCES[index].act)(&mut random);
            ctl.send(&said).unwrap();
        }
    }
);

pub fn play(stage: &Stage) {
    let before = stage.manager_fds();
    for (index, nuisance) in NUISANCES.iter().enumerate() {
        // A process for each: the leftovers of one go with it.
        let pest = stage.attacker(pest());
        let said: String = pest.ask(&index);
        eprintln!("{:40} {said}", nuisance.name);
        assert!(
            said.contains(nuisance.reason),
            "{}: {said:?} instead of {:?}\n{}",
            nuisance.name,
            nuisance.reason,
            pest.stderr()
        );
        stage.still_serving(nuisance.name);
        pest.kill();
        // Everything that it parked is closed again.
        while stage.manager_fds() > before {
            std::thread::yield_now();
        }
    }
}
