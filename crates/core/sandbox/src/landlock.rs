//! No file, no port, no abstract socket, no signal to outside.

use landlock::{
    ABI, Access, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr, RulesetError,
    RulesetStatus, Scope,
};
use tranship_error::{Error, ErrorKind};

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

/// Restricts this thread, and those that it starts.
pub(crate) fn restrict() -> Result<Landlock, Error> {
    let status = restricted().map_err(tranship_error::of_kind(ErrorKind::System))?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Whole,
        RulesetStatus::PartiallyEnforced => Landlock::Part,
        RulesetStatus::NotEnforced => Landlock::Missing,
    })
}

fn restricted() -> Result<RestrictionStatus, RulesetError> {
    let abi = ABI::V6;
    Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .restrict_self()
}
