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

# A daemon that ended before its job is started once more: it removes the containers of its runs and completes its record.
ensure_daemon() {
    is_alive && return 0
    say "the job's daemon had ended before the job; it is started again for its record"
    start_daemon
    await_ready "unix:$SOCKET" job
    is_alive || fail "the job's daemon ended: $(tail -n 3 "$JOB/cofferd.log")"
}

# A stop ends all runs, too. The drain is before it so that they end for a reason that clients and the record know.
drain() {
    timeout $((COFFERDAM_DRAIN + COFFERDAM_STOP)) "$COFFERDAM_BIN/coffer" --endpoint "unix:$SOCKET" node drain --wait \
        --reason "the job $SLURM_JOB_ID has ended" --deadline "${COFFERDAM_DRAIN}s" >/dev/null ||
        say "the node could not be drained; the daemon stops with its runs"
}

# A record that is moved is complete on the disk under its final name. A job that was requeued has several.
keep_record() {
    local record draft=$COFFERDAM_RECORDS/.$SLURM_JOB_ID.$NODE.new
    record=$COFFERDAM_RECORDS/$SLURM_JOB_ID.$NODE.$(date -u +%Y%m%dT%H%M%SZ).tar.gz
    local parts=(state/audit key checkpoint cofferd.log cofferd.yaml)
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
    ensure_daemon
    keep_key
    drain
    coffer audit checkpoint >"$JOB/checkpoint" || fail "the daemon gave no checkpoint of its audit log"
    stop_daemon
    "$COFFERDAM_BIN/coffer" audit verify "$JOB/state/audit" --key "$(<"$JOB/key")" --checkpoint "$JOB/checkpoint" >&2 ||
        fail "the audit log does not verify; all files of the job stay in $JOB"
    keep_record || fail "the record could not be moved to $COFFERDAM_RECORDS; all files of the job stay in $JOB"
elif is_alive; then
    stop_daemon
fi
# Never through a mount, behind which are files of others.
! grep -qF " $(realpath "$JOB")/" /proc/self/mountinfo || fail "something is still mounted in $JOB"
rm -rf --one-file-system "$JOB" "$SOCKETS"
