#!/usr/bin/env bash
# Prolog of Slurm: starts a cofferd for the job on this node, and returns when it is ready. Joins the one that the job has
# already, or the node's (COFFERDAM_JOIN). Runs as root; docs/src/operating/slurm.md says how to install it.
set -euo pipefail
# Slurm sets none.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 077

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=settings.sh
source "$here/settings.sh"
# shellcheck source=job.sh
source "$here/job.sh"

# The words of the template, which are no parts of other words.
write_configuration() {
    sed -e "s|\bJOB_SOCKET\b|$SOCKET|g" -e "s|\bJOB_STATE\b|$JOB/state|g" -e "s|\bJOB_UID\b|$SLURM_JOB_UID|g" \
        -e "s|\bJOB_ID\b|$SLURM_JOB_ID|g" "$COFFERDAM_TEMPLATE" >"$JOB/cofferd.yaml.new" &&
        mv "$JOB/cofferd.yaml.new" "$JOB/cofferd.yaml"
}

read_settings
if [[ -n $COFFERDAM_JOIN ]]; then
    await_ready "$COFFERDAM_JOIN"
    exit 0
fi
[[ ${SLURM_JOB_UID-} =~ ^[0-9]{1,10}$ ]] || fail "SLURM_JOB_UID is no number of a user"
find_job
lock_job
# Its node would still be drained.
[[ ! -e $JOB/checkpoint ]] || fail "an earlier epilog of this job has failed; call epilog.sh for it before the job begins again"
if ! is_alive; then
    mkdir -p "$JOB"
    write_configuration || fail "$COFFERDAM_TEMPLATE cannot be read"
    start_daemon
fi
await_ready "unix:$SOCKET" job
keep_key
# Not for the user's group, in which others may be. The socket first: nobody reaches it before its directory is open.
if ! setfacl --modify "u:$SLURM_JOB_UID:rw" "$SOCKET" || ! setfacl --modify "u:$SLURM_JOB_UID:x" "$SOCKETS"; then
    fail "the socket takes no ACL for the job's user: is the package acl installed?"
fi
