#!/bin/bash
# The library and the program with none of their features, and with each alone: what one leaves out is not missed by what one keeps.
# `cargo check` finds this, as well as unused code; the stage `clippy` has the lints.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# The names below [features] of a manifest.
features_of() { sed -n '/^\[features\]/,/^$/s/^\([a-z0-9_-]*\) = .*/\1/p' "crates/faces/$1/Cargo.toml" | grep -vx default; }

check() {
    local said
    said=$("$cargo" check --quiet "$@" 2>&1) && [ -z "$said" ] || {
        printf '%s\n' "$said" >&2
        echo "features.sh: \`cargo check $*\` fails or warns" >&2
        exit 1
    }
}

for crate in tranship cli; do
    package=tranship-$crate
    [ $crate = tranship ] && package=tranship
    for feature in "" $(features_of $crate); do
        # Beside the derive macros, which turn on every feature of syn: so no other crate is checked again.
        check --package $package --package tranship-typed-derive --no-default-features --features "$feature"
    done
done
# What needs Arrow, and is built by `make torture` alone.
check --package tranship --features arrow,embedded,flatbuffers,service --example 25_arrow_service
check --package tranship-typed --features arrow,flatbuffers --test libraries
