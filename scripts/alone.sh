#!/bin/bash
# alone.sh [WORD...]: each test program by itself, one test at a time, on one processor: those whose name has one of the words, or all.
# What hides while others run shows so: a test that only ends because another one keeps its program busy. `CORES=0-3` has them run on
# more processors. Not a part of `make test`: a quarter of an hour after the build.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
cores=${CORES:-0}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$cargo" test --workspace --no-run
programs=$("$cargo" test --workspace --no-run --message-format=json 2>/dev/null | python3 -c '
import json, os, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["profile"]["test"]:
        print(made["executable"], os.path.dirname(made["manifest_path"]))
')
failed=0
while read -r program folder; do
    name=$(basename "$program")
    [ $# = 0 ] || [[ "$name" =~ $(IFS='|' && echo "$*") ]] || continue
    begun=$SECONDS
    if (cd "$folder" && CARGO_MANIFEST_DIR=$folder taskset -c "$cores" "$program" --test-threads=1) >"$log" 2>&1 </dev/null; then
        printf '%5d s  %s\n' $((SECONDS - begun)) "$name"
    else
        failed=$((failed + 1))
        printf '%5d s  %s FAILED\n' $((SECONDS - begun)) "$name"
        cat "$log"
    fi
done <<<"$programs"
[ $failed = 0 ] || { echo "alone: $failed test programs failed" >&2; exit 1; }
