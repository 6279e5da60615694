//! Where a manager's socket would be, and whether one listens there.

use super::finding::Finding;
use crate::commands::sockets::{self, Listening};
use std::path::Path;
use tranship_manager::paths::SOCKET_ENV;

pub(super) fn look(given: Option<&Path>) -> Vec<Finding> {
    let places = sockets::candidates(given);
    let mut found = Vec::new();
    let mut anyone = false;
    for place in &places {
        let listening = sockets::probe(&place.path);
        anyone |= listening == Listening::Yes;
        found.push(finding(place, &listening));
    }
    if !anyone {
        let named = given.is_some() || std::env::var_os(SOCKET_ENV).is_some_and(|p| !p.is_empty());
        let (cost, fix) = if named {
            (
                "nothing works: where a socket is named, no manager is started",
                "run `tranship manager` there, or name no socket",
            )
        } else {
            (
                "`connect` starts one for this user alone, which leaves 60 s after its last client",
                "start `tranship manager`, as a system service for several users",
            )
        };
        found.push(Finding::weak("running", "no", cost, fix));
    }
    found
}

fn finding(place: &sockets::Place, listening: &Listening) -> Finding {
    let path = place.path.display();
    match listening {
        Listening::Yes => Finding::ok(place.why, format!("{path}: a manager listens")),
        Listening::Absent => Finding::ok(place.why, format!("{path}: not there")),
        Listening::Dead => Finding::weak(
            place.why,
            format!("{path}: a socket, but nobody listens"),
            "none; the next manager takes its place",
            "",
        ),
        Listening::Refused(why) => Finding::weak(
            place.why,
            format!("{path}: {why}"),
            "this user cannot use that manager",
            "look at the file's owner and mode, and at the rules in the manager's configuration",
        ),
    }
}
