//! Joining the manager from a command.

use crate::args::ConnectArgs;
use tranship::{Domain, DomainBuilder, Error};

/// Starts a manager when there is none.
pub(super) fn join(args: &ConnectArgs, name: &str) -> Result<Domain, Error> {
    with_socket(args, name).connect()
}

/// The same for who may wait for long for something else than the manager, such as its input: a manager that is gone meanwhile is
/// started again, and the next one is shown what there is.
pub(super) fn stay(args: &ConnectArgs, name: &str) -> Result<Domain, Error> {
    with_socket(args, name).helper_thread(true).connect()
}

/// Only looks: no manager, no answer.
pub(crate) fn look(args: &ConnectArgs) -> Result<Domain, Error> {
    with_socket(args, "tranship-stat")
        .autostart(false)
        .connect()
}

/// Only where there is one: who comes to divide memory among others starts no manager.
pub(super) fn steer(args: &ConnectArgs) -> Result<Domain, Error> {
    with_socket(args, "tranship-policy")
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
