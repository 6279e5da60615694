//! Lengths and kinds of `docs/format.md`.

use tranship_proto::Role;
use tranship_region::layout::{control_page, trace};

pub const TABLE: u32 = 2;
pub const REFS: u32 = 3;
pub const SENT: u32 = 4;
pub const RCVD: u32 = 5;
pub const LINK_SOURCE: u32 = 6;
pub const LINK_SINK: u32 = 7;
pub const TRACE: u32 = 9;

fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(4096)
}
pub fn table_bytes(slots: u32) -> u64 {
    pages(4096 + 32 * u64::from(slots))
}
pub fn refs_bytes(slots: u32) -> u64 {
    pages(128 + 4 * u64::from(slots))
}
pub fn counts_bytes(slots: u32) -> u64 {
    pages(64 + 4 * u64::from(slots))
}
pub fn control_page_bytes(entries: u32) -> u64 {
    control_page::len(entries) as u64
}
/// Returns the entries and the length of a trace ring.
pub fn trace_shape() -> (u32, u64) {
    (trace::ENTRIES, trace::len() as u64)
}
pub fn link_bytes(lines: u32) -> u64 {
    pages(4096 + 64 * u64::from(lines))
}
pub fn link_kind(role: Role) -> u32 {
    match role {
        Role::Source => LINK_SOURCE,
        Role::Sink => LINK_SINK,
    }
}
