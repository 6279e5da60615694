//! What strangers cause to be queued to somebody who is slow.

use tranship_proto::{Event, Refusal, RefusalCode, Role};
use tranship_testkit::{Control, Peer, child};

use crate::stage::Stage;
use tranship_testkit::hostile::raw::Raw;

child!(
    fn slow(ctl: Control) {
        let mut raw = Raw::join("slow");
        raw.export("slow", Role::Sink);
        ctl.send(&()).unwrap();
        // Reads nothing until it is told to.
        ctl.recv::<()>().unwrap();
        let mut came = 0u32;
        loop {
            match raw.recv() {
                Some((Event::Incoming { peer_uid, .. }, _)) => {
                    came += 1;
                    if peer_uid == tranship_sys::process::getuid() {
                        break;
                    }
                }
                Some((Event::PeerGone { .. }, _)) => {}
                other => panic!("{other:?} after {came}"),
            }
        }
        ctl.send(&came).unwrap();
        let _ = ctl.recv::<()>();
    }
);

child!(
    fn knocks(ctl: Control) {
        // Connects until no more is taken, or all there may be are made; half of them are cancelled at once.
        let mut raw = Raw::join("knocks");
        let mut sent = 0u32;
        let refused = loop {
            let (req, half) = raw.ask_for("slow", Role::Source, false);
            if sent.is_multiple_of(2) {
                raw.send(&tranship_proto::Request::CancelConnect { req }, &[]);
            }
            drop(half);
            sent += 1;
            if let Some(refusal) = raw.refused_meanwhile() {
                break refusal.code;
            }
        };
        ctl.send(&(sent, refused == RefusalCode::Limit)).unwrap();
        let _ = ctl.recv::<()>();
    }
);

child!(
    fn caller(ctl: Control) {
        let mut raw = Raw::join("caller");
        let (_req, _half) = raw.ask_for("slow", Role::Source, true);
        raw.sync();
        let refused: Vec<Refusal> = raw.refused_meanwhile().into_iter().collect();
        ctl.send(&refused.len()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

/// An exporter that reads nothing is not thrown out by those who connect to it, and who of another user connects is heard.
#[test]
fn connects_to_an_exporter_that_does_not_read() {
    let Some(stage) = Stage::new("") else { return };
    let slow = stage.victim_of(slow());
    let () = slow.expect();
    let attackers: Vec<Peer> = (0..4).map(|n| stage.attacker(knocks(), n % 2)).collect();
    for attacker in &attackers {
        let (sent, limit): (u32, bool) = attacker.expect();
        assert!(limit && sent < 5_000, "{sent}");
    }
    stage.still_serving("connects");
    let caller = stage.victim_of(caller());
    assert_eq!(caller.expect::<usize>(), 0, "the victim's own is refused");
    slow.send(&()).unwrap();
    let came: u32 = slow.expect();
    eprintln!("{came} came");
}
