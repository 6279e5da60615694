//! A liar: at any moment it publishes any id without counting, takes messages without holding, and writes anything it
//! likes into its own words, of which nothing is kept: a reader of such a word may read any value.
//!
//! What an honest domain would do is among it.

use crate::config::Config;
use crate::state::{Message, State};
use crate::system::Steps;

pub fn steps(config: &Config, state: &State, out: &mut Steps) {
    let Some(liar) = config.liar.filter(|&l| state.is_alive(l)) else {
        return;
    };
    for (q, &(source, sink)) in config.channels.iter().enumerate() {
        let number = u8::try_from(q).expect("few");
        if source == liar && state.length[q] < config.ring {
            for slot in 0..config.slots {
                for generation in 1..1 << config.generation_bits {
                    let mut next = *state;
                    let mut message = Message {
                        kind: slot,
                        ..Message::default()
                    };
                    message.generations[usize::from(slot)] = generation;
                    next.push(q, message);
                    out.push("(liar) publishes generation", liar, generation, next);
                }
            }
        }
        if sink == liar && state.length[q] > 0 {
            let mut next = *state;
            next.pop(q);
            out.push("(liar) takes from", liar, number, next);
        }
    }
}
