#!/bin/bash
# tests.sh [WORD...]: runs the test programs of the workspace whose name or package has one of the words, or all, several at a time.
# JOBS=N runs N at a time (default: half as many as there are processors; with one more than there are, most time is saved). JOBS=1 CORES=0
# runs each by itself on one processor, one test at a time: a test that only ends because another one keeps its program busy
# shows so.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO=${CARGO:-cargo} CORES=${CORES:-}
jobs=${JOBS:-$((($(nproc) + 1) / 2))}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

"$CARGO" test --quiet --workspace --no-run
# A line a program: the program, the folder of its package.
"$CARGO" test --workspace --no-run --message-format=json 2>/dev/null | python3 -c '
import json, os, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["profile"]["test"]:
        print(made["executable"], os.path.dirname(made["manifest_path"]))
' | sort -u >"$logs/programs"
[ $# = 0 ] || { grep -E "$(IFS='|' && echo "$*")" "$logs/programs" >"$logs/some" || true; mv "$logs/some" "$logs/programs"; }

run() {
    local program=$1 folder=$2 logs=$3 begun=$SECONDS name
    name=$(basename "$folder")/$(basename "$program" | sed 's/-[0-9a-f]*$//')
    local log=$logs/${name//\//-}.log how=()
    [ -z "$CORES" ] || how=(taskset -c "$CORES")
    if (cd "$folder" && CARGO_MANIFEST_DIR=$folder "${how[@]}" "$program" ${CORES:+--test-threads=1}) >"$log" 2>&1 </dev/null; then
        printf '%5d s  %s\n' $((SECONDS - begun)) "$name"
    else
        printf '%5d s  %s FAILED\n' $((SECONDS - begun)) "$name"
        echo "$name" >>"$logs/failed"
        cat "$log"
        { echo "== $name"; tail -n 60 "$log"; } >>"$logs/ends"
    fi
    sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*/\1 \2/p' "$log" >>"$logs/counts"
}
export -f run
: >"$logs/failed" >"$logs/counts"
# The longest first: they would be the last to end.
{ grep -E '/(conform|chaos|kill|python|simulation|all|api)-' "$logs/programs" || true
  grep -vE '/(conform|chaos|kill|python|simulation|all|api)-' "$logs/programs" || true; } |
    xargs -P "$jobs" -L 1 bash -c 'run "$0" "$1" "'"$logs"'"' || true

awk '{passed += $1; failed += $2} END {printf "%d passed, %d failed\n", passed, failed}' "$logs/counts"
if [ -s "$logs/failed" ]; then
    # Once more, where it is seen: the ends of their outputs.
    cat "$logs/ends" >&2
    echo "tests.sh: failed: $(tr '\n' ' ' <"$logs/failed")" >&2
    exit 1
fi
