//! Attacks with valid requests. Each attack is a burst: it does so much, keeps the objects that keep the manager busy,
//! and returns. If the manager throws the attacker out on the way, that ends only the burst.

pub mod descriptors;
mod floods;
mod greed;
mod queues;
mod tables;

use super::Attacker;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    pub name: &'static str,
    pub burst: fn(&mut Attacker),
}

macro_rules! attacks {
    ($($module:ident: $($name:ident)*;)*) => {
        /// All of them.
        pub const ATTACKS: &[Attack] = &[$($(Attack {
            name: stringify!($name),
            burst: $module::$name,
        },)*)*];
    };
}

attacks! {
    descriptors: sockets_that_linger files_that_nobody_answers_for;
    floods: questions children_of_the_dead silent_connections comings_and_goings;
    greed: memory domains_and_pools names heaps;
    queues: connects_that_are_given_up connects_that_are_not an_exporter_that_does_not_read descriptors_that_nobody_takes;
    tables: the_table_of_a_dead_writer claims_of_what_never_was claims_that_are_never_done;
}
