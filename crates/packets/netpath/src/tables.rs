//! The report of a run: the tables of section 4 of "Network Buffer Allocation in the FreeBSD Operating System".

use std::fmt::Write;
use tranship_mbuf::{Calls, Mbufs};

/// Calls of each routine since `before`, and how many packets had which size.
#[must_use]
pub fn describe(mbufs: &Mbufs, before: &Calls) -> String {
    let mut text = String::new();
    let calls = Calls::now().since(before);
    for (_, name, count) in calls.iter().filter(|(_, _, count)| *count > 0) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{count:>12}  {name}");
    }
    let stats = mbufs.stats();
    for (name, zone) in [
        ("m_get, m_gethdr", &stats.mbufs),
        ("m_getcl", &stats.packets),
    ] {
        let _ = writeln!(text, "{:>12}  {name}, since the start", zone.allocs);
    }
    let _ = write!(text, "{stats}");
    text
}
