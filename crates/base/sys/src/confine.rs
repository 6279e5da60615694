//! Rights that a process can give up for good: privileges, and resources beyond its needs.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::io;

/// Drops all capabilities of this thread and of those that it starts, and of programs that they run. With `but_kill`,
/// the capability to signal other users' processes stays, if it is there.
pub fn drop_capabilities(but_kill: bool) -> io::Result<()> {
    set_no_new_privs(true)?;
    // Only a process with CAP_SETPCAP may. A process without it gets no more than it has anyway.
    let kept = match but_kill {
        true => capabilities(None)?.permitted & CapabilitySet::KILL,
        false => CapabilitySet::empty(),
    };
    for capability in CapabilitySet::all().difference(kept) {
        match remove_capability_from_bounding_set(capability) {
            // This kernel does not know the capability.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    clear_ambient_capability_set()?;
    let left = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, left)?)
}

/// Limits a resource for this process and its children, from now on.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let lower = |of: Option<u64>| Some(of.map_or(most, |of| of.min(most)));
    let limit = Rlimit {
        current: lower(now.current),
        maximum: lower(now.maximum),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Limits the memory that a process does not share with others, in bytes.
pub fn limit_memory(most: u64) -> io::Result<()> {
    limit(Resource::Data, most)
}

/// Gives up locked memory, queues of messages, dumps of memory, and priority over others.
pub fn no_locked_memory_queues_or_cores() -> io::Result<()> {
    for resource in [
        Resource::Memlock,
        Resource::Msgqueue,
        Resource::Core,
        Resource::Rtprio,
        Resource::Nice,
    ] {
        limit(resource, 0)?;
    }
    Ok(())
}
