# shellcheck shell=bash
# The virtual machine of arm64.sh: a kernel and programs of Debian's arm64 packages, only unpacked, and the tests, all in memory. Needs
# say.sh, packages.sh and the variables of arm64.sh.

MACHINES=${COFFERDAM_MACHINES:-$REPOSITORY/target/machines}
MACHINE_PACKAGES=linux-image-arm64,busybox-static,base-files,base-passwd,bash,coreutils,dash,e2fsprogs,findutils,git,grep,iproute2,libgcc-s1,mount,procps,python3-minimal,sed,util-linux
# Seconds for everything.
MACHINE_PATIENCE=3600

# Nothing of another architecture is executed: the packages are unpacked, and their scripts do not run.
unpack_machine() {
    local release
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    # shellcheck disable=SC2016 # the argument is the hook's
    as_root mmdebstrap --mode=root --format=tar --variant=extract --architectures=arm64 --include="$MACHINE_PACKAGES" \
        --setup-hook='for d in bin sbin lib; do mkdir -p "$1/usr/$d" && ln -s "usr/$d" "$1/$d"; done' \
        "$release" "$MACHINES/arm64.tar.part" && mv "$MACHINES/arm64.tar.part" "$MACHINES/arm64.tar"
}

# Leaves the modules for a file system of the tests, and finds what each needs.
few_modules() {
    local wanted='-name ext4.ko* -o -name jbd2.ko* -o -name mbcache.ko* -o -name crc16.ko* -o -name crc32c_generic.ko* -o -name loop.ko* -o -name overlay.ko*'
    # shellcheck disable=SC2086 # an expression
    as_root find "$1/usr/lib/modules" -name '*.ko*' ! '(' $wanted ')' -delete && as_root depmod --basedir "$1" "$(ls "$1/usr/lib/modules")"
}

# place PROGRAM PATH: a program without its symbols.
place() {
    as_root install -d "$SCRATCH/root${2%/*}" && as_root aarch64-linux-gnu-strip -o "$SCRATCH/root$2" "$1"
}

# The tests find programs by the paths of the build. There are the static ones, which containers and the host lane have.
fill_machine() {
    local root=$SCRATCH/root crate name program filters
    as_root mkdir "$root" && as_root tar --extract --numeric-owner --file "$MACHINES/arm64.tar" --directory "$root" --exclude './dev/*' \
        --exclude './usr/share/doc' --exclude './usr/share/locale' --exclude './usr/share/man' || return 1
    few_modules "$root" || return 1
    as_root mv "$root"/boot/vmlinuz-* "$SCRATCH/vmlinuz" && as_root rm -rf "$root"/boot || return 1
    as_root install -m 0644 "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
    as_root install -m 0644 "$root/usr/share/base-passwd/group.master" "$root/etc/group"
    as_root ln -sf dash "$root/usr/bin/sh"
    as_root install -m 0755 "$REPOSITORY/tests/hosts/arm64-guest.sh" "$root/check"
    as_root ln -sf check "$root/init"
    for program in coffer-guest coffer-host-worker coffer-egress; do place "$STATIC/$program" "$PROGRAMS/$program" || return 1; done
    for program in cofferd coffer; do place "$PROGRAMS/$program" "/usr/bin/$program" || return 1; done
    while read -r crate name program; do
        if [[ $name == unit ]]; then
            filters=${NEEDS_KERNEL[$crate]-}
            [[ -n $filters ]] || continue
        else
            filters=${WHOLE[$crate/$name]-}
        fi
        place "$program" "$program" || return 1
        printf '%s\t%s\t%s\t%s\n' "$crate" "$name" "$program" "$filters"
    done <"$SCRATCH/tests" >"$SCRATCH/list"
    as_root install -m 0644 "$SCRATCH/list" "$root/list"
    (cd "$root" && as_root find . -print0 | as_root cpio --quiet --null --create --format=newc) >"$SCRATCH/initrd" || return 1
    as_root rm -rf "$root"
}

make_machine() {
    mkdir -p "$MACHINES"
    [[ -e $MACHINES/arm64.tar ]] || step "Debian's packages for arm64 (once)" unpack_machine || return 1
    step "The virtual machine" fill_machine
}

boot() {
    timeout "$MACHINE_PATIENCE" qemu-system-aarch64 -machine virt,accel=tcg -cpu max,pauth-impdef=on -smp 2 -m 3072 \
        -kernel "$SCRATCH/vmlinuz" -initrd "$SCRATCH/initrd" -append "console=ttyAMA0 quiet panic=-1 cgroup_no_v1=all" \
        -display none -serial "file:$MACHINES/arm64.log" -no-reboot -net none </dev/null
}

# The guest prints a line for each check after a mark, and a last one when it has made all.
boot_machine() {
    step "Tests in the virtual machine (takes minutes)" boot || true
    sed -i 's/\r*$//' "$MACHINES/arm64.log"
    sed -n 's/^#check\t//p' "$MACHINES/arm64.log" >"$SCRATCH/from-machine"
    sed -n 's/^#kernel\t//p' "$MACHINES/arm64.log" >"$SCRATCH/kernel"
    grep -qx '#end' "$MACHINES/arm64.log"
}
