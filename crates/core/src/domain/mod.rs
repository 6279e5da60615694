//! A protection domain's core: the process's membership with a manager. It knows no pool and no link but as residents.
//!
//! Its files, from below: what the manager is spoken to by (`wire`, `greeting`, `conn`), finding and starting one (`discover`, `starter`,
//! `cut_off`, `home`), what a domain has (`boards`, `heap`, `backlog`, `exports`, `tasks`, `notes`, `trace`, `haste`), what lives in it, which it knows by what the manager
//! asks of it (`residents`, `register`), its whole state (`state`); what is done
//! with that: each event (`events`), the claims after a manager's restart (`resume`), a turn of all that is due (`turn`), questions that
//! have an answer (`call`), its end (`entrust`, `leave`, `leaks`), its beginning (`join`).

mod backlog;
mod boards;
mod call;
mod conn;
mod cut_off;
pub(crate) mod discover;
mod entrust;
mod events;
mod exports;
mod greeting;
mod haste;
mod heap;
mod helper;
mod home;
mod join;
mod leaks;
mod leave;
mod notes;
mod poll;
mod register;
mod residents;
mod resume;
mod starter;
mod state;
mod tasks;
mod trace;
mod turn;
mod wire;

pub(crate) use backlog::{Backlog, NEWS, Take};
pub(crate) use call::{Asked, NAP, PATIENCE, ROUND};
pub(crate) use greeting::PATIENCE as HUNG;
pub(crate) use heap::OwnHeap;
pub(crate) use join::Join;
pub(crate) use leave::look as look_at_left;
pub use notes::{Got, HeldBuffer, LeakReport, Leaks, OwnBuffer};
pub(crate) use residents::{
    ForeignMember, Gone, Had, Joined, LinkMember, OwnMember, PoolShape, Taken, Watch,
};
pub(crate) use state::DomainCore;
pub(crate) use tasks::{Key, Woken};
pub(crate) use trace::Subject;
pub(crate) use wire::Parcel;
