#!/bin/bash
# Checks the programs that are needed, and installs the Debian packages of those that are missing. `deps.sh` checks what
# building and testing need, `deps.sh more` what is large and a few tests use if it is there, and `deps.sh bench` what
# the product is measured against. Without root, apt-get or the package it prints loudly what is missing. Only a missing
# compiler is an error.
set -uo pipefail

# what:package:why. What: a program; `lib:` a shared library; `h:` a file of the system's headers; `file:` any file; `py:` a module of Debian's Python; `pc:` what pkg-config
# knows; `pip:` a module that pip installs, into an environment under the target folder that has Debian's modules, too.
# Packages that are called otherwise elsewhere: the first that there is.
tests=(
    "cc:gcc:builds the C parts of BLAKE3 and ring"
    "make:make:runs the targets"
    "c++:g++:compiles the C header as C++"
    "pkg-config:pkg-config:finds the C library in its tests"
    "cmake:cmake:finds the C library in its tests"
    "valgrind:valgrind:looks at C programs over the library"
    "groff:groff-base:reads the manual"
    "python3:python3:tests of the Python face"
    "py:ensurepip:python3-venv:makes the environment for them"
    "iperf3:iperf3:measures the packet path of crates/packets/netpath"
    "ip:iproute2:makes the network namespaces for that"
    "unshare:util-linux:the test of two containers"
    "git:git:runs with our allocator under it"
    "sqlite3:sqlite3:runs with our allocator under it"
    "qemu-img:qemu-utils:uses the block service's NBD export"
    "nbdcopy:libnbd-bin:uses the block service's NBD export"
    "fusermount3:fuse3:shows the NBD export as a file"
    "mkfs.ext4:e2fsprogs:makes and checks file systems on the NBD export"
    "memccapable:libmemcached-tools:tests the cache server"
    "py:pymemcache:python3-pymemcache:tests the cache server"
    "varnishd:varnish:sends by reference what it was given"
    "nbdkit:nbdkit:the block service is measured against it"
    "py:prometheus_client:python3-prometheus-client:parses the manager's figures"
)
more=(
    "chromium:chromium:opens the manager's page"
    "clang:clang:compiles the C programs and the headers, too"
    "h:opencv4/opencv2/core.hpp:libopencv-core-dev:images in pools"
    "h:opencv4/opencv2/stitching.hpp:libopencv-stitching-dev:the panorama"
    "h:opencv4/opencv2/imgcodecs.hpp:libopencv-imgcodecs-dev:the panorama"
    "file:/usr/share/backgrounds/picosdeeuropa_by_Aitzol_Berasategi.jpg:lomiri-wallpapers-16.04:its photograph"
    "py:torch:python3-torch:tensors by reference, and the DataLoader"
    "py:pandas:python3-pandas:frames in pools"
    "py:joblib:python3-joblib:its backend"
    "py:distributed:python3-distributed:Dask's serialization family"
    "pip:pyarrow:pyarrow<19:tables in pools"
    "pip:safetensors:safetensors:weights that are read once a machine"
    "pip:ray:ray:its tensor transport"
)
bench=(
    "lib:libjemalloc.so.2:libjemalloc2:jemalloc, in the benches of allocators"
    "lib:libtcmalloc_minimal.so.4:libtcmalloc-minimal4 libtcmalloc-minimal4t64:tcmalloc, in the benches of allocators"
    "lib:libmimalloc.so.2:libmimalloc2.0:mimalloc, in the benches of allocators"
    "cc:gcc:compiles the bench's DPDK program"
    "pkg-config:pkg-config:says where DPDK is"
    "pc:libdpdk:libdpdk-dev:DPDK, in the bench mbuf"
    "memcached:memcached:in the bench zc-cache"
    "dpkg-source:dpkg-dev:unpacks memcached for scripts/memcached-tests.sh"
    "varnishd:varnish:in the bench zc-varnish"
    "wrk:wrk:loads it, and web servers"
    "apache2:apache2:a peer of the web server, in figure 9"
    "file:/usr/lib/apache2/modules/mod_fcgid.so:libapache2-mod-fcgid:its FastCGI"
    "h:fcgiapp.h:libfcgi-dev:the FastCGI application behind it"
    "nginx:nginx:another one"
    "ab:apache2-utils:loads them"
    "iperf3:iperf3:measures in the bench netpath"
    "ip:iproute2:makes its network namespaces"
)

case ${1:-tests} in
tests) needs=("${tests[@]}") ;;
more) needs=("${more[@]}") ;;
bench) needs=("${bench[@]}") ;;
*)
    echo "deps.sh: '$1' is none of 'tests', 'more', 'bench'" >&2
    exit 2
    ;;
esac

PATH=$PATH:/usr/sbin:/sbin
environment=${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/python/more

# Whether it is there.
found() {
    case $1 in
    lib:*) [[ $(ldconfig -p) == *"	${1#lib:} "* ]] ;;
    h:*) [ -e "/usr/include/${1#h:}" ] ;;
    file:*) [ -e "${1#file:}" ] ;;
    py:*) /usr/bin/python3 -c "import ${1#py:}" 2>/dev/null ;;
    pip:*) "$environment/bin/python" -c "import ${1#pip:}" 2>/dev/null ;;
    pc:*) pkg-config --exists "${1#pc:}" 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# Sets `what`, `packages` and `why` of a need.
take_apart() {
    why=${1##*:}
    local rest=${1%:*}
    packages=${rest##*:}
    what=${rest%:*}
}

# Those that are not there, one a line.
missing() {
    for need in "${needs[@]}"; do
        take_apart "$need"
        found "$what" || echo "$need"
    done
}

# Of pip's, into the environment. Without it, or without an index, they are missing.
install_by_pip() {
    [ -x "$environment/bin/python" ] || /usr/bin/python3 -m venv --system-site-packages "$environment" || return
    echo "deps: installing $*"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "$@"
}

install() {
    local names=()
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || echo "deps: apt-get update FAILED; trying the lists that are there" >&2
    for need in "$@"; do
        take_apart "$need"
        [[ $what == pip:* ]] && continue
        for package in $packages; do
            if apt-cache show "$package" >/dev/null 2>&1; then
                names+=("$package")
                break
            fi
        done
    done
    [ ${#names[@]} = 0 ] && return
    echo "deps: installing ${names[*]}"
    apt-get install -y -qq --no-install-recommends "${names[@]}"
}

mapfile -t lacking < <(missing)
if [ ${#lacking[@]} = 0 ]; then
    echo "deps: nothing is missing"
elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "deps: cannot install anything from here (needs root and apt-get)" >&2
else
    install "${lacking[@]}" >&2
fi
pips=()
for need in "${lacking[@]}"; do
    take_apart "$need"
    [[ $what == pip:* ]] && pips+=("$packages")
done
[ ${#pips[@]} = 0 ] || install_by_pip "${pips[@]}" >&2

mapfile -t lacking < <(missing)
for need in "${lacking[@]}"; do
    take_apart "$need"
    echo "deps: SKIPPED: ${what#*:} is MISSING ($why): $([[ $what == pip:* ]] && echo pip || echo apt-get) install ${packages// / or }" >&2
done

for program in cargo cc; do
    if ! command -v "$program" >/dev/null; then
        echo "deps: $program is needed to build anything" >&2
        exit 1
    fi
done
