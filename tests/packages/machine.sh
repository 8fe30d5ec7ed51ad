#!/usr/bin/env bash
# Installs the Debian package on a real systemd host: a virtual machine of Debian's own packages, without KVM, and so ten times slower
# than its host. tests/packages/guest.sh says what is checked there.
#
#   tests/packages/machine.sh RELEASE FIRST.deb SECOND.deb
#
#   RELEASE   bookworm or trixie
#   *.deb     two revisions of the package, 1 and 2
#
# COFFERDAM_MACHINES keeps the made systems (target/machines). Needs root, mmdebstrap and qemu-system-x86.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for part in deploy/lib/say deploy/lib/packages tests/machine; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/$part.sh"
done

(($# == 3)) || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2 && exit 2; }
RELEASE=$1 FIRST=$2 SECOND=$3
PLACE=${COFFERDAM_MACHINES:-$REPOSITORY/target/machines}
PATIENCE=2400 # seconds
ENGINE=(docker.io)
[[ $RELEASE == bookworm ]] || ENGINE+=(docker-cli)

ensure_machine_tools
WORK=$(mktemp -d -p "$PLACE")
trap 'as_root rm -rf "$WORK"' EXIT

prepare() {
    unpack_system || return 1
    install -D -m 0755 "$REPOSITORY/tests/packages/guest.sh" "$WORK/root/root/guest.sh"
    install -D -m 0644 -t "$WORK/root/root/packages" "$FIRST" "$SECOND"
    # The runs have no network of the engine's.
    install -D /dev/stdin "$WORK/root/etc/docker/daemon.json" <<<'{"iptables": false, "bridge": "none"}'
    make_disk /root/guest.sh docker.service
}

step "Debian $RELEASE (once, takes minutes)" make_system "$RELEASE" "${ENGINE[@]}"
step "The disk of the virtual machine" prepare
note "Debian $RELEASE, as it comes:"
boot "$PATIENCE" "$PLACE/$RELEASE.log" | grep --line-buffered -E '^(ok|FAILED|====|        )|passed, ' >&2 || true
grep -qE '^[1-9][0-9]* passed, 0 failed$' "$PLACE/$RELEASE.log" ||
    die "The package failed on Debian $RELEASE; $PLACE/$RELEASE.log has all that the machine said."
