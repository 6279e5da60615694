#!/bin/bash
# Runs the loom models of every crate that has some (tests/loom*.rs), with their own target folder because
# `--cfg loom` changes every crate. LOOM_MAX_PREEMPTIONS bounds the search; 2 finds nearly everything.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-2}
export RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/loom

found=0
for model in crates/*/tests/loom*.rs; do
    [ -e "$model" ] || continue
    found=1
    crate=$(sed -n 's/^name = "\(.*\)"/\1/p;T;q' "${model%/tests/*}/Cargo.toml")
    name=$(basename "$model" .rs)
    echo "loom: $crate $name (at most $LOOM_MAX_PREEMPTIONS preemptions)"
    # Optimised, without debug assertions of the search itself: the models run some 20 times faster.
    CARGO_PROFILE_DEV_OPT_LEVEL=2 "$cargo" test --quiet -p "$crate" --test "$name"
done
[ $found = 1 ] || echo "loom: no crate has models (tests/loom*.rs)"
