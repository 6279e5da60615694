//! The manager as a process of its own.

use tranship_core::admin::StatRecord;
use tranship_manager::{Config, Listener, Shutdown};
use tranship_testkit::{Control, child, is_root};

use crate::forwarder::LIST_POOL;
use crate::seat::{Broken, Order, Seat, Start, broken};
use crate::stage::{PAIR_POOL, WRITER_POOL};

child!(
    pub fn manager(ctl: Control) -> Result<(), String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let start: Start = ctl.recv().map_err(|e| text(&e))?.ok_or("no start")?;
        // The total is as much as the flow needs and not a byte more: memory that is not given back is soon missed.
        let config = Config {
            total: Some(PAIR_POOL + WRITER_POOL + LIST_POOL),
            // A pool can thus ask for more than it may have.
            default_quota: Some(WRITER_POOL),
            orphan_interval: std::time::Duration::from_millis(20),
            ..Config::default()
        };
        let listener = Listener::bind(&start.socket, 0o600).map_err(|e| text(&e))?;
        ctl.send(&()).map_err(|e| text(&e))?;
        let stop = Shutdown::new().map_err(|e| text(&e))?;
        let on_order = stop.clone();
        // Ends in order when the control socket closes; `ctl` lives in this thread from here on.
        std::thread::spawn(move || {
            let _ = ctl.recv::<()>();
            let _ = on_order.stop();
        });
        // Not dumpable, like the daemon, except where this test must look into it.
        tranship_manager::run(config, listener, &stop, is_root()).map_err(|e| text(&e))
    }
);

child!(
    /// Looks at the manager's books from outside.
    pub fn guest(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "guest", 0)?;
        loop {
            match seat.round()? {
                None => seat.idle(),
                Some(Order::Alone) => {
                    while !alone(&seat.domain.admin().stat().map_err(broken)?) {
                        std::thread::yield_now();
                    }
                    seat.done()?;
                }
                Some(Order::Quit) => return Ok(()),
                Some(other) => return Err(format!("guest: {other:?}")),
            }
        }
    }
);

fn alone(books: &[StatRecord]) -> bool {
    books
        .iter()
        .filter(|record| match record {
            StatRecord::Manager(m) => m.granted_bytes != 0 || m.stranded_bytes != 0,
            _ => true,
        })
        .count()
        == 1
}
