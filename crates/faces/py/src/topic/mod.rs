//! Topics: `tranship.Publisher` and `tranship.Subscriber`.

mod publisher;
mod subscriber;

pub(crate) use publisher::{Behind, Publisher};
pub(crate) use subscriber::Subscriber;
