#!/bin/bash
# Builds and runs the numbered examples; each must end by itself with success. Then scripts/upheaval.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
limit=${EXAMPLE_SECONDS:-600}

names=()
for file in examples/[0-9]*.rs crates/tranship/examples/[0-9]*.rs; do
    [ -e "$file" ] && names+=("$(basename "$file" .rs)")
done
if [ ${#names[@]} = 0 ]; then
    echo "examples: there are none"
    exit 0
fi
"$cargo" build --quiet -p tranship --examples
for name in "${names[@]}"; do
    echo "example $name"
    # Not a bound on speed: a watchdog, so that an example that hangs is an error.
    timeout "$limit" "$cargo" run --quiet -p tranship --example "$name" </dev/null
done
# Those that are programs of their own, while everybody is killed now and then.
scripts/upheaval.sh
