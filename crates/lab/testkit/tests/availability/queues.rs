//! Messages that untrusted peers cause to be queued for a slow domain.

use tranship_proto::{Event, Refusal, RefusalCode, Request, Role};
use tranship_sys::socket;
use tranship_testkit::{Control, Peer, child};

use crate::stage::Stage;
use tranship_testkit::hostile::raw::{Raw, SLOTS};

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
                raw.send(&Request::CancelConnect { req }, &[]);
            }
            drop(half);
            sent += 1;
            // Those that were cancelled are answered, too.
            match raw.refused_meanwhile() {
                Some(refusal) if refusal.code == RefusalCode::Limit => break refusal.code,
                _ if sent == 5_000 => break RefusalCode::State,
                _ => {}
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

/// Clients that connect to an exporter that reads nothing do not throw it out, and a client of another user is heard.
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

child!(
    fn takes_no_answers(ctl: Control) {
        // Wake-up descriptors go to domains that read nothing, from others that read nothing.
        let mut pairs = Vec::new();
        for n in 0..6 {
            let name = format!("deaf-{}-{n}", std::process::id());
            let mut deaf = Raw::join("deaf");
            deaf.export(&name, Role::Sink);
            let mut busy = Raw::join("busy");
            busy.ask_for(&name, Role::Source, true);
            let channel = deaf.accept(Role::Sink).id;
            pairs.push((deaf, busy, channel));
        }
        for (_, busy, channel) in &mut pairs {
            for _ in 0..300 {
                let (req, channel) = (busy.req(), *channel);
                busy.send(&Request::WakeFd { req, channel }, &[]);
            }
        }
        // The manager has heard all of it.
        for (_, busy, _) in &pairs {
            while socket::unread(&busy.fd).unwrap() > 0 {
                std::thread::yield_now();
            }
        }
        // For some it is over, and they keep the descriptors that were sent to them.
        for (deaf, busy, _) in pairs.iter().take(3) {
            deaf.send(&Request::Goodbye, &[]);
            busy.send(&Request::Goodbye, &[]);
        }
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

/// The kernel lets no more descriptors of the manager's go than one process may open, whichever process does not take
/// them.
#[test]
fn descriptors_that_nobody_takes() {
    let Some(stage) = Stage::with_files("", 1024) else {
        return;
    };
    let attackers = [0, 1].map(|which| stage.attacker(takes_no_answers(), which));
    for attacker in &attackers {
        let () = attacker.expect();
        stage.still_serving("descriptors that nobody takes");
    }
    drop(attackers);
    stage.until_forgotten(0);
    stage.until_forgotten(1);
    stage.still_serving("the end of those who took none");
}

child!(
    fn reads_nothing(ctl: Control) {
        let mut raw = Raw::join("reads nothing");
        let mut channel = raw.connect("traced", Role::Sink);
        raw.take_offer(&mut channel);
        ctl.send(&()).unwrap();
        // Until it is told to.
        ctl.recv::<()>().unwrap();
        let req = raw.req();
        raw.send(&Request::Stat { req }, &[]);
        let mut told = Vec::new();
        let mut answered = false;
        // An answer for which there was no room is sent when there is room: before the other answer or after it.
        while !answered || told.last() == Some(&false) {
            match raw.recv() {
                Some((Event::Traced { on, .. }, _)) => told.push(on),
                Some((Event::StatEnd { .. }, _)) => answered = true,
                Some(_) => {}
                None => panic!("expelled after {} messages", told.len()),
            }
        }
        ctl.send(&(told.len(), told.last().copied())).unwrap();
        let _ = ctl.recv::<()>();
    }
);

child!(
    fn traces_on_and_off(ctl: Control) {
        let mut raw = Raw::join("traces");
        let bait = raw.create_pool("traced");
        raw.export("traced", Role::Source);
        ctl.send(&()).unwrap();
        let mut channel = raw.accept(Role::Source);
        raw.assign(&mut channel, bait.id, SLOTS);
        // Until the reader has all of it.
        ctl.recv::<()>().unwrap();
        for n in 0..TURNS {
            let req = raw.req();
            let request = Request::Trace {
                req,
                pool: bait.id,
                on: n % 2 == 0,
                while_here: false,
            };
            raw.send(&request, &[]);
            raw.wait(|e| matches!(e, Event::Tracing { req: r, .. } if *r == req).then_some(()));
        }
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

/// Odd: at last it is traced.
const TURNS: u32 = 3001;

/// A client that traces a pool on and off does not fill the queues of the pool's readers.
#[test]
fn a_pool_that_is_traced_on_and_off() {
    let Some(stage) = Stage::new("") else { return };
    let attacker = stage.attacker(traces_on_and_off(), 0);
    let () = attacker.expect();
    let slow = stage.victim_of(reads_nothing());
    let () = slow.expect();
    let () = attacker.ask(&());
    stage.still_serving("a pool that is traced on and off");
    let (told, last): (usize, Option<bool>) = slow.ask(&());
    assert!(told < 1024, "{told} messages");
    assert_eq!(last, Some(true), "what is at last");
}
