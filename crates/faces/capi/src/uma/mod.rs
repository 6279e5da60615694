//! Zones, as uma(9) has them: `include/tranship/zones.h`, over which `include/tranship/uma.h` gives the short names.

mod alarm;
mod calls;
mod items;
mod pages;
mod types;
mod zone;

pub(crate) use calls::no_thread;
