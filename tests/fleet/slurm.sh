#!/usr/bin/env bash
# Runs jobs on a real Slurm of one node, Debian's, with the prolog and epilog of deploy/slurm: examples/slurm/episodes.py by submitit,
# a job that is cancelled, one whose daemon is killed, a prolog that cannot start one, and an epilog that does not trust the log.
# munged, slurmctld and slurmd are in the foreground of this script, in a directory and on ports of their own. Needs root and the engine.
#
#   tests/fleet/slurm.sh
#
# COFFERDAM_TEST_COFFERD=PROGRAM   cofferd (target/debug/cofferd), with coffer beside it
# COFFERDAM_TEST_USER=NAME         the user of the jobs (nobody), who can read this repository
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=${LOG_FILE:-$REPOSITORY/target/slurm.log}
for part in say packages engine busybox toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

case ${1:-} in
-h | --help) usage && exit 0 ;;
esac

COFFERD=${COFFERDAM_TEST_COFFERD:-$REPOSITORY/target/debug/cofferd}
BIN=$(dirname "$COFFERD")
SLURM_USER=${COFFERDAM_TEST_USER:-nobody}
SUBMITIT=$TOOLS/slurm
HOST=$(hostname -s)
# Seconds that a job may take on a machine with other work.
PATIENCE=100
EPISODES=6 PER_JOB=2
# In the record of a run that has ended.
ENDED='"kind":"run_state".*"state":"\(STOPPED\|FAILED\)"'
# shellcheck source=slurm-cluster.sh
source "$REPOSITORY/tests/fleet/slurm-cluster.sh"

as_user() { setpriv --reuid="$SLURM_USER" --regid="$(id -g "$SLURM_USER")" --clear-groups --reset-env env "${ENVIRONMENT[@]}" "$@"; }

# submit SCRIPT: a job of the user, by its number.
submit() { as_user sbatch --parsable --chdir="$HOME_OF_USER" --output="$HOME_OF_USER/%j.out" --time=5 --wrap "$1"; }

# Slurm shows a job as completing until its epilog has ended.
is_over() { [[ -z $(squeue --noheader --jobs "$1" 2>/dev/null) ]]; }

# Neither files nor sockets of a job, no daemon, no container of one.
nothing_is_left() {
    local instance
    [[ -z $(ls -A "$PLACE/scratch") ]] || { ls "$PLACE/scratch" && return 1; }
    [[ -z $(ls -A "$PLACE/sockets") ]] || { ls "$PLACE/sockets" && return 1; }
    ! pgrep --full "^$COFFERD --config $PLACE/" || return 1
    ! grep -F " $PLACE/" /proc/self/mountinfo || return 1
    while read -r instance; do
        [[ -z $(engine ps --all --quiet --filter "label=io.cofferdam.instance=$instance") ]] || return 1
    done <"$PLACE/instances"
}

# record_of JOB: unpacked, verified with its own key, and printed as JSON lines.
record_of() {
    local place
    place=$(mktemp -d "$PLACE/record.XXXXXX")
    tar --extract --gzip --file "$(echo "$PLACE/records/$1.$HOST."*.tar.gz)" --directory "$place" || return 1
    "$BIN/coffer" audit verify "$place/state/audit" --key "$(<"$place/key")" --checkpoint "$place/checkpoint" >/dev/null || return 1
    cat "$place"/state/audit/*.jsonl
}

# Each episode has a run of its job's own daemon, and the reward that its agent earns.
episodes_have_rewards() {
    local said
    said=$(as_user timeout "$PATIENCE" "$SUBMITIT/bin/python" -B "$REPOSITORY/examples/slurm/episodes.py" \
        "$EPISODES" "$PER_JOB" "$HOME_OF_USER/jobs") || return 1
    printf '%s\n' "$said"
    /usr/bin/python3 -c '
import json, sys

# submitit warns that this cluster has no accounting.
*lines, summary = [line for line in sys.stdin.read().splitlines() if line.startswith("{") or " episodes in " in line]
results = [json.loads(line) for line in lines]
assert [(one["seed"], one.get("reward")) for one in results] == [(seed, float(seed % 3 == 2)) for seed in range('"$EPISODES"')], results
assert len({one["run_id"] for one in results}) == len(results)
assert len({one["job"] for one in results}) == '"$((EPISODES / PER_JOB))"'
assert summary == "'"$EPISODES episodes in $((EPISODES / PER_JOB)) jobs: mean reward 0.33, 0 failed without a reward"'", summary
print(*sorted({one["job"] for one in results}), file=open(sys.argv[1], "w"))
' "$PLACE/jobs" <<<"$said" && await "the end of the jobs" has_records "$((EPISODES / PER_JOB))" && await "the idle node" node_is idle
}

has_records() { [[ $(find "$PLACE/records" -name '*.tar.gz' | wc -l) == "$1" ]]; }

# In the record of each job are its user, its runs and their ends.
records_are_whole() {
    local job record
    for job in $(<"$PLACE/jobs"); do
        record=$(record_of "$job") || return 1
        [[ $(grep -c '"run_created"' <<<"$record") == "$PER_JOB" && $(grep -c "$ENDED" <<<"$record") == "$PER_JOB" ]] || return 1
        grep -q "uid:$(id -u "$SLURM_USER")" <<<"$record" || return 1
        grep -q '"kind":"node_drained"' <<<"$record" || return 1
        # The daemon's log names the label of its containers.
        tar --extract --gzip --to-stdout --file "$(echo "$PLACE/records/$job.$HOST."*.tar.gz)" cofferd.log |
            grep -o 'instance="[^"]*"' | cut -d '"' -f 2 >>"$PLACE/instances" || return 1
    done
}

# Only root reads them, and nobody else lists whose jobs there are.
records_are_closed() {
    ! as_user ls "$PLACE/records/." >/dev/null 2>&1 && ! as_user ls "$PLACE/scratch/." >/dev/null 2>&1
}

# Starts a job that makes a run and waits for its end in vain.
begin_long_job() {
    # shellcheck disable=SC2016 # expanded by the job
    LONG_JOB=$(submit 'set -e; echo "$COFFERDAM_ENDPOINT"; '"$BIN"'/coffer run create --profile open --managed; sleep 600')
    await "the run of a job" grep -q '^[0-9a-f]\{8\}-' "$HOME_OF_USER/$LONG_JOB.out" || return 1
    grep -qx "unix:$PLACE/sockets/$LONG_JOB/cofferd.sock" "$HOME_OF_USER/$LONG_JOB.out" || return 1
    cat "$PLACE/scratch/$LONG_JOB/state/instance" >>"$PLACE/instances"
    [[ -n $(engine ps --quiet --filter "label=io.cofferdam.instance=$(<"$PLACE/scratch/$LONG_JOB/state/instance")") ]]
}

# The job's user and root may, others cannot connect, and the user is no operator.
socket_is_the_users() {
    local other=setpriv endpoint=unix:$PLACE/sockets/$LONG_JOB/cofferd.sock
    other+=" --reuid=daemon --regid=$(id -g "$SLURM_USER") --clear-groups"
    as_user "$BIN/coffer" --endpoint "$endpoint" run list >/dev/null || return 1
    # shellcheck disable=SC2086 # several words
    ! $other "$BIN/coffer" --endpoint "$endpoint" run list || return 1
    # shellcheck disable=SC2086
    ! $other test -e "$PLACE/sockets/$LONG_JOB/cofferd.sock" || return 1
    ! as_user test -r "$PLACE/sockets/$LONG_JOB/." || return 1
    ! as_user "$BIN/coffer" --endpoint "$endpoint" reload
}

# What slurmd has is not the daemon's: its variables, its open files, its protection from the OOM killer.
daemon_is_of_its_own() {
    local pid
    pid=$(cut -d ' ' -f 1 "$PLACE/sockets/$LONG_JOB/pid")
    [[ $(<"/proc/$pid/oom_score_adj") == 0 ]] && ! tr '\0' '\n' <"/proc/$pid/environ" | grep SLURM || return 1
    # A second prolog of the same job joins it.
    SLURM_JOB_ID=$LONG_JOB SLURM_JOB_UID=$(id -u "$SLURM_USER") "$PLACE/prolog" &&
        [[ $(cut -d ' ' -f 1 "$PLACE/sockets/$LONG_JOB/pid") == "$pid" && -d /proc/$pid ]]
}

# with_settings SETTING SCRIPT: a script of deploy/slurm as another job, with one more setting.
with_settings() {
    { cat "$PLACE/slurm.env" && printf '%s\n' "$1"; } >"$PLACE/other.env"
    COFFERDAM_SLURM_SETTINGS=$PLACE/other.env SLURM_JOB_ID=4000000000 SLURM_JOB_UID=$(id -u "$SLURM_USER") "$REPOSITORY/deploy/slurm/$2.sh"
}

# Jobs can share the daemon of a node, which neither their prolog nor their epilog starts or stops.
joined_daemon_is_left_alone() {
    local endpoint=unix:$PLACE/sockets/$LONG_JOB/cofferd.sock
    with_settings "COFFERDAM_JOIN=$endpoint" prolog &&
        [[ $(with_settings "COFFERDAM_JOIN=$endpoint" task-prolog) == "export COFFERDAM_ENDPOINT=$endpoint" ]] &&
        with_settings "COFFERDAM_JOIN=$endpoint" epilog && [[ $(ls "$PLACE/scratch") == "$LONG_JOB" ]] || return 1
    "$BIN/coffer" --endpoint "$endpoint" status || return 1
    ! with_settings "COFFERDAM_JOIN=unix:$PLACE/none COFFERDAM_START=1" prolog
}

long_job_ends() {
    scancel "$LONG_JOB"
    await "the end of a cancelled job" is_over "$LONG_JOB" && await "the idle node" node_is idle && nothing_is_left &&
        [[ $(record_of "$LONG_JOB" | grep -c "$ENDED") == 1 ]]
}

# Its containers live on, until the epilog starts it again.
killed_daemon_leaves_nothing() {
    begin_long_job || return 1
    kill -KILL "$(cut -d ' ' -f 1 "$PLACE/sockets/$LONG_JOB/pid")"
    long_job_ends
}

# The node is drained and the job waits for another one. Nothing is left that keeps it from the next job.
failing_prolog_drains_the_node() {
    local job
    cp "$PLACE/cofferd.yaml" "$PLACE/good.yaml"
    echo 'no_such_key: 1' >>"$PLACE/cofferd.yaml"
    job=$(submit "echo ran")
    await "the drained node" drained || return 1
    cp "$PLACE/good.yaml" "$PLACE/cofferd.yaml"
    scancel "$job"
    await "the end of that job" is_over "$job" && nothing_is_left && [[ ! -s $HOME_OF_USER/$job.out ]] &&
        scontrol update "NodeName=$HOST" State=RESUME && await "the idle node" node_is idle
}

drained() { [[ $(node_state) == drain* ]]; }

# hook NAME: of a job that Slurm has not.
hook() { SLURM_JOB_ID=4000000000 SLURM_JOB_UID=$(id -u "$SLURM_USER") "$PLACE/$1"; }

# With another key than that of its daemon the log is not the one that began with the job.
epilog_keeps_what_does_not_verify() {
    local place=$PLACE/scratch/4000000000 records
    records=$(find "$PLACE/records" -name '*.tar.gz' | wc -l)
    hook prolog || return 1
    cat "$place/state/instance" >>"$PLACE/instances"
    cp "$place/key" "$PLACE/key"
    tar --extract --gzip --to-stdout --file "$(find "$PLACE/records" -name '*.tar.gz' -print -quit)" key >"$place/key"
    ! hook epilog && [[ -d $place/state/audit ]] && has_records "$records" || return 1
    cp "$PLACE/key" "$place/key"
    hook epilog && has_records "$((records + 1))" && nothing_is_left
}

# Another job of the user that holds all connections of the daemon does not have the node drained.
held_connections_hold_no_node() {
    local holder status=0 records
    records=$(find "$PLACE/records" -name '*.tar.gz' | wc -l)
    hook prolog || return 1
    cat "$PLACE/scratch/4000000000/state/instance" >>"$PLACE/instances"
    as_user "$SUBMITIT/bin/python" -c '
import contextlib, socket, sys, time

held = [socket.socket(socket.AF_UNIX) for _ in range(400)]
with contextlib.suppress(OSError):
    for one in held:
        one.settimeout(1)
        one.connect(sys.argv[1])
print("held", flush=True)
time.sleep(600)
' "$PLACE/sockets/4000000000/cofferd.sock" >"$PLACE/held" &
    holder=$!
    await "the held connections" grep -q held "$PLACE/held" &&
        ! timeout 5 "$BIN/coffer" --endpoint "unix:$PLACE/sockets/4000000000/cofferd.sock" status &&
        hook epilog && has_records "$((records + 1))" && nothing_is_left || status=1
    kill "$holder"
    return "$status"
}

# Its runs end with it, and its record is verified as any other.
silent_daemon_is_stopped() {
    local records
    records=$(find "$PLACE/records" -name '*.tar.gz' | wc -l)
    hook prolog || return 1
    cat "$PLACE/scratch/4000000000/state/instance" >>"$PLACE/instances"
    "$BIN/coffer" --endpoint "unix:$PLACE/sockets/4000000000/cofferd.sock" run create --profile open --managed || return 1
    install -d "$PLACE/silent"
    ln -s "$COFFERD" "$PLACE/silent/cofferd"
    # shellcheck disable=SC2016 # expanded by that script
    printf '#!/bin/bash\n[[ $1 == audit ]] && exec %s/coffer "$@"\nexit 1\n' "$BIN" >"$PLACE/silent/coffer"
    chmod 0755 "$PLACE/silent/coffer"
    with_settings "COFFERDAM_BIN=$PLACE/silent COFFERDAM_START=1" epilog && has_records "$((records + 1))" && nothing_is_left
}

# Root starts nothing from a directory, and executes no settings, that another user could exchange.
hooks_trust_only_root() {
    local file
    chmod 0777 "$PLACE/scratch"
    ! hook prolog || return 1
    chmod 0700 "$PLACE/scratch"
    chown "$SLURM_USER" "$PLACE/slurm.env"
    ! hook prolog || return 1
    chown root "$PLACE/slurm.env"
    for file in '../x' '1/../2' '' 'a'; do
        ! SLURM_JOB_ID=$file SLURM_JOB_UID=0 "$PLACE/prolog" || return 1
        ! SLURM_JOB_ID=$file "$PLACE/epilog" || return 1
    done
    nothing_is_left
}

title "Slurm"
((EUID == 0)) || die "The prolog of a job starts a cofferd: run this as root."
[[ -x $COFFERD && -x $BIN/coffer ]] || die "There is no $COFFERD with coffer beside it: tests/run.sh builds them."
ensure_engine || die "No Docker Engine could be started; the lines above say why."
ensure_busybox || die "No static busybox could be installed; the lines above say why."
if ! command -v slurmctld slurmd sbatch munged setfacl >/dev/null; then
    install_packages "The test of Slurm" slurm-wlm munge acl || die "Slurm could not be installed; the lines above say why."
fi
# Not a Python of root's home, which the user of the jobs cannot execute.
ensure_packages "submitit" "$SUBMITIT" "$REPOSITORY/tests/fleet/requirements-slurm.txt" /usr/bin/python3 || exit 1

PLACE=$(mktemp -d /var/tmp/cofferdam-slurm.XXXXXX)
trap clean_up EXIT
chmod 0711 "$PLACE"
touch "$PLACE/instances" "$PLACE/hooks.log"
HOME_OF_USER=$PLACE/home
install -d -o "$SLURM_USER" "$HOME_OF_USER"
export SLURM_CONF=$PLACE/slurm.conf
ENVIRONMENT=("SLURM_CONF=$SLURM_CONF" "HOME=$HOME_OF_USER" "PATH=/usr/bin:/bin" "PYTHONPATH=$REPOSITORY/clients/python/src")
write_hooks
write_slurm_conf
step "Starting a cluster of one node" start_slurm
step "Episodes as jobs, by submitit" episodes_have_rewards
step "A record for each job" records_are_whole
step "Nothing else is left" nothing_is_left
step "Records are root's" records_are_closed
step "A job with a run" begin_long_job
step "Its socket is its user's" socket_is_the_users
step "Its daemon is no part of slurmd" daemon_is_of_its_own
step "A daemon of the node is joined and left alone" joined_daemon_is_left_alone
step "Its run ends with it" long_job_ends
step "A daemon that is killed leaves nothing" killed_daemon_leaves_nothing
step "A prolog that fails drains the node" failing_prolog_drains_the_node
step "An epilog keeps a log that does not verify" epilog_keeps_what_does_not_verify
step "Held connections hold no node" held_connections_hold_no_node
step "A daemon that does not answer is stopped" silent_daemon_is_stopped
step "Prolog and epilog trust only root" hooks_trust_only_root
