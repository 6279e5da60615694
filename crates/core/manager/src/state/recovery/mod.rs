//! Things that earlier managers and dead domains left: claims, the service manager's store, orphans.

pub(super) mod bits;
pub(super) mod brought;
pub(super) mod claimed;
pub(super) mod claims;
pub(super) mod orphans;
pub(super) mod pass;
pub(super) mod resume;
pub(super) mod settle;
pub(super) mod stored;
pub(super) mod sweep;
