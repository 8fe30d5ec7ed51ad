#!/bin/bash
# In a virtual machine of tests/hosts/run.sh, as root: has the engine of the row answer, starts cofferd beside it, and tries what an operator
# and an agent would. Prints a line for each check:
#
#   works     as it should
#   refused   not offered on such a host, and cofferd says so
#   fails     neither, which is a defect
#
# A check that needs a run is left out if none can be made. The results go to the second serial port, as one JSON document.
set -uo pipefail
export HOME=/root COFFERDAM_TOKEN=''
# NAME, and ENGINE: the way in which the engine is started.
# shellcheck source=/dev/null
source /root/hosts/row
PROJECT=/srv/workspaces/project
CHECKS=/root/hosts/checks SAID=/root/hosts/said
PATIENCE=300 # seconds, ten times those of a host
SOCKET='' RUN='' LIMITED='' COUNTER=''

# within SECONDS command…: until it succeeds.
within() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < until)) || { printf 'not within its time: %s\n' "$*" && return 1; }
        sleep 1
    done
}

is() { [[ $1 == "$2" ]] || { printf 'expected %s, found %s\n' "$2" "$1" && return 1; }; }
has() { [[ $1 == *"$2"* ]] || { printf 'no %s in: %s\n' "$2" "$1" && return 1; }; }
no_process() { ! pgrep --full "$1" >/dev/null; }
answers() { coffer run list >/dev/null 2>&1; }
state_is() { coffer --output json run list --state "$1" 2>/dev/null | grep -q "$2"; }
engine() { curl --silent --show-error --max-time 60 --unix-socket "$SOCKET" "http://engine$1"; }
engine_answers() { [[ $(engine /_ping 2>/dev/null) == OK ]]; }
containers() { engine '/containers/json?all=true' | jq --raw-output '.[].Names[]' | grep "cofferdam-$1"; }
no_container() { ! containers "$1" >/dev/null; }

# The words of the last check: the refusal of cofferd or coffer, or else its last line.
words() {
    local said
    said=$(sed -n 's/^\(error\|refused\): //p' "$SAID" | head -n 1)
    printf '%s' "${said:-$(grep . "$SAID" | tail -n 1)}" | tr -d '\r' | cut -c 1-600
}

# try NAME function: makes a check, and keeps its outcome.
try() {
    local outcome=works said=''
    if ! "$2" >"$SAID" 2>&1 </dev/null; then
        said=$(words)
        outcome=fails
        ! grep -qE '^refused: |\(PRECONDITION_FAILED\)$' "$SAID" || outcome=refused
    fi
    jq --null-input --compact-output --arg name "$1" --arg outcome "$outcome" --arg said "$said" \
        '{name: $name, outcome: $outcome} + if $said == "" then {} else {said: $said} end' >>"$CHECKS"
    printf '%-8s %s\n' "$outcome" "$1"
    [[ $outcome == works ]] || sed 's/^/        /' "$SAID" | cut -c 1-600
    [[ $outcome != fails ]] || journalctl --unit cofferd --output cat --no-pager --lines 8 | sed 's/^/        | /' | cut -c 1-600
}

as_dev() { runuser -u dev -- env HOME=/home/dev XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus "$@"; }

# The services of a user live on without a session.
start_user() {
    useradd --create-home --uid 1000 --shell /bin/bash dev || return 1
    grep -q '^dev:' /etc/subuid || printf 'dev:200000:65536\n' | tee -a /etc/subuid >>/etc/subgid
    [[ $ENGINE == *-rootless ]] || return 0
    loginctl enable-linger dev && within "$PATIENCE" test -S /run/user/1000/bus
}

# Podman's service ends with its last request in a few seconds, and takes longer than that to start on such a machine: it stays here.
start_engine() {
    case $ENGINE in
    docker | docker-userns-remap) SOCKET=/var/run/docker.sock ;;
    docker-rootless)
        SOCKET=/run/user/1000/docker.sock
        modprobe tun
        as_dev systemd-run --user --quiet --unit docker --setenv PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
            "$(find /usr -name dockerd-rootless.sh | head -n 1)" --iptables=false --bridge=none
        ;;
    podman)
        SOCKET=/run/podman/podman.sock
        install -d /run/podman
        systemd-run --quiet --unit podman-api podman system service --time 0 "unix://$SOCKET"
        ;;
    podman-rootless)
        SOCKET=/run/user/1000/podman/podman.sock
        as_dev mkdir -p /run/user/1000/podman
        as_dev systemd-run --user --quiet --unit podman-api podman system service --time 0 "unix://$SOCKET"
        ;;
    esac
    within "$PATIENCE" engine_answers && engine /version >/dev/null && engine /info >/dev/null
}

facts() {
    jq --null-input --arg restricted "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" \
        --arg name "$NAME" --arg date "$(date --utc +%F)" --arg distribution "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)" \
        --arg kernel "$(uname -r)" --arg cofferd "$(cofferd --version)" --argjson version "$(engine /version)" --argjson info "$(engine /info)" \
        --slurpfile doctor /root/hosts/doctor --slurpfile checks "$CHECKS" '
        def component(pattern): [$version.Components[]? | select(.Name | test(pattern))] | first;
        component("runc|crun") as $runtime | {
            name: $name, date: $date, distribution: $distribution, kernel: $kernel, cofferd: $cofferd,
            engine: (if component("Podman") then "Podman" else "Docker" end), version: $version.Version, api: $version.ApiVersion,
            runtime: "\($info.DefaultRuntime) \($runtime.Version // "" | split("\n") | first // "" | split(" ") | last // "")",
            cgroups: "version \($info.CgroupVersion), \($info.CgroupDriver)", storage: $info.Driver,
            security: [(if $restricted == "1" then "unprivileged user namespaces restricted" else empty end), $info.SecurityOptions[]? | split(",")[] | ltrimstr("name=") | select(startswith("profile=") | not)],
            doctor: $doctor[0], checks: $checks
        }'
}

# cofferd as its package installs it, with a workspace root, a profile with a way out, and a warm container.
install_cofferd() {
    getent group cofferdam >/dev/null || groupadd --system cofferdam
    install -d /srv/workspaces /srv/www /etc/cofferdam/policy
    install -d -o dev -g dev "$PROJECT"
    as_dev sh -c "cd $PROJECT && git init --quiet && echo hello >greeting.txt && git add . &&
        git -c user.name=dev -c user.email=dev@example.org commit --quiet --message begin" || return 1
    printf '%s\n' '127.0.0.1 inner.example.org' >>/etc/hosts
    echo 'from the host' >/srv/www/index.html
    busybox httpd -p 127.0.0.1:8080 -h /srv/www
    cp /usr/share/cofferdam/policies/*.yaml /etc/cofferdam/policy/
    cat >/etc/cofferdam/policy/hosts.yaml <<'END'
profiles:
  tried:
    default_role: director
    workspace: read-write
    unattended: true
    operations: { read: allow, exec: allow, shell: allow, process: allow, write: allow, git.add: allow, git.commit: allow }
    exec: { default: allow }
    rate_limits:
      operations: { default: { minute: unlimited, hour: unlimited, day: unlimited } }
      run: { minute: unlimited, hour: unlimited, day: unlimited }
      principal: { minute: unlimited, hour: unlimited, day: unlimited }
  out:
    operations: { shell: allow }
    exec: { default: allow }
    egress:
      networks: ["127.0.0.0/8"]
      rules:
        - { host: inner.example.org, ports: [8080], scheme: http, decision: allow }
    rate_limits:
      operations: { default: { minute: unlimited, hour: unlimited, day: unlimited } }
  mapped:
    workspace: read-write
    root: writable-layer
    root_in_user_namespace: true
    unattended: true
    operations: { exec: allow, shell: allow }
    exec: { default: allow, deny_list: off }
    approvals: { freeze: false }
    rate_limits:
      operations: { default: { minute: unlimited, hour: unlimited, day: unlimited } }
END
    sed -i -e 's|^# policy_dir:.*|policy_dir: /etc/cofferdam/policy|' \
        -e 's|^# egress:$|egress: { hosts: { inner.example.org: 127.0.0.1 } }|' \
        -e 's|^pool: .*|pool: [{ profile: tried, min: 1, max: 1 }]|' \
        -e "s|^docker: .*|docker: { endpoint: \"unix://$SOCKET\" }|" /etc/cofferdam/cofferd.yaml
    cofferd --check-config
}

# A machine that was too slow refuses nothing.
in_time() { sed '/no answer\|in time/s/^refused: /late: /'; }

# The examination without a daemon: the first that a newcomer sees.
doctor() {
    local missing
    coffer --output json doctor --engine "$SOCKET" >/root/hosts/doctor || true
    missing=$(jq --raw-output '.[] | select(.verdict == "missing") | "refused: \(.topic): \(.found): \(.follows // "")"' /root/hosts/doctor) || return 1
    [[ -z $missing ]] || { in_time <<<"$missing" && return 1; }
}

start() {
    if systemctl start cofferd && within "$PATIENCE" answers; then return; fi
    systemctl stop cofferd
    journalctl _SYSTEMD_UNIT=cofferd.service --output cat --no-pager | sed -n 's/^cofferd: /refused: /p' | tail -n 1 | in_time
    return 1
}

launch() { RUN=$(coffer run create --profile tried --bind "$PROJECT") && [[ -n $RUN ]]; }

reads() { has "$(coffer call read "$RUN" greeting.txt)" hello; }

executes() { is "$(coffer call exec "$RUN" -- echo hello)" hello; }

# From both lanes the files belong to the owner of the workspace.
writes() {
    coffer call write "$RUN" written.txt --content written && is "$(coffer call exec "$RUN" -- cat written.txt)" written || return 1
    coffer call exec "$RUN" -- sh -c 'echo made >made.txt' || return 1
    is "$(cat "$PROJECT/made.txt")" made && is "$(stat -c '%U %U' "$PROJECT/written.txt" "$PROJECT/made.txt" | xargs)" 'dev dev dev dev'
}

commits() {
    coffer call git "$RUN" add written.txt && coffer call git "$RUN" commit --message 'Write a file' &&
        is "$(as_dev git -C "$PROJECT" log -1 --format=%s)" 'Write a file'
}

counted() { cat "$PROJECT/count"; }
counts_on() { [[ $(counted) != "$1" ]]; }

# A process counts, stands still while its run is paused, and counts on.
pauses() {
    local at
    # shellcheck disable=SC2016 # expanded by the inner shell
    COUNTER=$(coffer --output name process start "$RUN" -- sh -c 'i=0; while :; do i=$((i + 1)); echo $i >count; sleep 1; done') || return 1
    within "$PATIENCE" test -s "$PROJECT/count" && coffer run pause "$RUN" || return 1
    at=$(counted) && sleep 5 && is "$(counted)" "$at" && coffer run resume "$RUN" && within "$PATIENCE" counts_on "$at"
}

# The end of its time ends all processes of a command.
times_out() {
    coffer call exec "$RUN" --timeout 5s -- sh -c 'sleep 47110 & sleep 47111'
    is "$?" 124 && within 60 no_process '^sleep 4711[01]'
}

# Its own end does, too.
ends_left_behind() {
    coffer call exec "$RUN" -- sh -c 'setsid sleep 47120 >/dev/null 2>&1 & sleep 47121 >/dev/null 2>&1 & exit 0' && within 60 no_process '^sleep 4712[01]'
}

# The command that takes too much is killed, and the failure is put down to it.
limits_memory() {
    local answer
    LIMITED=$(coffer run create --profile tried --managed --memory 128M --pids 48) || return 1
    answer=$(coffer --output json call exec "$LIMITED" -- tail /dev/zero)
    has "$answer" MEMORY_LIMIT && has "$answer" FAULT_PROGRAM
}

limits_processes() {
    local answer
    [[ -n $LIMITED ]] || return 1
    # shellcheck disable=SC2016 # expanded by the inner shell
    answer=$(coffer --output json call exec "$LIMITED" -- sh -c 'for i in $(seq 64); do sleep 20 & done; wait')
    has "$answer" PROCESSES
}

# One host is reached, and no other name.
goes_out() {
    local out
    out=$(coffer run create --profile out --role director --managed) || return 1
    is "$(coffer call shell "$out" 'wget -q -O - http://inner.example.org:8080/')" 'from the host' &&
        ! coffer call shell "$out" 'wget -q -T 5 -O - http://other.example.org:8080/' >/dev/null 2>&1 && coffer run stop "$out"
}

# An image that commands may change, in a layer of the run.
writes_root() {
    local run
    run=$(coffer run create --profile harness --managed) || return 1
    is "$(coffer call exec "$run" -- sh -c 'echo new >/etc/new && cat /etc/new')" new && coffer run stop "$run"
}

maps_root() {
    local run
    run=$(coffer run create --profile mapped --role director --managed) || return 1
    is "$(coffer call exec "$run" -- id -u)" 0 && coffer run stop "$run"
}

start_kind() { jq --raw-output '[.. | objects | .start_kind? // .startKind? // empty] | first'; }

starts_warm() {
    local until=$((SECONDS + PATIENCE)) run kind
    while ((SECONDS < until)); do
        run=$(coffer --output json run create --profile tried --managed) || return 1
        kind=$(start_kind <<<"$run")
        coffer run stop "$(jq --raw-output '[.. | objects | .run_id? // .runId? // empty] | first' <<<"$run")" || return 1
        [[ $kind != WARM ]] || return 0
        sleep 10
    done
    printf 'the last start was %s: %s\n' "$kind" "$run" | tr -d '\n'
    journalctl --unit cofferd --output cat --no-pager | grep 'no warm containers' | tail -n 1 | sed 's/^/refused: /'
    return 1
}

# The next daemon finds its runs and their processes.
adopts() {
    local pid container at
    pid=$(systemctl show --property MainPID --value cofferd) container=$(containers "$RUN") && kill -KILL "$pid" || return 1
    within "$PATIENCE" state_is ready "$RUN" && [[ $(systemctl show --property MainPID --value cofferd) != "$pid" ]] || return 1
    is "$(containers "$RUN")" "$container" && is "$(coffer call exec "$RUN" -- cat written.txt)" written || return 1
    [[ -n $COUNTER ]] && at=$(counted) && has "$(coffer --output json process show "$RUN" "$COUNTER")" RUNNING && within "$PATIENCE" counts_on "$at"
}

stops() { coffer run stop "$RUN" && within 60 no_container "$RUN" && state_is stopped "$RUN"; }

proves() { coffer audit verify; }

: >"$CHECKS"
echo # the console begins with escape sequences
start_user || echo 'fails    the services of a user do not start'
start_engine || { echo "fails    the engine does not answer on $SOCKET" && journalctl --no-pager --lines 40 --output cat | sed 's/^/        | /' && exit 1; }
install_cofferd >"$SAID" 2>&1 || { echo 'fails    cofferd is not installed' && sed 's/^/        /' "$SAID" && exit 1; }
try doctor doctor
try start start
if answers; then
    try launch launch
    if [[ -n $RUN ]]; then
        try read reads
        try exec executes
        try write writes
        try git commits
        try pause pauses
        try timeout times_out
        try left_behind ends_left_behind
        try memory limits_memory
        try processes limits_processes
    fi
    try egress goes_out
    try writable_root writes_root
    try mapped_root maps_root
    try warm starts_warm
    if [[ -n $RUN ]]; then
        try adoption adopts
        try stop stops
    fi
    try record proves
fi
facts >/root/hosts/results && stty -F /dev/ttyS1 raw && cat /root/hosts/results >/dev/ttyS1 && printf 'done     %s\n' "$NAME"
