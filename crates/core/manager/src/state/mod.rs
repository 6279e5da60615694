//! The decisions: a state machine without I/O. Every input comes with the time, and gives a list of actions that the
//! shell executes in that order.

mod access;
mod ancillary;
mod books;
mod context;
mod hogs;
mod model;
mod parts;
mod pools;
mod quotas;
mod readers;
mod recovery;
mod refuse;
mod step;
mod types;
mod views;

pub use access::clients::HELLO_TIMEOUT;
pub use books::ids::{BLOCK, IdStart};
pub(crate) use model::Item;
pub use parts::State;
pub use recovery::stored::Stored;
pub(crate) use types::Surveyed;
pub use types::{
    Action, ClientId, Facts, Fd, FdToken, Figures, Header, HeldSlot, HogNotice, Input, Look, Sealed,
};

// The words of every handler.
use ancillary::Ancillary;
use books::accounts::Of;
use refuse::{barred, no_such, not_yours, refusal};
use tranship_proto::Refusal;
use types::Fail;
