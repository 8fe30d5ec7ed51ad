#!/bin/sh
# Before a removal: ends the runs, then the service. An upgrade does neither.
set -e

stop_service() {
    [ -d /run/systemd/system ] || return 0
    deb-systemd-invoke stop cofferd.service >/dev/null
}

# A run outlives the daemon where the configuration says so, but not the package.
end_runs() {
    systemctl is-active --quiet cofferd.service || return 0
    for state in creating ready paused; do
        coffer --output json run list --limit 10000 --state "$state" | grep -o '"runId": *"[^"]*"' | cut -d '"' -f 4 |
            while read -r run; do
                coffer run stop "$run" >/dev/null || echo "run $run could not be stopped: 'docker ps' may still show its container." >&2
            done
    done
}

case "$1" in
upgrade)
    if [ -d /run/systemd/system ] && systemctl is-active --quiet cofferd.service &&
        cofferd --print-config 2>/dev/null | grep -q '^ *on_stop: end'; then
        echo "/etc/cofferdam/cofferd.yaml says 'on_stop: end': a restart of cofferd, if the upgrade needs one, ends all runs." >&2
    fi
    ;;
remove)
    if [ -d /run/systemd/system ]; then
        end_runs
        stop_service
    fi
    ;;
esac
