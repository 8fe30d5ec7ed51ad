# shellcheck shell=bash
# A Docker Engine that answers. Order: use the one that is there (DOCKER_HOST and docker contexts are honoured), else
# install the distribution's, else start what is installed: by systemd where that runs, in the background where not.
# The presence of a `docker` command says nothing about an engine. Needs say.sh and packages.sh.

ENGINE_LOG=/var/log/cofferdam-dockerd.log
ENGINE_PATIENCE=60 # seconds

engine_answers() {
    command -v docker >/dev/null || return 1
    timeout 20 docker info >/dev/null 2>&1 && return 0
    # The engine may be there for root only. No question is asked here.
    ((EUID != 0)) && command -v sudo >/dev/null && sudo -n timeout 20 docker info >/dev/null 2>&1
}

# engine arguments…: the docker command, with root's rights where the engine answers to nobody else. ENGINE_TIMEOUT bounds
# one call, in seconds.
engine() {
    local bounded=(timeout --foreground "${ENGINE_TIMEOUT:-0}" docker)
    if docker info >/dev/null 2>&1; then "${bounded[@]}" "$@"; else as_root "${bounded[@]}" "$@"; fi
}

systemd_runs() { [[ -d /run/systemd/system ]]; }

# Removes a pid file unless the process that it names is what it says.
drop_stale_pid_file() {
    local file=$1 name=$2 pid
    [[ -e $file ]] || return 0
    pid=$(as_root cat "$file" 2>/dev/null | tr -cd '0-9')
    if [[ -n $pid && $(cat "/proc/$pid/comm" 2>/dev/null) == "$name" ]]; then return 0; fi
    note "removing $file, which a $name that is gone left behind"
    as_root rm -f "$file"
}

process_named() { grep -qsx -- "$1" /proc/[0-9]*/comm; }

# What a killed machine leaves in /run makes a new dockerd refuse to start, or wait for a containerd that is gone.
drop_stale_engine_files() {
    drop_stale_pid_file /var/run/docker.pid dockerd
    drop_stale_pid_file /var/run/docker/containerd/containerd.pid containerd
    if ! process_named dockerd; then as_root rm -f /var/run/docker.sock; fi
    if ! process_named containerd; then
        as_root rm -f /run/containerd/containerd.sock /run/containerd/containerd.sock.ttrpc \
            /var/run/docker/containerd/containerd.sock /var/run/docker/containerd/containerd.sock.ttrpc
    fi
}

# Minimal machines come without any control group hierarchy; then the engine needs one. What is mounted is left alone.
ensure_cgroups() {
    if grep -qE ' - cgroup2? ' /proc/self/mountinfo; then return 0; fi
    note "mounting the control group hierarchy on /sys/fs/cgroup"
    as_root mount -t cgroup2 cgroup2 /sys/fs/cgroup
}

wait_for_engine() {
    local deadline=$((SECONDS + ENGINE_PATIENCE))
    until engine_answers; do
        if ((SECONDS >= deadline)); then
            printf 'no answer within %d seconds\n' "$ENGINE_PATIENCE"
            return 1
        fi
        sleep 0.3
    done
}

start_in_background() {
    # shellcheck disable=SC2016 # expanded by the inner shell, which runs as root
    as_root setsid --fork sh -c 'exec dockerd >>"$1" 2>&1 </dev/null' cofferdam-dockerd "$ENGINE_LOG"
    if ! wait_for_engine; then
        printf 'the last lines of %s:\n' "$ENGINE_LOG"
        as_root tail -n 15 "$ENGINE_LOG"
        return 1
    fi
}

start_by_systemd() {
    if as_root systemctl start docker && wait_for_engine; then return 0; fi
    as_root journalctl --no-pager -n 15 -u docker
    return 1
}

install_engine() {
    local packages=(docker.io iptables ca-certificates)
    apt_refresh || return 1
    # Since Debian 13 the command is a package of its own.
    if ! command -v docker >/dev/null && apt_offers docker-cli; then packages+=(docker-cli); fi
    install_packages "The Docker Engine" "${packages[@]}"
}

# The one function that others call.
ensure_engine() {
    if engine_answers; then return 0; fi
    case ${DOCKER_HOST:-} in
    '' | unix:///var/run/docker.sock | unix:///run/docker.sock) ;;
    *) die "DOCKER_HOST is $DOCKER_HOST and nothing answers there. Start that engine, or unset DOCKER_HOST to use one on this machine." ;;
    esac
    need_root "start a Docker Engine"
    if ! command -v dockerd >/dev/null; then
        has_apt || die "There is no Docker Engine on this machine. Install Docker Engine 20.10 or newer (https://docs.docker.com/engine/install/), start it, and run this again."
        install_engine || return 1
    fi
    # The packages' own scripts start it where they can.
    if engine_answers; then return 0; fi
    if systemd_runs; then
        step "Starting the Docker Engine" start_by_systemd || return 1
    else
        ensure_cgroups
        drop_stale_engine_files
        step "Starting the Docker Engine" start_in_background || return 1
    fi
}

engine_summary() {
    local format='Docker Engine {{.ServerVersion}}, {{.Driver}}, cgroup v{{.CgroupVersion}}, default runtime {{.DefaultRuntime}}'
    docker info --format "$format" 2>/dev/null || as_root docker info --format "$format"
}

# The address of the engine that answers, as cofferd's configuration takes it.
engine_endpoint() {
    local endpoint=${DOCKER_HOST:-}
    if [[ -z $endpoint ]]; then endpoint=$(docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null); fi
    printf '%s' "${endpoint:-unix:///var/run/docker.sock}"
}
