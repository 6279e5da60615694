//! Domains and a type that several tests use.
#![allow(dead_code)] // each set of features uses a part of it

use tranship_core::Domain;
use tranship_testkit::Watchdog;
use tranship_typed::Message;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Debug)]
#[message(crate = tranship_typed)]
#[repr(C)]
pub(crate) struct Frame {
    pub(crate) taken_ns: u64,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

pub(crate) const FRAME: Frame = Frame {
    taken_ns: 7,
    width: 640,
    height: 480,
};

/// Two domains, and the watchdog of the test.
#[track_caller]
pub(crate) fn watched() -> (Watchdog, (Domain, Domain)) {
    (Watchdog::new(), domains())
}

/// A domain with a manager, and another one.
pub(crate) fn domains() -> (Domain, Domain) {
    let a = Domain::builder().name("a").helper_thread(true).embedded();
    let a = a.expect("embedded");
    let path = a.socket_path().expect("socket");
    let b = Domain::builder().name("b").socket(path);
    (a, b.helper_thread(true).connect().expect("connect"))
}
