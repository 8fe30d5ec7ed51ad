# shellcheck shell=bash
# Settings of the scripts in this directory. Each can be set in /etc/cofferdam/slurm.env, which is a shell file of root's that all
# users can read: it has no secrets.

# shellcheck disable=SC2034 # those who source this file use them
read_settings() {
    # Directory of cofferd and coffer.
    COFFERDAM_BIN=/usr/bin
    # Configuration of a job's daemon, with words that prolog.sh replaces.
    COFFERDAM_TEMPLATE=/etc/cofferdam/slurm.yaml
    # Directory for the state of jobs: on a local disk of the node (ext4, xfs or btrfs), root's alone.
    COFFERDAM_SCRATCH=/var/lib/cofferdam-slurm
    # Directory for the sockets of jobs.
    COFFERDAM_SOCKETS=/run/cofferdam-slurm
    # Directory in which the records of jobs stay, root's alone.
    COFFERDAM_RECORDS=/var/log/cofferdam-slurm
    # Seconds: until a daemon is ready, until runs that the job left are stopped, and until a daemon has stopped.
    COFFERDAM_START=60
    COFFERDAM_DRAIN=10
    COFFERDAM_STOP=90
    # Endpoint of a daemon that serves the whole node, such as unix:/run/cofferdam/cofferd.sock. Jobs then join it and start none.
    COFFERDAM_JOIN=''

    local file=${COFFERDAM_SLURM_SETTINGS:-/etc/cofferdam/slurm.env}
    [[ -e $file ]] || return 0
    # Root executes no file that another user can write.
    if ((EUID == 0)) && [[ $(stat -L -c %u "$file") != 0 || -n $(find -L "$file" -maxdepth 0 -perm /022) ]]; then
        printf '%s is not of root alone\n' "$file" >&2
        return 1
    fi
    # shellcheck source=/dev/null
    source "$file"
}

# socket_of JOB: the socket of its daemon.
socket_of() { printf '%s/%s/cofferd.sock' "$COFFERDAM_SOCKETS" "$1"; }
