//! Starts the work of a channel after both ends have introduced themselves.

use crate::driver::ChannelDriver;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::thread;
use crate::wire::Wire;
use crate::word::Hello;
use std::sync::Arc;
use tranship_core::carrier::{Driver, Ends, Handed};
use tranship_core::{Error, Pool};

/// Makes the program's end, and starts to carry its messages.
pub(crate) fn begin(
    wire: Wire,
    ends: &Ends,
    ours: Hello,
    theirs: Hello,
    pool: Option<Pool>,
) -> Result<Handed, Error> {
    match (ends.sends(), pool) {
        (false, Some(pool)) => {
            let (inlet, mut handed) = ends.receiving(&wire.place)?;
            let driver = ChannelDriver::new(Receiving::new(inlet, wire, pool, ours))?;
            handed.drive(Arc::clone(&driver) as Arc<dyn Driver>);
            thread::spawn("tranship-carry", move || driver.run())?;
            Ok(handed)
        }
        _ => {
            let (outlet, mut handed) = ends.sending(&wire.place, theirs.bytes)?;
            let driver = ChannelDriver::new(Sending::new(outlet, wire, theirs))?;
            handed.drive(Arc::clone(&driver) as Arc<dyn Driver>);
            thread::spawn("tranship-carry", move || driver.run())?;
            Ok(handed)
        }
    }
}
