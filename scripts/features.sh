#!/bin/bash
# The library and the program with none of their features, and with each alone: what one leaves out is not missed by what one keeps.
# `cargo check` finds this, as well as unused code; the stage `clippy` has the lints.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# The names below [features] of a manifest.
features_of() { sed -n '/^\[features\]/,/^$/s/^\([a-z0-9_-]*\) = .*/\1/p' "crates/faces/$1/Cargo.toml" | grep -vx default; }

for crate in tranship cli; do
    package=tranship-$crate
    [ $crate = tranship ] && package=tranship
    for feature in "" $(features_of $crate); do
        said=$("$cargo" check --quiet --package "$package" --no-default-features --features "$feature" 2>&1) && [ -z "$said" ] || {
            printf '%s\n' "$said" >&2
            echo "features.sh: $package does not build without warnings with ${feature:+only the feature }${feature:-no feature}" >&2
            exit 1
        }
    done
done
