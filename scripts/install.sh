#!/bin/bash
# Installs the built files: the C library (libtranship.so with its symbol versions, libtranship.a, headers, manual
# pages, files for pkg-config and CMake), the libraries to preload, and the program `tranship` with its manual pages.
# `install.sh library` installs only the C library. `install.sh link`, or `install.sh link library`, comes before: it
# makes the files that cargo does not, and leaves them in LINKED. Installing then copies and needs neither cargo nor a
# compiler.
# Variables of the environment: DESTDIR, PREFIX (/usr/local), LIBDIR (PREFIX/lib), TARGET (target/release), LINKED
# (TARGET/linked), CC (cc).
set -euo pipefail
cd "$(dirname "$0")/.."
target=${TARGET:-${CARGO_TARGET_DIR:-target}/release}
linked=${LINKED:-$target/linked}
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
capi=crates/faces/capi
lib=${DESTDIR:-}$libdir
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
soname=libtranship.so.${version%%.*}
# What rustc names for a static library of this kind (`--print native-static-libs`).
needs="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"

if [ "${1:-}" = link ]; then
    mkdir -p "$linked/man1"
    # rustc gives the linker a version script of its own, so that ours would be lost: the shared library is linked anew, out of the static one.
    mapfile -t wanted < <(sed -n 's/^ *\(tranship_[a-z0-9_]*\);$/-Wl,-u,\1/p' $capi/tranship.map)
    # shellcheck disable=SC2086
    ${CC:-cc} -shared -o "$linked/$soname.new" "${wanted[@]}" "$target/libtranship.a" $needs \
        -Wl,--version-script=$capi/tranship.map -Wl,-soname="$soname" -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now
    mv "$linked/$soname.new" "$linked/libtranship.so.$version"
    [ "${2:-}" = library ] || "$target/tranship" man "$linked/man1"
    exit 0
fi

if [ ! -e "$linked/libtranship.so.$version" ]; then
    echo "install.sh: $linked/libtranship.so.$version is not there: make library, as yourself, and then make install" >&2
    exit 1
fi
mkdir -p "$lib/pkgconfig" "$lib/cmake/tranship" "${DESTDIR:-}$prefix/include/tranship" "${DESTDIR:-}$prefix/share/man/man3"

install -m 755 "$linked/libtranship.so.$version" "$lib/libtranship.so.$version"
ln -sf "libtranship.so.$version" "$lib/$soname"
ln -sf "$soname" "$lib/libtranship.so"
install -m 644 "$target/libtranship.a" "$lib/"

install -m 644 $capi/include/tranship.h "${DESTDIR:-}$prefix/include/"
for header in $capi/include/tranship/*.h $capi/include/tranship/*.hpp; do
    [ ! -e "$header" ] || install -m 644 "$header" "${DESTDIR:-}$prefix/include/tranship/"
done
man3=${DESTDIR:-}$prefix/share/man/man3
install -m 644 $capi/man/*.3 "$man3/"
# `man tranship_send` finds the page that has it among others: those that the page's name line names.
for page in $capi/man/*.3; do
    page=$(basename "$page")
    for name in $(sed -n '/^\.SH NAME$/{n;s/ .-.*//;s/,//g;p;q}' "$capi/man/$page"); do
        [ -e "$man3/$name.3" ] || echo ".so man3/$page" >"$man3/$name.3"
    done
done

# Both find the rest from where they lie, so that the tree may be moved.
up=$(realpath --canonicalize-missing --relative-to="$libdir/pkgconfig" "$prefix")
below=$(realpath --canonicalize-missing --relative-to="$prefix" "$libdir")
fill() { sed -e "s|@VERSION@|$version|g" -e "s|@NEEDS@|$needs|g" -e "s|@SONAME@|$soname|g" -e "s|@UP@|$1|g" -e "s|@LIBDIR@|$below|g" "$2"; }
fill "$up" $capi/packaging/tranship.pc.in >"$lib/pkgconfig/tranship.pc"
for name in transhipConfig transhipConfigVersion; do
    fill "../$up" "$capi/packaging/$name.cmake.in" >"$lib/cmake/tranship/$name.cmake"
done

[ "${1:-}" != library ] || exit 0
for preload in libtranship_malloc.so libtranship_zcopy.so; do
    install -m 755 "$target/$preload" "$lib/"
done
install -D -m 755 "$target/tranship" "${DESTDIR:-}$prefix/bin/tranship"
mkdir -p "${DESTDIR:-}$prefix/share/man/man1"
install -m 644 "$linked"/man1/*.1 "${DESTDIR:-}$prefix/share/man/man1/"
echo "installed in ${DESTDIR:-}$prefix; 'ldconfig' lets the loader know (docs/c.md: other prefixes)"
