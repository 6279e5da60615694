#!/bin/bash
# tests.sh [WORD...]: builds everything in one build, then runs the test programs of the workspace whose package or name has one of
# the words (`manager`, `core/api`), or all, several at a time.
# Prints how long each program took, and its processor time.
# JOBS=N runs N at a time (default: twice the processors and one, because most tests wait for most of their time). JOBS=1
# CORES=0 runs each by itself on one processor, one test at a time. Then a test fails that only ends because another test keeps its
# program busy.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO=${CARGO:-cargo} CORES=${CORES:-}
jobs=${JOBS:-$(($(nproc) * 2 + 1))}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# With libraries and other packages' programs, which tests ask for (`testkit::artifact`): a build of one package alone has other
# features, and would build most crates again.
"$CARGO" build --quiet --workspace --all-targets
export TRANSHIP_BUILT=1
# A line a program: the program, the folder of its package, both their names.
"$CARGO" build --workspace --all-targets --message-format=json 2>/dev/null | python3 -c '
import json, os, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["profile"]["test"]:
        folder = os.path.dirname(made["manifest_path"])
        print(made["executable"], folder, os.path.basename(folder) + "/" + made["target"]["name"])
' | sort -u >"$logs/programs"
[ $# = 0 ] || { grep -E "$(IFS='|' && echo "$*")" "$logs/programs" >"$logs/some" || true; mv "$logs/some" "$logs/programs"; }

run() {
    local program=$1 folder=$2 name=$3 logs=$4 begun=$SECONDS
    local log=$logs/${name//\//-}.log how=()
    [ -z "$CORES" ] || how=(taskset -c "$CORES")
    local TIMEFORMAT='%U %S' status=0 used
    { time env -C "$folder" CARGO_MANIFEST_DIR="$folder" "${how[@]}" "$program" ${CORES:+--test-threads=1} >"$log" 2>&1 </dev/null; } \
        2>"$log.used" || status=$?
    used=$(awk '{printf "%.0f", $1 + $2}' "$log.used")
    printf '%5d s %5d s  %s%s\n' $((SECONDS - begun)) "$used" "$name" "$([ $status = 0 ] || echo " FAILED")"
    if [ $status != 0 ]; then
        echo "$name" >>"$logs/failed"
        cat "$log"
        { echo "== $name"; grep -aE -A 7 'panicked at|^watchdog' "$log" | head -c 1500; grep -aE '^(E  |FAILED |ERROR )' "$log" | head -c 1000; tail -n 8 "$log"; } >>"$logs/ends"
    fi
    sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*/\1 \2/p' "$log" >>"$logs/counts"
}
export -f run
: >"$logs/failed" >"$logs/counts"
# The longest first: they would be the last to end.
for long in python web experiment conform chaos hostile smoke kill api all; do
    grep "/$long\$" "$logs/programs" || true
done >"$logs/first"
{ cat "$logs/first" && grep -vxFf "$logs/first" "$logs/programs"; } |
    xargs -P "$jobs" -L 1 bash -c 'run "$0" "$1" "$2" "'"$logs"'"' || true

awk '{passed += $1; failed += $2} END {printf "%d passed, %d failed\n", passed, failed}' "$logs/counts"
if [ -s "$logs/failed" ]; then
    # Once more, where it is seen: what they failed with, and the ends of their outputs.
    cat "$logs/ends" >&2
    echo "tests.sh: failed: $(tr '\n' ' ' <"$logs/failed")" >&2
    exit 1
fi
