//! Which orders of a pass are right: one.

use tranship_ledger::order::{CollectStep, PASS_ORDER, Phase};

use crate::config::{A, B, C, Config, E};
use crate::explorer::explore;
use crate::honest::CYCLE;
use crate::torture;

use Phase::{Received, References, Sent};

const ORDERS: [[Phase; 3]; 6] = [
    [Received, References, Sent],
    [Received, Sent, References],
    [References, Received, Sent],
    [References, Sent, Received],
    [Sent, Received, References],
    [Sent, References, Received],
];

fn systems() -> Vec<Config> {
    let mut systems = vec![
        Config::new("chain", 3, &[(A, B), (B, C)]),
        Config::new("cycle", 3, &CYCLE[..3]),
        Config::new("back and forth", 3, &[(A, B), (B, C), (C, B)]),
    ];
    if torture() {
        systems.push(Config::new("cycle and a second way", 3, CYCLE));
        systems.push(Config::new(
            "long chain",
            4,
            &[(A, B), (B, C), (C, E), (E, B)],
        ));
    }
    systems
}

/// The verdict of each order over all systems: the first thing that goes wrong, if any.
fn judge(passes: usize) -> Vec<Option<(String, &'static str)>> {
    ORDERS
        .iter()
        .map(|order| {
            systems().into_iter().find_map(|system| {
                let name = system.name.clone();
                let config = system.with(|c| {
                    c.any_order = true;
                    c.pass = order.to_vec();
                    c.collection = vec![CollectStep::Pass; passes];
                });
                let outcome = explore(&mut &config);
                let wrong = outcome.violation.map(|(why, _)| why);
                println!(
                    "{passes} x {order:?}, {name}: {wrong:?} in {} states",
                    outcome.states
                );
                wrong.map(|why| (name, why))
            })
        })
        .collect()
}

#[test]
fn one_pass_is_right_in_one_order_only() {
    assert_eq!(ORDERS[0], PASS_ORDER);
    let verdicts = judge(1);
    assert!(verdicts[0].is_none());
    assert!(verdicts[1..].iter().all(Option::is_some), "{verdicts:?}");
}

/// Reading twice does not make up for the order.
#[test]
fn two_passes_are_wrong_in_all_other_orders_too() {
    let verdicts = judge(2);
    assert!(verdicts[0].is_none());
    assert!(verdicts[1..].iter().all(Option::is_some), "{verdicts:?}");
}
