//! A watchdog that notices when the loop stands still, says where, and ends the process. The next manager finds
//! everything as after a kill. A slow client is no reason: a turn of the loop that does not end is an error in the
//! loop.
//!
//! Time is counted in looks that have seen the same turn. A process that was stopped, or a machine that slept, has not
//! stood still for as long as its clock says.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tranship_sys::{process, signals};

/// Looks at the same turn before it counts as standing still.
const LOOKS: u32 = 8;

/// The loop's position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Phase {
    Waiting,
    Accepting,
    Worker,
    Events,
    Reading,
    Carried,
    Writing,
    Ended,
    Answer,
    Closing,
    Looking,
    Tick,
    Page,
}

const PHASES: [(Phase, &str); 13] = [
    (Phase::Waiting, "waiting"),
    (Phase::Accepting, "taking connections"),
    (Phase::Worker, "hearing a helper"),
    (Phase::Events, "asking for events"),
    (Phase::Reading, "reading from a client"),
    (Phase::Carried, "handling a message that brought something"),
    (Phase::Writing, "writing to a client"),
    (Phase::Ended, "handling the end of a process"),
    (Phase::Answer, "answering"),
    (Phase::Closing, "closing descriptors"),
    (Phase::Looking, "looking at ended connections"),
    (Phase::Tick, "doing what is due"),
    (Phase::Page, "writing statistics"),
];

/// The loop's report about itself.
#[derive(Debug, Default)]
pub(super) struct Beat {
    turn: AtomicU64,
    place: AtomicU64,
    user: AtomicU64,
    client: AtomicU64,
}

impl Beat {
    /// Records that a turn begins.
    pub fn turn(&self) {
        // Ordering: Relaxed, here and below; each word is only read, and nothing depends on their order.
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    pub fn at(&self, place: Phase, user: u32, client: u64) {
        self.user.store(user.into(), Ordering::Relaxed);
        self.client.store(client, Ordering::Relaxed);
        self.place.store(place as u64, Ordering::Relaxed);
    }

    fn place(&self) -> (Phase, &'static str) {
        let place = self.place.load(Ordering::Relaxed);
        let found = PHASES.into_iter().find(|(p, _)| *p as u64 == place);
        found.unwrap_or(PHASES[0])
    }

    fn words(&self, limit: Duration) -> String {
        let (place, what) = self.place();
        let of = match place {
            Phase::Waiting | Phase::Accepting | Phase::Worker | Phase::Tick | Phase::Page => {
                String::new()
            }
            _ => format!(
                ", for user {} (connection {})",
                self.user.load(Ordering::Relaxed),
                self.client.load(Ordering::Relaxed)
            ),
        };
        format!(
            "tranship manager: one turn of the loop has taken more than {limit:?}, while {what}{of}; aborting\n"
        )
    }
}

/// Watches for as long as the process lives.
pub(super) fn start(limit: Duration) -> io::Result<Arc<Beat>> {
    let beat = Arc::new(Beat::default());
    let watched = beat.clone();
    let watch = std::thread::Builder::new().name("watchdog".to_owned());
    watch.spawn(move || {
        let _ = signals::block_all();
        let (mut last, mut same) = (0, 0);
        // The loop is gone when only the watchdog has its words.
        while Arc::strong_count(&watched) > 1 {
            std::thread::sleep(limit / LOOKS);
            let turn = watched.turn.load(Ordering::Relaxed);
            if turn != last || watched.place().0 == Phase::Waiting {
                (last, same) = (turn, 0);
                continue;
            }
            same += 1;
            if same >= LOOKS {
                // Not through streams whose lock the stuck thread may hold.
                process::last_words(&watched.words(limit));
                std::process::abort();
            }
        }
    })?;
    Ok(beat)
}
