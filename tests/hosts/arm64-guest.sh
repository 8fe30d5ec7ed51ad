#!/bin/bash
# The first process of arm64.sh's virtual machine: runs the tests of /list, prints a line for each program, and switches the machine off.
# It begins in the first file system of the kernel, which has no pivot_root, and goes on in another.
set -uo pipefail
export PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8

if [[ ! -e /in-memory ]]; then
    mkdir -p /new
    mount -t tmpfs -o size=80%,mode=0755 tmpfs /new
    for top in /*; do
        case $top in /new | /proc | /sys | /dev) ;; *) busybox cp -a "$top" /new/ ;; esac
    done
    : >/new/in-memory
    exec busybox switch_root /new /check
fi

mkdir -p /proc /sys /dev /tmp /run /root /new
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
# Directories of tests are on a file system of a disk, as those of runs are.
for module in loop ext4 overlay; do busybox modprobe "$module"; done
truncate -s 1G /disk && mkfs.ext4 -q /disk && mount -o loop /disk /tmp && chmod 1777 /tmp
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
ulimit -n 65536
# The tests share mounts, as the engine's host does.
mount --make-rshared /

# one CRATE NAME PROGRAM FILTERS: a test program, and what came of it.
one() {
    local result=works words check
    check="tests of $1 that need its kernel"
    [[ $2 == unit ]] || check="tests of $1: $2"
    mkdir -p "/tests/crates/$1"
    # shellcheck disable=SC2086 # words of names
    (cd "/tests/crates/$1" && timeout 900 "$3" --test-threads 1 $4) 2>&1 </dev/null | tee /tmp/said || result=fails
    words=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1 tests/p' /tmp/said)
    [[ $result == works ]] || words="$words; failed: $(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' /tmp/said | tr '\n' ' ')"
    [[ -n $words && $words != "0 tests" ]] || result=fails
    printf '\n#check\t%s, virtual machine\t%s\t%s\n' "$check" "$result" "$words"
}

# Of the host without an engine: nothing else may be missing.
examine() {
    local missing limited result=works
    coffer doctor --endpoint unix:/run/none.sock --engine /run/none.sock >/tmp/doctor 2>&1
    cat /tmp/doctor
    missing=$(found MISSING) limited=$(found limited)
    [[ $missing == engine && $(grep -c '^ok ' /tmp/doctor) -gt 5 ]] || result=fails
    grep -qE '^ok +processor +aarch64$' /tmp/doctor || result=fails
    printf '\n#check\tcoffer doctor, virtual machine\t%s\tok: %s; limited: %s; missing: %s\n' "$result" "$(found ok)" "$limited" "$missing"
}

# found VERDICT: the topics, with commas between them.
found() { sed -n "s/^$1  *\([a-zA-Z0-9][a-zA-Z0-9 ]*[a-zA-Z0-9]\)  .*/\1/p" /tmp/doctor | paste -sd , - | sed 's/,/, /g'; }

printf '\n#kernel\t%s\n' "$(uname -r)"
examine
while IFS=$'\t' read -r crate name program filters; do one "$crate" "$name" "$program" "$filters"; done </list
printf '\n#end\n'
sync
busybox poweroff -f
