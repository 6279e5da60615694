#!/bin/bash
# memcached-tests.sh [FOLDER]: memcached's own tests, `t/*.t` of Debian's source package, each against a cache server that was just
# started. Fetches the package into FOLDER the first time (default: target/memcached), and builds nothing of it. memcached-tests.txt lists
# the files that do not pass, and why. Fails if another file does not pass, or one of these does.
# PROGRAM=PATH is the program `tranship`, ONLY=WORD runs the files with that word in their names.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
program=$(realpath "${PROGRAM:-${CARGO_TARGET_DIR:-target}/release/tranship}")
folder=${1:-${CARGO_TARGET_DIR:-target}/memcached}
address=127.0.0.1:11311

fetch() {
    apt-get -qq source memcached 2>/dev/null && return
    # Where the machine's own lists have no sources: lists of our own.
    mkdir -p lists/partial parts
    printf '%s\n' 'Types: deb-src' 'URIs: http://deb.debian.org/debian' 'Suites: bookworm' 'Components: main' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >parts/source.sources
    local ours=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$PWD/parts" -o "Dir::State::Lists=$PWD/lists")
    apt-get -qq "${ours[@]}" update && apt-get -qq "${ours[@]}" source memcached
}

mkdir -p "$folder" && cd "$folder"
compgen -G 'memcached-*/t' >/dev/null || fetch
cd memcached-*/
# What the tests take for memcached: it has neither TLS nor SASL nor other parts without which tests leave themselves out.
printf '%s\n' '#!/bin/sh' '[ "$1" = -h ] || exit 1' \
    "printf 'memcached 1.6.18\n-U, --udp-port=<num>\n-s, --unix-socket=<file>\n'" >memcached-debug
chmod 755 memcached-debug

failures=0
for file in t/*"${ONLY:-}"*.t; do
    name=$(basename "$file" .t)
    "$program" cache --listen "$address" --udp "$address" >/dev/null 2>&1 &
    server=$!
    until (exec 3<>"/dev/tcp/${address/://}") 2>/dev/null; do kill -0 $server; done
    # Some files wait for ever for a protocol that is not here.
    said=$(T_MEMD_USE_DAEMON=$address timeout 60 perl -I. -It/lib "$file" 2>/dev/null | tr -d '\0') && passes=1 || passes=
    kill $server && wait $server || true
    why=$(sed -n "s/^$name: //p" "$root/scripts/memcached-tests.txt")
    case $passes,$why in
    1,) [[ $said = *'# SKIP '* ]] && echo "$name: left out by itself: ${said#*# SKIP }" || echo "$name: passes" ;;
    ,?*) echo "$name: about memcached's inside: $why" ;;
    *)
        failures=$((failures + 1))
        [ $passes ] && echo "$name: FAILED: it passes, and memcached-tests.txt lists it" || echo "$name: FAILED"
        ;;
    esac
done
exit $((failures > 0))
