#!/bin/bash
# Builds and runs the numbered examples; each must end by itself with success. Beside them scripts/upheaval.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
limit=${EXAMPLE_SECONDS:-600}

names=()
for file in examples/[0-9]*.rs; do
    name=$(basename "$file" .rs)
    # Of those that need Arrow the stage `libraries` takes care.
    [ ! -e "$file" ] || grep -q '^//! Run: .*arrow' "$file" || names+=("$name")
done
if [ ${#names[@]} = 0 ]; then
    echo "examples: there are none"
    exit 0
fi
# As the tests have them already.
"$cargo" build --quiet --workspace --examples --bin tranship
programs=${CARGO_TARGET_DIR:-target}/debug/examples
# Those that are programs of their own, while everybody is killed now and then. It waits for most of its time.
scripts/upheaval.sh &
upheaval=$!
failed=0
for name in "${names[@]}"; do
    echo "example $name"
    # Not a bound on speed: a watchdog, so that an example that hangs is an error.
    timeout "$limit" "$programs/$name" </dev/null || failed=$?
    [ $failed = 0 ] || break
done
wait "$upheaval" || failed=$?
exit $failed
