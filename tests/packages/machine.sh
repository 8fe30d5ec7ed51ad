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
for part in say packages; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

(($# == 3)) || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2 && exit 2; }
RELEASE=$1 FIRST=$2 SECOND=$3
PLACE=${COFFERDAM_MACHINES:-$REPOSITORY/target/machines}
PATIENCE=2400 # seconds
INCLUDE=systemd,systemd-sysv,udev,docker.io,apparmor,iptables,linux-image-amd64,procps,git,kmod,ca-certificates,busybox-static,dbus
[[ $RELEASE == bookworm ]] || INCLUDE=$INCLUDE,docker-cli

command -v mmdebstrap >/dev/null || install_packages "The virtual machine" mmdebstrap
command -v qemu-system-x86_64 >/dev/null || install_packages "The virtual machine" qemu-system-x86
install -d "$PLACE"
if [[ ! -e $PLACE/$RELEASE.tar ]]; then
    step "Debian $RELEASE (once, takes minutes)" as_root mmdebstrap --format=tar --variant=minbase --include="$INCLUDE" "$RELEASE" "$PLACE/$RELEASE.tar.part"
    mv "$PLACE/$RELEASE.tar.part" "$PLACE/$RELEASE.tar"
fi

WORK=$(mktemp -d -p "$PLACE")
trap 'as_root rm -rf "$WORK"' EXIT

make_disk() {
    local root=$WORK/root
    mkdir "$root"
    tar --extract --numeric-owner --file "$PLACE/$RELEASE.tar" --directory "$root" --exclude './dev/*' || return 1
    install -D -m 0755 "$REPOSITORY/tests/packages/guest.sh" "$root/root/guest.sh"
    install -D -m 0644 -t "$root/root/packages" "$FIRST" "$SECOND"
    # The runs have no network of the engine's.
    install -D /dev/stdin "$root/etc/docker/daemon.json" <<<'{"iptables": false, "bridge": "none"}'
    install -D /dev/stdin "$root/etc/systemd/system/check.service" <<'END'
[Unit]
After=multi-user.target docker.service
Wants=docker.service

[Service]
Type=oneshot
ExecStart=/bin/sh -c '/root/guest.sh 2>&1 | cat'
ExecStopPost=/usr/bin/systemctl poweroff --no-block
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=default.target
END
    mkdir -p "$root/etc/systemd/system/default.target.wants"
    ln -s ../check.service "$root/etc/systemd/system/default.target.wants/check.service"
    cp "$root"/boot/vmlinuz-* "$WORK/kernel" && cp "$root"/boot/initrd.img-* "$WORK/initrd" &&
        truncate -s 6G "$WORK/disk" && mke2fs -q -t ext4 -d "$root" "$WORK/disk" && rm -rf "$root"
}

boot() {
    timeout "$PATIENCE" qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 2 -m 3072 \
        -kernel "$WORK/kernel" -initrd "$WORK/initrd" -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=false" \
        -drive "file=$WORK/disk,if=virtio,format=raw,cache=unsafe" -nographic -no-reboot -net none </dev/null | sed --unbuffered 's/\r$//' | tee "$PLACE/$RELEASE.log"
}

step "The disk of the virtual machine" make_disk
note "Debian $RELEASE, as it comes:"
boot | grep --line-buffered -E '^(ok|FAILED|====|        )|passed, ' >&2 || true
grep -qE '^[1-9][0-9]* passed, 0 failed$' "$PLACE/$RELEASE.log" ||
    die "The package failed on Debian $RELEASE; $PLACE/$RELEASE.log has all that the machine said."
