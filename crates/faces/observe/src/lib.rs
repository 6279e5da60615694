//! A manager seen from outside: figures as OpenMetrics text, a page with plots, and the small HTTP server that both are
//! had from.
//!
//! Its place in the system: the program that runs it is a client of the manager like any other (it brings a
//! [`Source`]), in a process of its own. The manager does not know that it is there, hears no HTTP, and waits for no
//! slow reader.
//!
//! ```text
//!  manager ──Stat──► Source ──► Snapshot ─┬─► collect ──► text       /metrics
//!               (at most twice a second)  └─► json                   /data.json  ◄── the page (web/)
//! ```
//!
//! * `families.rs`: every metric, its type and unit, from the table of figures (`proto`): the dashboard in `dist/` is
//!   compared with it.
//! * `collect.rs`, `tally.rs`: records become series, bounded in number; counters that do not fall when an object ends.
//! * `text.rs`: OpenMetrics 1.0, and the older text of Prometheus.
//! * `http/`: requests, the clients that may ask, the answers, limits.
//!
//! NOT here: how the manager is reached, command lines (`cli` has both), and the statistics page that a reader maps
//! while a manager hangs.

#![deny(unsafe_code)]

mod collect;
mod families;
mod http;
mod json;
mod look;
mod tally;
mod text;

pub use families::{FAMILIES, Family, Kind};
pub use http::listen::{Door, ListenError, tcp, unix};
pub use http::serve::{Server, limits};
pub use json::{page_data, record_json};
pub use look::{Snapshot, Source};
pub use tally::Tally;
pub use text::Format;

/// Renders all of a snapshot as text.
pub fn render(looked: Result<&Snapshot, &str>, tally: &mut Tally, format: Format) -> String {
    text::encode(&collect::collect(looked, tally), format)
}
