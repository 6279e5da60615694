//! Domains that hold too much of others' memory: saying so, and ending their processes.

use crate::state::HogNotice;
use std::fs::File;
use tranship_proto::DomainId;
use tranship_sys::pidfd;

/// Writes a notice to the log, with the data that an administrator needs to find the domain.
pub(super) fn say(notice: &HogNotice) {
    let HogNotice {
        domain,
        name,
        pid,
        uid,
        charged_bytes,
        over_bytes,
        action,
    } = notice;
    match action {
        Some(action) => tracing::warn!(
            %domain, name, pid, uid, charged_bytes, over_bytes, %action,
            "a domain holds more of others' memory than it may"
        ),
        None => tracing::info!(
            %domain, name, pid, uid, charged_bytes, over_bytes,
            "a domain has let go of what it held of others' memory"
        ),
    }
}

/// Kills a process; says whether the kernel does it.
pub(super) fn kill(domain: DomainId, process: Option<&File>) -> bool {
    let Some(process) = process else {
        return true; // its end is known already
    };
    match pidfd::kill(process) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, %domain, "its process cannot be killed: its membership ends");
            false
        }
    }
}
