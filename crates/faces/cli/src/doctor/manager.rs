//! Path of a manager's socket, and whether a manager listens there.

use super::finding::Finding;
use crate::args::ConnectArgs;
use crate::commands::connect;
use crate::commands::sockets::{self, Listening};
use std::path::Path;
use tranship::admin::StatRecord;
use tranship_session::places::{SOCKET_ENV, SYSTEM_SOCKET};

pub(super) fn look(given: Option<&Path>) -> Vec<Finding> {
    let places = sockets::candidates(given);
    let mut found = Vec::new();
    let (mut anyone, mut unusable) = (false, false);
    for place in &places {
        let listening = sockets::probe(&place.path);
        found.push(finding(place, &listening));
        unusable |= matches!(listening, Listening::Unusable(_));
        if listening == Listening::Yes && !anyone {
            anyone = true;
            found.extend(descriptors(&place.path));
        }
    }
    if !anyone {
        let named = given.is_some() || std::env::var_os(SOCKET_ENV).is_some_and(|p| !p.is_empty());
        let (cost, fix) = if unusable {
            (
                "nothing works: no manager is looked for or started past a socket that cannot be used",
                "",
            )
        } else if named {
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

/// Checks how near the manager is to having no free descriptors. Nothing if it does not let us in.
fn descriptors(path: &Path) -> Option<Finding> {
    let args = ConnectArgs {
        socket: Some(path.to_owned()),
    };
    let records = connect::look(&args).ok()?.admin().stat().ok()?;
    let (held, most) = records.iter().find_map(|record| match record {
        StatRecord::Manager(m) => Some((m.descriptors, m.max_descriptors)),
        _ => None,
    })?;
    Some(judged(held, most))
}

fn judged(held: u64, most: u64) -> Finding {
    let value = format!("{held} of {most} that the manager may hold");
    if held < most / 4 * 3 {
        return Finding::ok("descriptors", value);
    }
    Finding::weak(
        "descriptors",
        value,
        "when they are used up, new pools, chunks and links are refused until some come back",
        "raise the manager's limit of open files (LimitNOFILE= of its unit, `ulimit -n`), or use larger chunks",
    )
}

fn finding(place: &sockets::Candidate, listening: &Listening) -> Finding {
    let path = place.path.display();
    match listening {
        Listening::Yes => Finding::ok(place.why, format!("{path}: a manager listens")),
        Listening::Absent => Finding::ok(place.why, format!("{path}: not there")),
        Listening::Dead => {
            let value = format!("{path}: a socket, but nobody listens");
            let (cost, fix) = if place.path == Path::new(SYSTEM_SOCKET) {
                (
                    "no manager is started beside it",
                    "start the system's manager, or remove the file",
                )
            } else {
                ("none; the next manager takes its place", "")
            };
            Finding::weak(place.why, value, cost, fix)
        }
        Listening::Unusable(problem) => Finding::weak(
            place.why,
            format!("{path}: {problem}"),
            "no manager is looked for or started past it",
            "",
        ),
        Listening::Refused(why) => Finding::weak(
            place.why,
            format!("{path}: {why}"),
            "this user cannot use that manager",
            "",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn who_names_no_managers_socket_is_not_told_to_start_one() {
        let dir = tranship_testkit::folder().expect("a folder");
        let path = dir.path().join("file");
        let fixes = || {
            let found = look(Some(&path)).into_iter();
            found.filter_map(|f| f.fix).collect::<String>()
        };
        assert!(fixes().contains("run `tranship manager` there"));
        std::fs::write(&path, "").expect("a file");
        assert_eq!(fixes(), "");
        let found = look(Some(&path));
        assert!(found[0].value.contains("it is no socket"), "{found:?}");
    }

    #[test]
    fn a_manager_that_is_nearly_full_is_said_to_be() {
        assert_eq!(judged(10, 1000).state, State::Ok);
        let full = judged(900, 1000);
        assert_eq!(full.state, State::Weak);
        assert!(full.value.contains("900 of 1000"));
    }
}
