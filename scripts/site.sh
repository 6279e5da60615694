#!/bin/bash
# Builds the documentation's site in target/site/html; a link that leads nowhere is an error. mkdocs is installed beside it at first, out
# of the package index.
set -euo pipefail
cd "$(dirname "$0")/.."
env=target/site/env
"${CARGO:-cargo}" run --quiet -p xtask -- site stage target/site/pages
if ! "$env/bin/mkdocs" --version >/dev/null 2>&1; then
    python3 -m venv "$env"
    "$env/bin/pip" install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2' 'mkdocs-material>=9.5,<10'
fi
"$env/bin/mkdocs" build --quiet --strict --clean
echo "target/site/html/index.html"
