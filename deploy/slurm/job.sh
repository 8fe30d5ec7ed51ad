# shellcheck shell=bash
# The daemon of one job on one node: its files, its start and its end. prolog.sh and epilog.sh call this, as root.
#
# The daemon is root's, since it mounts workspaces and gives files to their owners. The job's user is one of its clients, by the socket,
# with the role of the template. No file of a job is in a directory that a user can write, so no user can exchange one.
#
#   SCRATCH/JOB/     cofferd.yaml, state, cofferd.log, key and checkpoint of the audit log; epilog.sh deletes it
#   SOCKETS/JOB/     cofferd.sock and pid; only root and the job's user can enter it

say() {
    printf '%s\n' "$*" >&2
    logger --tag cofferdam-slurm -- "job ${SLURM_JOB_ID-}: $*" 2>/dev/null || true
}

# Slurm drains the node of a prolog or an epilog that fails.
fail() {
    say "$*"
    exit 1
}

# Sets JOB, SOCKETS, SOCKET, PID_FILE, NODE, and checks all that becomes a part of a path.
find_job() {
    ((EUID == 0)) || fail "only root can start and stop the daemon of a job"
    [[ ${SLURM_JOB_ID-} =~ ^[0-9]{1,10}$ ]] || fail "SLURM_JOB_ID is no number of a job"
    NODE=${SLURMD_NODENAME:-$(hostname -s)}
    [[ $NODE =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || fail "the name of the node has characters that no file name of a record has"
    local setting
    for setting in SCRATCH SOCKETS RECORDS BIN TEMPLATE; do
        setting=COFFERDAM_$setting
        [[ ${!setting} =~ ^/[A-Za-z0-9._/-]+$ ]] || fail "$setting is no absolute path of plain characters"
    done
    for setting in START DRAIN STOP; do
        setting=COFFERDAM_$setting
        [[ ${!setting} =~ ^[1-9][0-9]{0,4}$ ]] || fail "$setting is no number of seconds"
    done
    JOB=$COFFERDAM_SCRATCH/$SLURM_JOB_ID
    SOCKET=$(socket_of "$SLURM_JOB_ID")
    SOCKETS=${SOCKET%/*}
    PID_FILE=$SOCKETS/pid
    # Users pass through the second to their own socket. They cannot list it.
    own_directory "$COFFERDAM_SCRATCH" 0700
    own_directory "$COFFERDAM_SOCKETS" 0711
    own_directory "$COFFERDAM_RECORDS" 0700
}

# own_directory DIRECTORY MODE: makes it if it is missing. Fails if another user could exchange it, or what is in it.
own_directory() {
    local directory=$1
    [[ -d $directory ]] || install -d -m "$2" "$directory" || fail "$directory cannot be made"
    directory=$(realpath -e "$directory")
    [[ -z $(find "$directory" -maxdepth 0 \( ! -user 0 -o -perm /022 \)) ]] ||
        fail "$directory has to belong to root, and no other user may write it"
    while [[ $directory != / ]]; do
        directory=$(dirname "$directory")
        [[ -z $(find "$directory" -maxdepth 0 \( ! -user 0 -o -perm /022 ! -perm -1000 \)) ]] ||
            fail "$directory, in which $1 is, has to belong to root, and no other user may rename what is in it"
    done
}

# Slurm calls prolog and epilog of a job one after the other; a person may call them, too.
lock_job() {
    mkdir -p "$SOCKETS"
    exec 9<"$SOCKETS"
    if ! flock --wait 300 9 || [[ ! /proc/self/fd/9 -ef $SOCKETS ]]; then
        fail "another prolog or epilog of this job is at work"
    fi
}

# started PID: the moment of its start, which tells it from a later process of the same number. Fails if it has ended, also if its parent
# has not yet asked for its end.
started() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name of the program, which may have blanks, is in brackets before.
    awk '/^[ZX]/ { exit 1 } { print $20 }' <<<"${stat##*) }"
}

# Sets PID if the daemon of the job lives.
is_alive() {
    local moment
    PID=''
    read -r PID moment 2>/dev/null <"$PID_FILE" && [[ $PID =~ ^[0-9]+$ && -n $moment && $(started "$PID") == "$moment" ]]
}

# A process group of its own, because slurmd ends that of a prolog with the prolog. No variable of slurmd and no open file goes
# along, and not its protection from the kernel's OOM killer either: git of an agent's workspace runs below the daemon.
start_daemon() {
    "$COFFERDAM_BIN/cofferd" --config "$JOB/cofferd.yaml" --check-config >>"$JOB/cofferd.log" 2>&1 </dev/null ||
        fail "the configuration of the job's daemon is wrong: $(tail -n 3 "$JOB/cofferd.log")"
    rm -f "$PID_FILE"
    # shellcheck disable=SC2016 # expanded by the inner shell
    env -i PATH="$PATH" setsid --fork bash -c '
        ulimit -n 65536 2>/dev/null
        echo 0 >/proc/$$/oom_score_adj
        stat=$(cat /proc/$$/stat)
        echo "$$ $(awk "{ print \$20 }" <<<"${stat##*) }")" >"$1.new" && mv "$1.new" "$1" || exit
        exec "$2/cofferd" --config "$3/cofferd.yaml"
    ' cofferd "$PID_FILE" "$COFFERDAM_BIN" "$JOB" >>"$JOB/cofferd.log" 2>&1 </dev/null 9<&-
}

# await_ready ENDPOINT [JOB]: of a job's own daemon, fails as soon as it has ended.
await_ready() {
    local deadline=$((SECONDS + COFFERDAM_START)) seen=''
    until timeout 10 "$COFFERDAM_BIN/coffer" --endpoint "$1" status >/dev/null 2>&1; do
        if [[ -n ${2-} ]]; then
            if is_alive; then seen=1; elif [[ -n $seen ]]; then fail "the job's daemon ended: $(tail -n 3 "$JOB/cofferd.log")"; fi
        fi
        ((SECONDS < deadline)) || fail "the daemon was not ready within $COFFERDAM_START seconds"
        sleep 0.2
    done
}

# The key with which the daemon signs. epilog.sh verifies the record with it, and with no other one that a changed log might name.
keep_key() {
    [[ ! -s $JOB/key ]] || return 0
    if ! timeout 30 "$COFFERDAM_BIN/coffer" --endpoint "unix:$SOCKET" audit key >"$JOB/key.new" || ! mv "$JOB/key.new" "$JOB/key"; then
        fail "the daemon did not tell the key of its audit log"
    fi
}

# Asks it to stop, which ends its runs and completes the audit log. Never kills it: that would leave containers.
stop_daemon() {
    local deadline=$((SECONDS + COFFERDAM_STOP))
    kill -TERM "$PID" 2>/dev/null || true
    while is_alive; do
        ((SECONDS < deadline)) || fail "the job's daemon did not stop within $COFFERDAM_STOP seconds"
        sleep 0.1
    done
}
