//! What can be done with requests that are as they should be. Each attack is a burst: it does so much, keeps what keeps the
//! manager busy, and returns; whoever throws the attacker out on the way has ended that burst only.

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
