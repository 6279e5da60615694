//! Messages that untrusted peers cause to be queued for a domain.

use tranship_proto::{Request, Role};

use crate::hostile::Attacker;
use crate::hostile::raw::Raw;

/// Connects of a burst.
const MANY: usize = 200;

pub(super) fn connects_that_are_given_up(attacker: &mut Attacker) {
    let Some(name) = attacker.victim() else {
        return;
    };
    let mut raw = Raw::join("knocks");
    for _ in 0..MANY {
        let (req, _half) = raw.ask_for(&name, Role::Sink, true);
        raw.send(&Request::CancelConnect { req }, &[]);
    }
    raw.sync();
}

pub(super) fn connects_that_are_not(attacker: &mut Attacker) {
    let Some(name) = attacker.victim() else {
        return;
    };
    let mut raw = Raw::join("knocks");
    for n in 0..MANY {
        // Half of them wait for a peer that never comes.
        let name = if n % 2 == 0 {
            name.clone()
        } else {
            attacker.fresh()
        };
        raw.ask_for(&name, Role::Sink, true);
    }
    raw.sync();
    attacker.keep(raw);
}

/// The client that connects to it is the attacker itself, over another connection.
pub(super) fn an_exporter_that_does_not_read(attacker: &mut Attacker) {
    let (mut slow, name) = (Raw::join("slow"), attacker.fresh());
    slow.export(&name, Role::Sink);
    let mut raw = Raw::join("knocks");
    for n in 0..MANY {
        let (req, _half) = raw.ask_for(&name, Role::Source, false);
        if n % 2 == 0 {
            raw.send(&Request::CancelConnect { req }, &[]);
        }
    }
    raw.sync();
    attacker.keep((slow, raw));
}

/// Sends wake-up descriptors to a domain that is the attacker itself.
pub(super) fn descriptors_that_nobody_takes(attacker: &mut Attacker) {
    let (mut slow, name) = (Raw::join("slow"), attacker.fresh());
    slow.export(&name, Role::Sink);
    let mut raw = Raw::join("wakes");
    raw.ask_for(&name, Role::Source, true);
    let channel = slow.accept(Role::Sink).id;
    for _ in 0..MANY {
        let req = raw.req();
        raw.send(&Request::WakeFd { req, channel }, &[]);
    }
    raw.sync();
    attacker.keep((slow, raw));
}
