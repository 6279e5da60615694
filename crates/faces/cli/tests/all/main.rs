//! The commands of the program. Long ones have programs of their own.

mod autostart;
mod cache;
mod cache_service;
mod cli;
mod demo;
mod errors;
mod kit;
mod metrics;
mod policy;
mod policy_run;
mod privileged;
mod quota;
mod survive;
mod top;
mod topic;
mod trace;
mod unit_files;
mod zcopy;
