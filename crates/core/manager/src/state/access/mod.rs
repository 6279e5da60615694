//! Connections, the domains behind them, the names under which they meet, and their channels.

pub(super) mod channels;
pub(super) mod clients;
pub(super) mod death;
pub(super) mod endings;
pub(super) mod exports;
pub(super) mod hello;
pub(super) mod names;
pub(super) mod outbox;
pub(super) mod registered;
pub(super) mod waiting;
