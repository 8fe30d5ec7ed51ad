# shellcheck shell=bash
# A Slurm of one node for slurm.sh: its settings, start and end. munged, slurmctld and slurmd are children of the script. Needs PLACE, a
# directory of root's, and the variables of slurm.sh.

DAEMONS=()

# After a failure, too: epilogs end what prologs began.
clean_up() {
    local status=$? pid job turn
    trap - EXIT
    if ((status)); then
        tail -n 12 "$PLACE"/slurmd.log "$PLACE"/slurmctld.log "$PLACE"/hooks.log "$PLACE"/scratch/*/cofferd.log >&2 2>/dev/null || true
    fi
    scancel --quiet --user "$SLURM_USER" 2>/dev/null || true
    for ((turn = 0; turn < 300; turn++)); do
        [[ -n $(squeue --noheader 2>/dev/null) ]] || break
        sleep 0.1
    done
    # slurmd before those that it talks to. It may wait for a job that has not ended.
    for ((turn = ${#DAEMONS[@]} - 1; turn >= 0; turn--)); do
        pid=${DAEMONS[turn]}
        kill "$pid" 2>/dev/null || continue
        timeout 20 tail --pid "$pid" --follow /dev/null || kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    for job in "$PLACE"/scratch/*/; do
        [[ ! -d $job ]] || SLURM_JOB_ID=$(basename "$job") "$PLACE/epilog" || status=1
    done
    rm -rf --one-file-system "$PLACE"
    exit "$status"
}

free_port() { /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# As they would be on a node, with paths of this test, and the same settings for each.
write_hooks() {
    local hook
    install -d -m 0711 "$PLACE/scratch" "$PLACE/sockets" "$PLACE/records"
    sed -e "s|/bin/busybox|$BUSYBOX|" -e "s|unix:///var/run/docker.sock|$(engine_endpoint)|" deploy/slurm/cofferd.yaml >"$PLACE/cofferd.yaml"
    cat >"$PLACE/slurm.env" <<END
COFFERDAM_BIN=$BIN
COFFERDAM_TEMPLATE=$PLACE/cofferd.yaml
COFFERDAM_SCRATCH=$PLACE/scratch
COFFERDAM_SOCKETS=$PLACE/sockets
COFFERDAM_RECORDS=$PLACE/records
COFFERDAM_DRAIN=1
COFFERDAM_START=30
END
    for hook in prolog epilog; do
        printf '#!/bin/bash\nexport COFFERDAM_SLURM_SETTINGS=%s\nexec %s 2>>%s\n' \
            "$PLACE/slurm.env" "$REPOSITORY/deploy/slurm/$hook.sh" "$PLACE/hooks.log" >"$PLACE/$hook"
    done
    printf '#!/bin/bash\nexport COFFERDAM_SLURM_SETTINGS=%s\nexec %s\n' "$PLACE/slurm.env" "$REPOSITORY/deploy/slurm/task-prolog.sh" >"$PLACE/task-prolog"
    chmod 0755 "$PLACE"/{prolog,epilog,task-prolog}
    chmod 0644 "$PLACE"/{slurm.env,cofferd.yaml}
}

write_slurm_conf() {
    cat >"$PLACE/slurm.conf" <<END
ClusterName=cofferdam
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$PLACE/munge/socket
CredType=cred/munge
StateSaveLocation=$PLACE/slurmctld
SlurmdSpoolDir=$PLACE/slurmd
SlurmctldPidFile=$PLACE/slurmctld.pid
SlurmdPidFile=$PLACE/slurmd.pid
SlurmctldLogFile=$PLACE/slurmctld.log
SlurmdLogFile=$PLACE/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=5
PrologFlags=Alloc
PrologEpilogTimeout=$PATIENCE
Prolog=$PLACE/prolog
Epilog=$PLACE/epilog
TaskProlog=$PLACE/task-prolog
NodeName=$HOST NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=ALL Default=YES
END
}

# begin NAME PROGRAM ARGUMENTS…: a daemon of the cluster, which ends with this script.
begin() {
    "${@:2}" >>"$PLACE/$1.out" 2>&1 </dev/null &
    DAEMONS+=($!)
}

# await "what" COMMAND…: until it succeeds.
await() {
    local what=$1 deadline=$((SECONDS + PATIENCE))
    until "${@:2}" >/dev/null 2>&1; do
        if ((SECONDS >= deadline)); then
            printf '%s: not within %d seconds\n' "$what" "$PATIENCE"
            return 1
        fi
        sleep 0.2
    done
}

node_state() { sinfo --noheader --nodes "$HOST" --format %T; }
node_is() { [[ $(node_state) == "$1" ]]; }

start_slurm() {
    install -d "$PLACE/munge" "$PLACE/slurmctld" "$PLACE/slurmd"
    head -c 128 /dev/urandom >"$PLACE/munge/key" && chmod 0600 "$PLACE/munge/key"
    begin munged munged --foreground --force --key-file "$PLACE/munge/key" --socket "$PLACE/munge/socket" \
        --pid-file "$PLACE/munge/pid" --log-file "$PLACE/munge/log" --seed-file "$PLACE/munge/seed"
    await "munged" test -S "$PLACE/munge/socket" || return 1
    begin slurmctld slurmctld -D -f "$SLURM_CONF"
    begin slurmd slurmd -D -f "$SLURM_CONF" -N "$HOST"
    await "the node of Slurm" node_is idle
}
