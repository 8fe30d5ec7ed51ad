# shellcheck shell=bash
# A cofferd of its own: a private directory, a configuration, start, stop, and nothing left behind. Needs say.sh, packages.sh
# and engine.sh; REPOSITORY is the root of the sources.

DAEMON_PATIENCE=90 # seconds; the first start makes the default image

# Makes the private directory for a configuration and sets DEMO, BIN and COFFERDAM_ENDPOINT.
prepare_daemon() {
    DEMO=$(mktemp -d /var/tmp/cofferdam-packaged.XXXXXX)
    BIN=$DEMO/bin
    export COFFERDAM_ENDPOINT=unix:$DEMO/cofferd.sock
    # Copies, away from the sources: cofferd carries the agent inside.
    install -D -m 0755 -t "$BIN" "$PROGRAMS/cofferd" "$PROGRAMS/coffer"
}

coffer() {
    if ((EUID == 0)); then "$BIN/coffer" "$@"; else sudo --preserve-env=COFFERDAM_ENDPOINT,NO_COLOR "$BIN/coffer" "$@"; fi
}

# Starts cofferd as root (it mounts workspaces into containers) and waits until it answers.
start_daemon() {
    "$BIN/cofferd" --config "$DEMO/cofferd.yaml" --check-config || return 1
    # shellcheck disable=SC2016 # expanded by the inner shell, which runs as root
    as_root setsid --fork sh -c 'echo $$ >"$1/pid"; exec "$1/bin/cofferd" --config "$1/cofferd.yaml" >>"$1/cofferd.log" 2>&1 </dev/null' cofferd "$DEMO"
    local deadline=$((SECONDS + DAEMON_PATIENCE))
    until coffer run list >/dev/null 2>&1; do
        if ((SECONDS >= deadline)) || ! daemon_runs; then
            printf 'cofferd does not answer; the end of its log:\n'
            as_root tail -n 15 "$DEMO/cofferd.log"
            return 1
        fi
        sleep 0.2
    done
}

daemon_runs() {
    # The forked shell may not have written its id yet.
    [[ ! -s $DEMO/pid ]] || [[ -d /proc/$(<"$DEMO/pid") ]]
}

# Asks it to end, insists after a while, and says whether insisting was needed.
stop_daemon() {
    local pid deadline=$((SECONDS + 20))
    [[ -s $DEMO/pid ]] || return 0
    pid=$(<"$DEMO/pid")
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == cofferd ]] || return 0
    as_root kill -TERM "$pid"
    while [[ -d /proc/$pid ]]; do
        if ((SECONDS >= deadline)); then
            as_root kill -KILL "$pid"
            return 1
        fi
        sleep 0.1
    done
}

# Deletes the private directory, but never through a mount that a killed daemon left in it.
remove_daemon_files() {
    local mounts=() mount
    [[ -n ${DEMO:-} && -d $DEMO ]] || return 0
    mapfile -t mounts < <(awk -v under="$DEMO/" 'index($5, under) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
    for mount in "${mounts[@]}"; do as_root umount --lazy "$mount" || return 1; done
    as_root rm -rf --one-file-system "$DEMO"
}
