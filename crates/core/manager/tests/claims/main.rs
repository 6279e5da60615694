//! Clients' claims after their connection or their manager ended, over a real socket.

#[path = "../common/mod.rs"]
mod common;
mod next;
mod orphans;
mod same;
mod trust;
