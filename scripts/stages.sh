#!/bin/bash
# Runs the named stages one after the other, stops at the first that fails, prints how long each took and what was skipped.
# Stages: deps fmt clippy features rules doc units test loom examples libraries torture loom-torture
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# One-off builds gain nothing from incremental files, and without them they are smaller and faster.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0} CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

stage_deps() { scripts/deps.sh; }
stage_fmt() { "$cargo" fmt --all --check; }
stage_clippy() { "$cargo" clippy --quiet --workspace --all-targets -- -D warnings; }
stage_features() { scripts/features.sh; }
# Built beside everything else: alone it has other features, and would take a build of its own.
rules() { "$cargo" build --quiet --workspace --bin xtask && "${CARGO_TARGET_DIR:-target}/debug/xtask" "$@"; }
stage_rules() { rules all; }
# With the default features, as `cargo doc -p tranship` has it, and with all, of which the surface is read. Examples name the crate
# that users have, not those below it. The derive macros keep other crates from being checked again (scripts/features.sh).
stage_doc() {
    local features shown
    export RUSTDOCFLAGS="-D warnings"
    for features in "-p tranship-typed-derive" --all-features; do
        # shellcheck disable=SC2086
        "$cargo" doc --quiet --no-deps -p tranship $features || return 1
        shown=$(grep -rlE 'use </span>tranship_' "${CARGO_TARGET_DIR:-target}/doc/tranship")
        [ -z "$shown" ] || { printf 'an example there names a crate below `tranship`:\n%s\n' "$shown" >&2; return 1; }
    done
    rules surface check
}
stage_units() { "$cargo" test --quiet --workspace --lib --bins; }
stage_test() { scripts/tests.sh && "$cargo" test --quiet --workspace --doc; }
stage_loom() { scripts/loom.sh; }
stage_examples() { scripts/examples.sh; }
# Arrow and FlatBuffers, which no other stage builds.
stage_libraries() {
    "$cargo" test --quiet -p tranship-typed --features arrow,flatbuffers --test libraries &&
        "$cargo" test --quiet -p tranship-typed --features arrow,flatbuffers --doc &&
        "$cargo" run --quiet -p tranship --features arrow,embedded,service --example 25_arrow_service
}
stage_torture() { TRANSHIP_TORTURE=1 "$cargo" test --release --workspace -- --nocapture; }
stage_loom-torture() { TRANSHIP_TORTURE=1 LOOM_MAX_PREEMPTIONS=3 scripts/loom.sh; }

# Every skip of every test adds a line (the test kit's `skipped`); with TRANSHIP_NO_SKIP=1 it is a failure as well.
mkdir -p "${CARGO_TARGET_DIR:-target}"
export TRANSHIP_SKIPS=${TRANSHIP_SKIPS:-$(realpath "${CARGO_TARGET_DIR:-target}")/skips}
: >"$TRANSHIP_SKIPS"

output=$(mktemp)
trap 'rm -f "$output"' EXIT
times=()
report() {
    printf '\n%-14s %8s\n' stage seconds
    printf '%s\n' "${times[@]}"
    local skips
    skips=$(sort "$TRANSHIP_SKIPS" | uniq -c)
    printf '\n%d skipped%s\n' "$(wc -l <"$TRANSHIP_SKIPS")" "${skips:+:}"
    [ -z "$skips" ] || printf '%s\n' "$skips" | sed 's/skipped: //'
}

for stage in "$@"; do
    if ! declare -F "stage_$stage" >/dev/null; then
        echo "stages.sh: no stage called $stage" >&2
        exit 2
    fi
    echo "== $stage"
    begin=$(date +%s%N)
    "stage_$stage" 2>&1 | tee "$output"
    status=${PIPESTATUS[0]}
    took=$((($(date +%s%N) - begin) / 100000000))
    times+=("$(printf '%-14s %6d.%d%s' "$stage" $((took / 10)) $((took % 10)) "$([ $status = 0 ] || echo "  FAILED ($status)")")")
    if [ $status != 0 ]; then
        report
        # Last, because some show only the end of a long output.
        printf '\n== %s failed; its output ended so:\n' "$stage"
        tail -c 3000 "$output"
        exit 1
    fi
done
report
