#!/usr/bin/env bash
# Epilog of Slurm: ends the runs that the job has left, stops its cofferd, verifies the audit log, and moves it to the records.
# Runs as root. A person can call it for a job whose node was restarted: `SLURM_JOB_ID=4711 epilog.sh`.
#
# Fails, with all files of the job left as they are, if the daemon does not stop or the log does not verify. Slurm then drains the node.
set -euo pipefail
# Slurm sets none.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 077

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=settings.sh
source "$here/settings.sh"
# shellcheck source=job.sh
source "$here/job.sh"

# A daemon that ended before its job is started once more: it removes the containers of its runs and completes its record. One that does
# not answer, since other processes of the user hold all its connections, is stopped without a drain.
ensure_daemon() {
    local deadline=$((SECONDS + COFFERDAM_START))
    while is_alive; do
        if timeout 10 "$COFFERDAM_BIN/coffer" --endpoint "unix:$SOCKET" audit key >/dev/null 2>&1; then
            ANSWERS=1
            return 0
        fi
        if ((SECONDS >= deadline)); then
            say "the job's daemon does not answer; it is stopped with its runs"
            return 0
        fi
        sleep 0.2
    done
    say "the job's daemon had ended before the job; it is started again for its record"
    start_daemon
    await_ready "unix:$SOCKET" job
    is_alive || fail "the job's daemon ended: $(tail -n 3 "$JOB/cofferd.log")"
    ANSWERS=1
}

# A stop ends all runs, too. The drain is before it so that they end for a reason that clients and the record know. The checkpoint shows
# later that no record before it is missing.
drain() {
    timeout $((COFFERDAM_DRAIN + COFFERDAM_STOP)) "$COFFERDAM_BIN/coffer" --endpoint "unix:$SOCKET" node drain --wait \
        --reason "the job $SLURM_JOB_ID has ended" --deadline "${COFFERDAM_DRAIN}s" >/dev/null ||
        say "the node could not be drained; the daemon stops with its runs"
    if timeout 30 "$COFFERDAM_BIN/coffer" --endpoint "unix:$SOCKET" audit checkpoint >"$JOB/checkpoint.new"; then
        mv "$JOB/checkpoint.new" "$JOB/checkpoint"
    else
        say "the daemon gave no checkpoint of its audit log"
    fi
}

# The last records are the daemon's stop, and a checkpoint of it.
has_stopped() { tail --quiet --lines 2 "$JOB"/state/audit/*.jsonl | tail --lines 2 | grep -q '"kind":"daemon_stopped"'; }

# With the key of the job's start, and no other one that a changed log might name.
verify_record() {
    local with=(--key "$(<"$JOB/key")")
    [[ ! -s $JOB/checkpoint ]] || with+=(--checkpoint "$JOB/checkpoint")
    "$COFFERDAM_BIN/coffer" audit verify "$JOB/state/audit" "${with[@]}" >&2
}

# A record that is moved is complete on the disk under its final name. A job that was requeued has several.
keep_record() {
    local record draft=$COFFERDAM_RECORDS/.$SLURM_JOB_ID.$NODE.new
    record=$COFFERDAM_RECORDS/$SLURM_JOB_ID.$NODE.$(date -u +%Y%m%dT%H%M%SZ).tar.gz
    local parts=(state/audit key cofferd.log cofferd.yaml)
    [[ ! -s $JOB/checkpoint ]] || parts+=(checkpoint)
    tar --create --gzip --file "$draft" --directory "$JOB" --exclude='state/audit/index.db*' "${parts[@]}" &&
        tar --compare --gzip --file "$draft" --directory "$JOB" &&
        sync "$draft" && mv --no-clobber "$draft" "$record" && [[ ! -e $draft ]] && sync "$COFFERDAM_RECORDS"
}

read_settings
[[ -z $COFFERDAM_JOIN ]] || exit 0
find_job
if [[ ! -d $JOB ]]; then
    rm -rf --one-file-system "$SOCKETS"
    exit 0
fi
lock_job
# Without a log the daemon never began to work.
if [[ -d $JOB/state/audit ]]; then
    # Other jobs of the user on this node get no new connection.
    chmod 0700 "$SOCKETS"
    setfacl --remove-all "$SOCKETS"
    ANSWERS=''
    ensure_daemon
    [[ -z $ANSWERS ]] || keep_key
    [[ -s $JOB/key ]] || fail "the key of the job's audit log is missing; all files of the job stay in $JOB"
    [[ -z $ANSWERS ]] || drain
    stop_daemon
    has_stopped || fail "the daemon ended before it had stopped its runs; call epilog.sh again, which starts it for their end"
    verify_record || fail "the audit log does not verify; all files of the job stay in $JOB"
    keep_record || fail "the record could not be moved to $COFFERDAM_RECORDS; all files of the job stay in $JOB"
elif is_alive; then
    stop_daemon
fi
# Never through a mount, behind which are files of others.
! grep -qF " $(realpath "$JOB")/" /proc/self/mountinfo || fail "something is still mounted in $JOB"
rm -rf --one-file-system "$JOB" "$SOCKETS"
