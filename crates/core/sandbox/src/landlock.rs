//! No file, no port, no abstract socket, no signal to outside.

use landlock::{
    ABI, Access, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use std::path::PathBuf;
use tranship_error::{Error, ErrorKind};

/// The newest rights that are asked for; an older kernel gives what it has.
const KNOWN: ABI = ABI::V6;

/// The protection that the kernel's Landlock gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landlock {
    /// Files, TCP ports, abstract sockets and signals (Linux 6.12 and later).
    Whole,
    /// Some of these: the kernel is older.
    Part,
    /// No protection: the kernel has no Landlock, or it is switched off. The system calls that would need it are
    /// refused anyway.
    Missing,
}

/// Restricts this thread, and those that it starts: no file, no port.
pub(crate) fn restrict() -> Result<Landlock, Error> {
    enforced(|| ruleset(true)?.create()?.restrict_self())
}

/// Restricts this thread, and the programs that it starts, to these paths. The ports stay open with `network`.
pub(crate) fn restrict_to(
    read: &[PathBuf],
    write: &[PathBuf],
    network: bool,
) -> Result<Landlock, Error> {
    enforced(|| {
        ruleset(!network)?
            .create()?
            .add_rules(path_beneath_rules(read, AccessFs::from_read(KNOWN)))?
            .add_rules(path_beneath_rules(write, AccessFs::from_all(KNOWN)))?
            .restrict_self()
    })
}

fn ruleset(ports: bool) -> Result<Ruleset, RulesetError> {
    let all = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?;
    match ports {
        true => all.handle_access(AccessNet::from_all(KNOWN)),
        false => Ok(all),
    }
}

fn enforced(
    restrict: impl FnOnce() -> Result<RestrictionStatus, RulesetError>,
) -> Result<Landlock, Error> {
    let status = restrict().map_err(tranship_error::of_kind(ErrorKind::System))?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Whole,
        RulesetStatus::PartiallyEnforced => Landlock::Part,
        RulesetStatus::NotEnforced => Landlock::Missing,
    })
}
