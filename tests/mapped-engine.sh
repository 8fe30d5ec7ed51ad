#!/usr/bin/env bash
# Makes sure of a second Docker Engine beside this host's, which maps the users of its containers (`userns-remap`), and
# prints its address. It has the base image of the first one. A test that uses it holds a shared lock on LOCK: the engine ends
# when none does, and nothing is left of it.
#
#   tests/mapped-engine.sh LOCK
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PLACE=/run/cofferdam-mapped-engine # short: the engine puts sockets below
DATA=/var/tmp/cofferdam-mapped-engine
ADDRESS=unix://$PLACE/docker.sock
LOG_FILE=$REPOSITORY/target/mapped-engine.log

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2 && exit 2; }

# Runs the engine until nobody holds the lock. The name `dockremap`, with ids of its own, is made by the engine itself. It has a
# network of its own: an engine with `--bridge=none` takes away `docker0`, also that of another engine.
keep() {
    rm -rf --one-file-system "$PLACE" "$DATA" || true # what another one that was killed has mounted stays
    mkdir -p "$PLACE" "$DATA"
    local name=cofferdam-mapped engine
    unshare --net dockerd --userns-remap=default --host "$ADDRESS" --data-root "$DATA" --exec-root "$PLACE/exec" \
        --pidfile "$PLACE/docker.pid" --containerd-namespace "$name" --containerd-plugins-namespace "$name-plugins" \
        --bridge=none --iptables=false --ip-masq=false --storage-driver=overlay2 >>"$LOG_FILE" 2>&1 &
    engine=$!
    exec 9<"$1"
    flock 9
    kill "$engine"
    wait "$engine" || true
    rm -rf --one-file-system "$PLACE" "$DATA" || true # what another one that was killed has mounted stays
}

answers() { timeout 20 docker --host "$ADDRESS" info >/dev/null 2>&1; }

await_answer() {
    local deadline=$((SECONDS + 60))
    until answers; do
        ((SECONDS < deadline)) || return 1
        sleep 0.2
    done
}

case ${1:-} in
keep) keep "$2" && exit ;;
/*) LOCK=$1 ;;
*) usage ;;
esac
unset DOCKER_HOST
mkdir -p "$REPOSITORY/target"

# One at a time: the others find what the first has started.
exec 8>"$REPOSITORY/target/mapped-engine.lock"
flock 8
if ! answers; then
    : >"$LOG_FILE"
    # Without this lock, which it would keep.
    setsid --fork "${BASH_SOURCE[0]}" keep "$LOCK" 8>&- >>"$LOG_FILE" 2>&1 </dev/null
    if ! await_answer; then
        tail -n 15 "$LOG_FILE" >&2
        exit 1
    fi
fi
IMAGE=$(COFFERDAM_NO_PULL=1 "$REPOSITORY/images/debian-base.sh")
if ! docker --host "$ADDRESS" image inspect "$IMAGE" >/dev/null 2>&1; then
    docker save "$IMAGE" | docker --host "$ADDRESS" load >>"$LOG_FILE"
fi
printf '%s\n' "$ADDRESS"
