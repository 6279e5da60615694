//! Items in memory: kegs over an arena, and zones over kegs.

mod alarm;
mod debug;
mod destroy;
mod keg;
mod limit;
mod managed;
mod object;
mod request;
mod stats;
mod supply;
mod zone;

pub use alarm::{Alarm, Warning};
pub use debug::DebugOptions;
pub use destroy::ItemsOut;
pub use keg::{ItemKeg, KegError, MAX_ITEM_BYTES};
pub use object::{Bytes, Object, Refused};
pub use request::{AllocError, Request, Wait};
pub use stats::ItemStats;
pub use zone::{ItemOptions, ItemZone};
