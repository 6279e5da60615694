//! Connections to a domain that turns and does not accept: given up at once, kept without end.

use serde::{Deserialize, Serialize};
use tranship_core::{Receiver, Sender};
use tranship_proto::Role;
use tranship_proto::{Event, Req, Request};
use tranship_ring::{HalfRw, Side};
use tranship_testkit::resource::Held;
use tranship_testkit::{Control, Watchdog, child};

use crate::stage::{Actor, Stage, join};
use tranship_testkit::hostile::raw::{LINES, Raw};

const ROUNDS: usize = 30;
const EACH: usize = 40;

#[derive(Serialize, Deserialize)]
enum Ask {
    /// Take the manager's news; then, how many descriptors there are.
    Turn,
    /// Accept a connection of another user, among those that came first.
    Accept,
}

// Offers a name, and takes nobody in unless it is told to.
child!(
    fn keeps_them_waiting(ctl: Control) {
        let domain = join("keeps");
        let links = domain.listen::<Sender>("links").unwrap();
        let mut taken = Vec::new();
        while let Some(ask) = ctl.recv().unwrap() {
            domain.turn().unwrap();
            if let Ask::Accept = ask {
                let own = tranship_sys::process::geteuid();
                while taken
                    .last()
                    .is_none_or(|sender: &tranship_core::Sender| sender.status().peer_uid != own)
                {
                    taken.push(links.accept().unwrap());
                }
            }
            ctl.send(&Held::here().unwrap().fds).unwrap();
        }
    }
);

fn connect(raw: &mut Raw, half: impl std::os::fd::AsFd) -> Req {
    let (req, name) = (raw.req(), "links".into());
    let request = Request::Connect {
        req,
        name,
        role: Role::Sink,
        lines: LINES,
        wait: true,
    };
    raw.send(&request, &[half.as_fd()]);
    req
}

/// Waits until the manager has done the requests so far.
fn done(raw: &mut Raw) {
    let req = raw.req();
    raw.send(&Request::Stat { req }, &[]);
    raw.wait(|e| matches!(e, Event::StatEnd { req: r } if *r == req).then_some(()));
}

child!(
    fn gives_up_at_once(ctl: Control) {
        let (half, _own) = HalfRw::create(Side::Sink, LINES).unwrap();
        let mut raw = Raw::join("taker");
        while ctl.recv::<()>().unwrap().is_some() {
            for _ in 0..EACH {
                let req = connect(&mut raw, &half);
                raw.send(&Request::CancelConnect { req }, &[]);
            }
            done(&mut raw);
            ctl.send(&()).unwrap();
        }
    }
);

child!(
    fn never_gives_up(ctl: Control) {
        let (half, _own) = HalfRw::create(Side::Sink, LINES).unwrap();
        let mut raws = Vec::new();
        while ctl.recv::<()>().unwrap().is_some() {
            let mut raw = Raw::join("taker");
            for _ in 0..EACH {
                connect(&mut raw, &half);
            }
            done(&mut raw);
            raws.push(raw);
            ctl.send(&()).unwrap();
        }
    }
);

child!(
    fn is_let_in(ctl: Control) {
        let domain = join("honest");
        ctl.send(&()).unwrap();
        let _receiver = domain.open::<Receiver>("links").unwrap();
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

/// Returns the resources of the victim after so many rounds.
fn held_after(victim: &Actor, taker: &Actor, rounds: usize) -> usize {
    for _ in 0..rounds {
        taker.ask::<()>(&());
        victim.ask::<usize>(&Ask::Turn);
    }
    victim.ask(&Ask::Turn)
}

#[test]
fn links_that_are_given_up_leave_nothing() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let victim = stage.honest(keeps_them_waiting());
    let before: usize = victim.ask(&Ask::Turn);
    let taker = stage.attacker(gives_up_at_once());
    held_after(&victim, &taker, ROUNDS);
    let dog = Watchdog::new();
    while victim.ask::<usize>(&Ask::Turn) != before {
        dog.step("until the last ones are gone");
        std::thread::yield_now();
    }
}

#[test]
fn a_queue_that_is_full_has_room_for_other_users() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let victim = stage.honest(keeps_them_waiting());
    let before: usize = victim.ask(&Ask::Turn);
    let taker = stage.attacker(never_gives_up());
    let after = held_after(&victim, &taker, 10);
    // One descriptor for each connection.
    assert!(after <= before + 128, "{before} grew to {after}");
    let honest = stage.honest(is_let_in());
    honest.expect::<()>();
    victim.ask::<usize>(&Ask::Accept);
    honest.expect::<()>();
}
