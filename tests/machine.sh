# shellcheck shell=bash
# Virtual machines of a distribution's own packages, without KVM, and so ten times slower than their host. Needs say.sh, packages.sh and
# these variables: PLACE, a directory that keeps the systems that were made, and WORK, an empty directory for one machine.

UBUNTU_MIRROR=http://archive.ubuntu.com/ubuntu
# Packages that each machine has, beside its kernel and its engine.
MACHINE_PACKAGES=(systemd systemd-sysv udev apparmor iptables procps git kmod ca-certificates busybox-static dbus)

ensure_machine_tools() {
    command -v mmdebstrap >/dev/null || install_packages "The virtual machine" mmdebstrap
    command -v qemu-system-x86_64 >/dev/null || install_packages "The virtual machine" qemu-system-x86
    install -d "$PLACE"
}

# Prints the path of the keys of Ubuntu's archive, which Debian 13 has as a package.
ubuntu_keys() {
    local keys=$PLACE/ubuntu-archive-keyring.gpg
    if [[ ! -e $keys ]]; then
        as_root mmdebstrap --format=directory --variant=extract --include=ubuntu-archive-keyring trixie "$WORK/keys" >&2 &&
            cp "$WORK/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$keys" && as_root rm -rf "$WORK/keys" || return 1
    fi
    printf '%s' "$keys"
}

# make_system RELEASE PACKAGE…: makes the system of a release of Debian or Ubuntu with these packages, unless PLACE has it, and sets SYSTEM.
make_system() {
    local release=$1 packages=("${MACHINE_PACKAGES[@]}" "${@:2}") include options=() sources=()
    if [[ $release == noble ]]; then
        packages+=(linux-image-virtual initramfs-tools)
        options=(--keyring="$(ubuntu_keys)") || return 1
        sources=("deb $UBUNTU_MIRROR $release main universe" "deb $UBUNTU_MIRROR $release-updates main universe")
    else
        packages+=(linux-image-amd64)
        # Lists of sid count for a week, and a mirror may be older. Their signatures are checked.
        [[ $release != sid ]] || options=(--aptopt='Acquire::Check-Valid-Until "false"')
    fi
    include=$(IFS=, && printf '%s' "${packages[*]}")
    SYSTEM=$PLACE/$release-$(printf '%s' "$include" | sha256sum | cut -c 1-12).tar
    [[ ! -e $SYSTEM ]] || return 0
    as_root mmdebstrap --format=tar --variant=minbase --include="$include" "${options[@]}" "$release" "$SYSTEM.part" "${sources[@]}" &&
        mv "$SYSTEM.part" "$SYSTEM"
}

# Unpacks the files of SYSTEM into WORK/root.
unpack_system() {
    mkdir "$WORK/root" && tar --extract --numeric-owner --file "$SYSTEM" --directory "$WORK/root" --exclude './dev/*'
}

# make_disk PROGRAM UNIT: makes the disk of WORK/root. When UNIT has started, the machine runs PROGRAM as root and powers off.
make_disk() {
    local root=$WORK/root
    install -D /dev/stdin "$root/etc/systemd/system/check.service" <<END
[Unit]
After=multi-user.target $2
Wants=$2

[Service]
Type=oneshot
ExecStart=/bin/sh -c '$1 2>&1 | cat'
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

# boot SECONDS LOG [FILE]: runs the machine for at most so long, and prints what it says, which LOG gets as well. FILE gets what it writes to
# its second serial port.
boot() {
    timeout "$1" qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 2 -m 3072 \
        -kernel "$WORK/kernel" -initrd "$WORK/initrd" -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=false" \
        -drive "file=$WORK/disk,if=virtio,format=raw,cache=unsafe" -display none -serial stdio -serial "${3:+file:}${3:-null}" \
        -no-reboot -net none </dev/null | sed --unbuffered 's/\r$//' | tee "$2"
}
