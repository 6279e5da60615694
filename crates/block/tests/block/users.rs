//! Most channels of a kind that a service gives to one user, in whichever processes.

use crate::kit;
use std::time::Duration;
use tranship_block::{Endpoint, Remote};
use tranship_core::Trust;
use tranship_testkit::{Control, child};

/// Value of a front's `MAX_CHANNELS_OF_ONE`.
const OF_ONE: usize = 64;

child!(
    fn client(ctl: Control) {
        let address: String = ctl.recv().expect("control").expect("an address");
        let at = Endpoint::new(&address, Trust::Full);
        let mut open = Vec::new();
        // Opens as many channels as it is told, each within so long.
        while let Some((count, limit)) = ctl.recv::<(usize, Duration)>().expect("control") {
            let mut reached = 0;
            for _ in 0..count {
                let remote = Remote::new(&at);
                reached += usize::from(remote.wait(limit).is_ok());
                open.push(remote);
            }
            ctl.send(&reached).expect("control");
        }
    }
);

#[test]
fn channels_are_counted_by_user_and_not_by_process() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Full, 1 << 20);
    let socket = kit::manager().socket_path().expect("its socket");
    let [one, two] = [(); 2].map(|()| {
        let client = client().env("TRANSHIP_SOCKET", &socket).start();
        let client = client.expect("start");
        client.send(&service.at.to_string()).expect("send");
        client
    });
    assert_eq!(one.ask::<usize>(&(40, kit::PATIENCE)), 40);
    assert_eq!(two.ask::<usize>(&(OF_ONE - 40, kit::PATIENCE)), OF_ONE - 40);
    assert_eq!(two.ask::<usize>(&(1, Duration::from_secs(2))), 0);
}
