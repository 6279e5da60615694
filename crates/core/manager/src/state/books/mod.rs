//! The books: ids, each user's share of what is limited, descriptors and the memory behind them, each domain's parts.

pub(super) mod accounts;
pub(super) mod back_refs;
pub(super) mod descriptors;
pub(super) mod extent;
pub(super) mod fresh;
pub(super) mod ids;
pub(super) mod totals;
