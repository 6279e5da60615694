//! Every chain routine against a vector of bytes, over random sequences of operations, with every allocation of each
//! operation made to fail in turn.
//!
//! NOT here: other domains, threads, speed.

mod bench;
mod making;
mod ops;
mod steps;

use bench::Bench;
use ops::op;
use proptest::prelude::*;

fn cases() -> u32 {
    if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        5_000
    } else {
        300
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn chains_are_vectors_of_bytes(ops in prop::collection::vec(op(), 1..30)) {
        let mut bench = Bench::new();
        for op in &ops {
            bench.step(op);
            bench.check();
            // The number and size of chains are bounded.
            if bench.chains.len() > 6 || bench.chains.iter().any(|(c, _)| c.len() > 60_000) {
                bench.chains.remove(0);
            }
        }
        bench.finish();
    }
}
