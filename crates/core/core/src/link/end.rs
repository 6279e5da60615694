//! The two ends of a channel, as types.

use super::open::End;
use super::{Receiver, Sender};
use crate::error::Error;
use crate::options::ChannelOptions;
use tranship_proto::Role;

/// An end of a channel: a [`Sender`] or a [`Receiver`]. Nothing else can be one.
///
/// ```compile_fail
/// # use tranship_core as tranship;
/// use tranship::{Domain, Pool};
///
/// let domain = Domain::embedded()?;
/// let listener = domain.listen::<Pool>("local:video")?; // a channel has no such end
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a channel has two ends, `Sender` and `Receiver`: `{Self}` is neither",
    label = "not an end of a channel",
    note = "name the end that this side gets: `domain.listen::<Sender>(address)`, `domain.open::<Receiver>(address)`"
)]
pub trait ChannelEnd: Sealed {}

impl<E: Sealed> ChannelEnd for E {}

/// An end, as the rest of the crate uses it.
#[doc(hidden)]
pub trait Sealed: Sized + 'static {
    const ROLE: Role;

    /// Completes the options that a program gives.
    fn asks(options: ChannelOptions) -> ChannelOptions {
        options
    }

    /// # Errors
    /// Those of the end that it is made of.
    fn of(end: End) -> Result<Self, Error>;
}

impl Sealed for Sender {
    const ROLE: Role = Role::Source;

    fn of(end: End) -> Result<Sender, Error> {
        end.into_sender()
    }
}

impl Sealed for Receiver {
    const ROLE: Role = Role::Sink;

    fn of(end: End) -> Result<Receiver, Error> {
        end.into_receiver()
    }
}
