#!/bin/bash
# Looks for the programs that building and testing need, and installs the Debian packages of those that are
# missing. Without root or apt-get it says loudly what is missing; only a missing compiler is an error.
set -uo pipefail

# program:package:why
needs=(
    "cc:gcc:builds the C parts of zstd and BLAKE3"
    "make:make:runs the targets"
    "python3:python3:tests of the Python face"
    "iperf3:iperf3:measures the packet path of examples/netpath"
    "ip:iproute2:makes the network namespaces for that"
    "unshare:util-linux:the test of two containers"
    "git:git:runs with our allocator under it"
    "sqlite3:sqlite3:runs with our allocator under it"
    "qemu-img:qemu-utils:uses the block service's NBD export"
    "nbdcopy:libnbd-bin:uses the block service's NBD export"
    "fusermount3:fuse3:shows the NBD export as a file"
    "mkfs.ext4:e2fsprogs:makes and checks file systems on the NBD export"
    "memccapable:libmemcached-tools:tests the cache server"
    "py/pymemcache:python3-pymemcache:tests the cache server"
    "nbdkit:nbdkit:the block service is measured against it"
)

# A program, or a module of Debian's Python.
have() {
    case $1 in
    py/*) /usr/bin/python3 -c "import ${1#py/}" 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

missing=()
packages=()
for need in "${needs[@]}"; do
    IFS=: read -r program package why <<<"$need"
    if ! have "$program"; then
        missing+=("$program ($why)")
        packages+=("$package")
    fi
done

if [ ${#packages[@]} = 0 ]; then
    echo "deps: nothing is missing"
elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    printf 'deps: MISSING, and cannot be installed from here (needs root and apt-get): %s\n' "${missing[@]}" >&2
else
    echo "deps: installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || echo "deps: apt-get update FAILED; trying the lists that are there" >&2
    apt-get install -y -qq --no-install-recommends "${packages[@]}" ||
        echo "deps: INSTALLING FAILED; the tests that need ${missing[*]} are skipped" >&2
fi

for program in cargo cc; do
    if ! command -v "$program" >/dev/null; then
        echo "deps: $program is needed to build anything" >&2
        exit 1
    fi
done
