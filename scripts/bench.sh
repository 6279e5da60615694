#!/bin/bash
# Runs the named benches, or those of the fast path, and prints their tables.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${CARGO_TARGET_DIR:-target}/release/tranship-bench
if [ $# = 0 ]; then
    set -- roundtrip stream alloc collect
fi
for name in "$@"; do
    echo "== $name"
    "$bench" "$name"
done
