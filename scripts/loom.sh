#!/bin/bash
# Runs the models with weak memory of every crate that has some: under loom (tests/loom_models), and under total store order (tests/tso_models).
# With their own target folder because `--cfg loom` changes every crate. LOOM_MAX_PREEMPTIONS bounds loom's search; 2 finds nearly everything.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-2}
export RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}"

crates=()
for model in crates/*/*/tests/{loom,tso}_models; do
    [ -e "$model" ] || continue
    manifest=${model%/tests/*}/Cargo.toml
    crate=$(sed -n 's/^name = "\(.*\)"/\1/p;T;q' "$manifest")
    [[ " ${crates[*]:-} " == *" -p $crate "* ]] || crates+=(-p "$crate")
done
if [ ${#crates[@]} = 0 ]; then
    echo "loom: no crate has models (tests/loom_models, tests/tso_models)"
    exit 0
fi
echo "loom: ${crates[*]} (at most $LOOM_MAX_PREEMPTIONS preemptions)"
# Optimised: the models run some 20 times faster. Not across crates: that takes longer than it saves.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
# Of other crates only those in which a model runs: a fifth of the time to build would go to the others.
optimised=(--config 'profile.release.package."*".opt-level=0')
for crate in loom generator; do
    optimised+=(--config "profile.release.package.$crate.opt-level=3")
done
"$cargo" test --quiet --release "${optimised[@]}" "${crates[@]}" --test loom_models --test tso_models --target-dir "${CARGO_TARGET_DIR:-target}/loom"
