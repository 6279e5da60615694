#!/bin/bash
# Some of the examples as programs of their own. Each party and the manager is stopped, killed and started again, one
# after the other and together. Each time every program works again, nothing that arrives is wrong, and at the end
# nothing is left.
#   scripts/upheaval.sh [camera] [topic] [queue] [service] [worker] [hub]    default: all of them, at the same time
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# Not a bound on speed: a watchdog.
limit=${UPHEAVAL_SECONDS:-1200}
programs=$(realpath "${CARGO_TARGET_DIR:-target}")/debug

if [ $# != 1 ]; then
    # As the tests have them already.
    "$cargo" build --quiet --workspace --examples --bin tranship
    [ $# != 0 ] || set -- camera topic queue service worker hub
    scenes=()
    for scene in "$@"; do
        "$0" "$scene" &
        scenes+=($!)
    done
    failed=0
    for scene in "${scenes[@]}"; do
        wait "$scene" || failed=1
    done
    exit $failed
fi

scene=$1
folder=$(mktemp -d)
export TRANSHIP_SOCKET=$folder/socket RUST_BACKTRACE=0
parties=()
keepers=()
: >"$folder/strikes.log"

# Runs a program again whenever it has ended, as a service manager does.
keep() {
    local name=$1
    shift
    while [ ! -e "$folder/over" ]; do
        "$@" </dev/null >>"$folder/$name.log" 2>&1 &
        echo $! >"$folder/$name.next"
        mv "$folder/$name.next" "$folder/$name.pid"
        wait $! || true
        sleep 0.1
    done
}

party() {
    : >"$folder/$1.log"
    parties+=("$1")
    keep "$@" 2>/dev/null &
    keepers+=($!)
}

# Whatever happens, nobody is left.
end_all() {
    touch "$folder/over"
    local keeper name
    for keeper in "${keepers[@]}"; do
        while kill -0 "$keeper" 2>/dev/null; do
            for name in "${parties[@]}"; do
                strike KILL "$name"
            done
            sleep 0.05
        done
    done
    rm -rf "$folder"
}
trap end_all EXIT

fail() {
    echo "upheaval: $scene: $1" >&2
    tail -n 15 "$folder"/*.log >&2
    exit 1
}

patience() {
    [ $SECONDS -lt "$limit" ] || fail "after $SECONDS s: $1"
    sleep 0.05
}

strike() {
    echo "$(date +%T) $1 $2" >>"$folder/strikes.log"
    # It may just have ended by itself.
    kill "-$1" "$(cat "$folder/$2.pid")" 2>/dev/null || true
}

# How often it has said that it got on.
steps() { grep -cE ': 60 (frames|answers|jobs)' "$folder/$1.log" || true; }

# Waits until all of these have got on from here. (The first step may have been nearly done.)
get_on() {
    local name
    declare -A goal
    for name in "$@"; do
        goal[$name]=$(($(steps "$name") + 2))
    done
    for name in "$@"; do
        until [ "$(steps "$name")" -ge "${goal[$name]}" ]; do
            patience "$name does not get on: $(tail -n 1 "$folder/strikes.log")"
        done
    done
}

manager_answers() {
    until "$programs/tranship" stat >/dev/null 2>&1; do
        patience "no manager answers"
    done
}

# The programs that report that they work, and those that work while one of them is stopped.
case $scene in
camera)
    busy=(camera viewer1 viewer2)
    unmoved=(viewer1:camera,viewer2)
    ;;
topic)
    busy=(viewer1 viewer2)
    unmoved=(viewer1:viewer2)
    ;;
queue)
    busy=(jobs1 jobs2)
    unmoved=(jobs1:jobs2)
    ;;
service)
    busy=(album1 album2)
    unmoved=(album1:album2)
    ;;
worker)
    busy=(boss)
    unmoved=()
    ;;
hub)
    busy=(client1 client2)
    unmoved=(client1:client2)
    ;;
*)
    echo "upheaval: no scene called $scene" >&2
    exit 2
    ;;
esac

party manager "$programs/tranship" manager --socket "$TRANSHIP_SOCKET"
manager_answers
case $scene in
camera)
    party camera "$programs/examples/20_camera" camera
    party viewer1 "$programs/examples/20_camera" viewer
    party viewer2 "$programs/examples/20_camera" viewer
    ;;
topic)
    party camera "$programs/examples/21_camera_topic" camera
    party viewer1 "$programs/examples/21_camera_topic" viewer
    party viewer2 "$programs/examples/21_camera_topic" viewer
    ;;
queue)
    party jobs1 "$programs/examples/24_queue" jobs
    party jobs2 "$programs/examples/24_queue" jobs
    party worker1 "$programs/examples/24_queue" worker
    party worker2 "$programs/examples/24_queue" worker
    ;;
service)
    party service "$programs/examples/23_service" serve
    party album1 "$programs/examples/23_service" album
    party album2 "$programs/examples/23_service" album
    ;;
worker)
    party boss "$programs/examples/12_sandboxed_worker" boss
    party worker "$programs/examples/12_sandboxed_worker" worker
    ;;
hub)
    port=7800
    while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
    party hub "$programs/examples/13_tokio_hub" hub "127.0.0.1:$port"
    party worker1 "$programs/examples/13_tokio_hub" worker
    party worker2 "$programs/examples/13_tokio_hub" worker
    party client1 "$programs/examples/13_tokio_hub" client "127.0.0.1:$port"
    party client2 "$programs/examples/13_tokio_hub" client "127.0.0.1:$port"
    ;;
esac
get_on "${busy[@]}"

# A manager that is stopped holds up nobody.
strike STOP manager
get_on "${busy[@]}"
strike CONT manager
for one in "${unmoved[@]}"; do
    strike STOP "${one%%:*}"
    IFS=, read -ra others <<<"${one#*:}"
    get_on "${others[@]}"
    strike CONT "${one%%:*}"
    get_on "${busy[@]}"
done
for name in "${parties[@]}"; do
    strike STOP "$name"
    sleep 0.3
    strike CONT "$name"
    get_on "${busy[@]}"
    strike KILL "$name"
    get_on "${busy[@]}"
    [ "$name" != manager ] || continue
    # While the manager is stopped, and together with it.
    strike STOP manager
    strike KILL "$name"
    sleep 0.3
    strike CONT manager
    get_on "${busy[@]}"
    strike KILL manager
    strike KILL "$name"
    get_on "${busy[@]}"
done

! grep -nE 'panicked|torn|got out|PeerViolation' "$folder"/*.log || fail "somebody got what nobody sent"
# What they had is given back when they are gone.
touch "$folder/over"
for name in "${parties[@]}"; do
    [ "$name" = manager ] || strike KILL "$name"
done
until [ "$("$programs/tranship" stat --json | grep -cE '"(pool|channel)":')" = 0 ]; do
    patience "the dead keep something: $("$programs/tranship" stat)"
done
echo "upheaval: $scene: $(wc -l <"$folder/strikes.log") strikes in $SECONDS s, and everybody got on"
