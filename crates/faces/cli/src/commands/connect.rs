//! Joining the manager from a command.

use crate::args::ConnectArgs;
use tranship::{Domain, DomainBuilder, Error};
#[cfg(feature = "net")]
use tranship_transport::net::BuiltIn;

/// Joins the manager, and starts one if there is none.
pub(super) fn join(args: &ConnectArgs, name: &str) -> Result<Domain, Error> {
    with_socket(args, name).connect()
}

/// Joins for a command that may wait for long for something other than the manager, such as its input. A manager that
/// is gone meanwhile is started again, and the next one learns the state of this domain.
pub(super) fn stay(args: &ConnectArgs, name: &str) -> Result<Domain, Error> {
    with_socket(args, name).helper_thread(true).connect()
}

/// Joins for a command that sends or receives at an address, which may be on another machine. An error in the address
/// is reported before the command waits for anything.
pub(super) fn travel(args: &ConnectArgs, name: &str, address: &str) -> Result<Domain, Error> {
    check_address(address)?;
    let domain = stay(args, name)?;
    #[cfg(feature = "net")]
    tranship::net::add_to(&domain)?;
    Ok(domain)
}

/// Checks that it is an address, and that there are the credentials that it needs.
pub(super) fn check_address(address: &str) -> Result<(), Error> {
    #[cfg(feature = "net")]
    match address.split_once(':') {
        Some(("tcp", rest)) => BuiltIn::tls().check(rest)?,
        Some(("tcp+plain", rest)) => BuiltIn::plain().check(rest)?,
        _ => {}
    }
    let _ = address;
    Ok(())
}

/// Joins only to look: without a manager there is no answer.
pub(crate) fn look(args: &ConnectArgs) -> Result<Domain, Error> {
    visit(args, "tranship-stat")
}

/// Joins a manager only if one runs.
pub(super) fn visit(args: &ConnectArgs, name: &str) -> Result<Domain, Error> {
    with_socket(args, name).autostart(false).connect()
}

/// Joins a manager only if one runs: for a command that takes part in what other programs do, for long.
pub(super) fn take_part(args: &ConnectArgs, name: &str) -> Result<Domain, Error> {
    with_socket(args, name)
        .helper_thread(true)
        .autostart(false)
        .connect()
}

fn with_socket(args: &ConnectArgs, name: &str) -> DomainBuilder {
    let builder = Domain::builder().name(name);
    match &args.socket {
        Some(path) => builder.socket(path),
        None => builder,
    }
}
