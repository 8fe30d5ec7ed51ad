#!/usr/bin/env bash
# Tries cofferd beside each engine that people have: in virtual machines of the distributions' own packages, without KVM, one after the
# other, some ten minutes each. tests/hosts/guest.sh says what is tried. Fails if a check fails, or if a host works or refuses where it did
# not in tests/hosts/results, of which tests/hosts/table.py makes the table of the book.
#
#   tests/hosts/run.sh [--keep] [NAME…]
#
#   --keep   keeps the results in tests/hosts/results, and writes the table
#   NAME     docker-20, docker-cgroup2, docker-userns-remap, docker-rootless, podman-rootful, podman-rootless, docker-28 or
#            ubuntu-userns; without names all of them
#
# Takes the Debian package COFFERDAM_PACKAGE, or makes one of the debug build. COFFERDAM_MACHINES keeps the made systems (target/machines).
# Needs root, mmdebstrap and qemu-system-x86.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$REPOSITORY"
LOG_FILE=${LOG_FILE:-$REPOSITORY/target/hosts.log}
for part in deploy/lib/say deploy/lib/packages tests/machine; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/$part.sh"
done
PLACE=${COFFERDAM_MACHINES:-$REPOSITORY/target/machines}
PATIENCE=3600 # seconds
HOSTS=(docker-20 docker-cgroup2 docker-userns-remap docker-rootless podman-rootful podman-rootless docker-28 ubuntu-userns)
# What guest.sh needs, and services of a user, which engines without root need.
COMMON=(curl jq passwd iproute2 uidmap slirp4netns rootlesskit dbus-user-session libpam-systemd)

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

KEEP='' NAMES=()
while (($#)); do
    case $1 in
    --keep) KEEP=1 ;;
    -h | --help) usage && exit 0 ;;
    *)
        [[ " ${HOSTS[*]} " == *" $1 "* ]] || { usage >&2 && exit 2; }
        NAMES+=("$1")
        ;;
    esac
    shift
done
((${#NAMES[@]})) || NAMES=("${HOSTS[@]}")

# describe NAME: sets the release, the packages beside COMMON, and how guest.sh starts the engine.
describe() {
    case $1 in
    docker-20 | podman-*) RELEASE=bookworm PACKAGES=(docker.io podman crun fuse-overlayfs) ;;
    docker-28) RELEASE=sid PACKAGES=(docker.io docker-cli) ;;
    ubuntu-userns) RELEASE=noble PACKAGES=(docker.io) ;;
    *) RELEASE=trixie PACKAGES=(docker.io docker-cli) ;;
    esac
    case $1 in
    docker-userns-remap | docker-rootless | podman-rootless) ENGINE=$1 ;;
    podman-rootful) ENGINE=podman ;;
    *) ENGINE=docker ;;
    esac
}

# Only one engine is started, and has no network of its own: no run needs one.
prepare() {
    local root=$WORK/root settings='{"iptables": false, "ip6tables": false, "bridge": "none"}' unit=docker.service file
    unpack_system && dpkg-deb --extract "$PACKAGE" "$root" || return 1
    install -D -m 0755 tests/hosts/guest.sh "$root/root/hosts/guest.sh"
    install -D /dev/stdin "$root/root/hosts/row" <<<"NAME=$1 ENGINE=$ENGINE"
    [[ $ENGINE != docker-userns-remap ]] || settings=${settings/\}/, \"userns-remap\": \"default\"\}}
    if [[ $ENGINE == docker || $ENGINE == docker-userns-remap ]]; then
        install -D /dev/stdin "$root/etc/docker/daemon.json" <<<"$settings"
    else
        unit=
        for file in docker.service docker.socket podman.socket podman.service; do ln -sf /dev/null "$root/etc/systemd/system/$file"; done
    fi
    make_disk /root/hosts/guest.sh "$unit"
}

try_host() {
    local name=$1 result=$PLACE/$1.json log=$PLACE/$1.log
    describe "$name"
    WORK=$(mktemp -d -p "$PLACE")
    step "$name: the system of $RELEASE (once, takes minutes)" make_system "$RELEASE" "${COMMON[@]}" "${PACKAGES[@]}" || return 1
    step "$name: the disk of the virtual machine" prepare "$name" || return 1
    note "$name, as it comes:"
    rm -f "$result"
    boot "$PATIENCE" "$log" "$result" | grep --line-buffered -E '^(works|refused|fails|done|        )' >&2 || true
    rm -rf --one-file-system "$WORK"
    tests/hosts/table.py --compare "$result" ${KEEP:+--keep} && return
    note "all that the machine said: $log"
    return 1
}

ensure_machine_tools
command -v python3 >/dev/null || die "tests/hosts/table.py needs python3."
WORK=''
trap '[[ -z $WORK ]] || rm -rf --one-file-system "$WORK"' EXIT
PACKAGE=${COFFERDAM_PACKAGE:-}
if [[ -z $PACKAGE ]]; then
    step "The Debian package" deploy/package.sh --profile debug --out "$PLACE/package" deb
    PACKAGE=$(echo "$PLACE"/package/cofferdam_*.deb)
fi

FAILED=()
for name in "${NAMES[@]}"; do try_host "$name" || FAILED+=("$name"); done
[[ -z $KEEP ]] || tests/hosts/table.py
((${#FAILED[@]} == 0)) || die "Other than it should be: ${FAILED[*]}"
