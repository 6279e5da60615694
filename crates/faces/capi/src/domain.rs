//! A process's membership.

use crate::given::{copy_out, there};
use crate::open::closed;
use crate::options::{DomainOptions, grown};
use crate::status::{Error, Status, border, making, quietly};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

/// This process's membership with a manager. Any thread may use it, all at the same time; see tranship_domain_close for its end.
///
/// After a fork(2) it is the parent's: in the child every call fails as TRANSHIP_ERR_FORKED, and closing does nothing.
#[derive(Debug)]
pub struct Domain(pub(crate) facade::Domain);

/// With addresses of other machines, too.
fn with_carriers(domain: facade::Domain) -> Result<facade::Domain, facade::Error> {
    facade::net::add_to(&domain)?;
    Ok(domain)
}

/// Joins the manager that `options` name (NULL: the one in TRANSHIP_SOCKET, else the system's, else the user's), or starts one, which
/// leaves 60 s after its last client. The program `tranship` is looked for in TRANSHIP_BIN, beside the calling program, in the PATH.
///
/// Close it with tranship_domain_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_connect(
    options: *const DomainOptions,
    out: Option<&mut MaybeUninit<Option<Box<Domain>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        Ok(Domain(with_carriers(
            grown(options)?.builder()?.connect()?,
        )?))
    })
}

/// Starts a manager as a thread of this process, and joins it. Other processes join by its socket
/// (tranship_domain_socket). It isolates no domain from this process.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_embedded(
    options: *const DomainOptions,
    out: Option<&mut MaybeUninit<Option<Box<Domain>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        Ok(Domain(with_carriers(
            grown(options)?.builder()?.embedded()?,
        )?))
    })
}

/// Leaves, as soon as its pools, channels and buffers are gone, too. They may be closed in any order. NULL is nothing.
///
/// Call it when no other call with this handle is under way or will begin; a thread that is to stop waits in turns, or by tranship_poll.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_domain_close(domain: Option<Box<Domain>>) {
    quietly((), || drop(closed(domain, "tranship_domain_close")));
}

/// Returns the number by which the manager and other domains know this one. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_domain_id(domain: Option<&Domain>) -> u32 {
    domain.map_or(0, |domain| domain.0.id().0)
}

/// Copies the path of the manager's socket to `to`, as much as has room, with a 0 at its end. Returns its whole length,
/// as snprintf(3) does: if `room` is not larger than that, the path was cut. 0: there is no path.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_domain_socket(
    domain: Option<&Domain>,
    to: *mut c_char,
    room: usize,
) -> usize {
    quietly(0, || {
        let path = domain.and_then(|domain| domain.0.socket_path());
        copy_out(path.unwrap_or_default().as_os_str().as_bytes(), to, room)
    })
}

/// Returns a descriptor for poll(2) and epoll(7), readable when there is something to do: news of the manager (call
/// tranship_domain_turn), connections to accept, or messages for receivers that went to sleep by tranship_receiver_arm.
/// It is the library's: neither read it nor close it. -1 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_domain_fd(domain: Option<&Domain>) -> i32 {
    domain.map_or(-1, |domain| domain.0.as_fd().as_raw_fd())
}

/// Does the manager's queued requests, without waiting: maps, unmaps, gives memory back. All other calls do it now and
/// then. A program that makes no calls for long calls it when the descriptor is readable.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_domain_turn(
    domain: Option<&Domain>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || held(domain)?.turn())
}

/// It, for as long as the call takes: another thread may close the handle meanwhile.
pub(crate) fn held(domain: Option<&Domain>) -> Result<facade::Domain, facade::Error> {
    Ok(there(domain, "domain")?.0.clone())
}
