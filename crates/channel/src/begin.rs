//! Where a channel's thread starts, once both ends have said what they are.

use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::thread;
use crate::wire::Wire;
use crate::word::Hello;
use tranship_core::{Ends, Error, Handed, Pool, Role};

/// Makes the program's end, and starts to carry.
pub(crate) fn begin(
    wire: Wire,
    ends: &Ends,
    ours: Hello,
    theirs: Hello,
    pool: Option<Pool>,
) -> Result<Handed, Error> {
    match (ends.role(), pool) {
        (Role::Sink, Some(pool)) => {
            let (inlet, handed) = ends.receiving(&wire.place)?;
            let receiving = Receiving::new(inlet, wire, pool, ours);
            thread::spawn("tranship-carry", move || receiving.run())?;
            Ok(handed)
        }
        _ => {
            let (outlet, handed) = ends.sending(&wire.place, theirs.bytes)?;
            let sending = Sending::new(outlet, wire, theirs);
            thread::spawn("tranship-carry", move || sending.run())?;
            Ok(handed)
        }
    }
}
