//! Quotas that change: by hand, by a policy, by a program, by a shortage of memory outside.

pub(super) mod pressure;
pub(super) mod quota;
pub(super) mod schedule;
pub(super) mod steer;
