//! Starts the work of a channel after both ends have introduced themselves.

use crate::driver::{ChannelDriver, Side};
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::wire::Wire;
use crate::word::Hello;
use std::sync::Arc;
use tranship_core::carrier::{Driver, Ends, Handed};
use tranship_core::{Error, Pool, error};
use tranship_sys::signals;

/// Makes the program's end, and starts to carry its messages. `pool`: that of what arrives, if the program receives.
pub(crate) fn begin(
    wire: Wire,
    ends: &Ends,
    ours: Hello,
    theirs: Hello,
    pool: Option<Pool>,
) -> Result<Handed, Error> {
    match pool {
        Some(pool) => {
            let (inlet, handed) = ends.receiving(&wire.place)?;
            carry(Receiving::new(inlet, wire, pool, ours), handed)
        }
        None => {
            let (outlet, handed) = ends.sending(&wire.place, theirs.bytes)?;
            carry(Sending::new(outlet, wire, theirs), handed)
        }
    }
}

fn carry<S: Side + 'static>(side: S, mut handed: Handed) -> Result<Handed, Error> {
    let driver = ChannelDriver::new(side)?;
    handed.drive(Arc::clone(&driver) as Arc<dyn Driver>);
    let started = signals::thread("tranship-carry", 256 << 10, move || driver.run());
    started.map_err(error::system("starting a carrier's thread"))?;
    Ok(handed)
}
