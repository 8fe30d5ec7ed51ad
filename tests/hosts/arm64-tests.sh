# shellcheck shell=bash
# Unit tests that qemu-user cannot run, by crate: words of their names. It knows neither filters of system calls nor openat2, preadv2,
# mount_setattr, BPF and users' namespaces, and it shows programs the files of this host, such as its busybox. The virtual machine runs them.

# shellcheck disable=SC2034 # for arm64.sh
declare -A NEEDS_KERNEL=(
    [busybox]="tests::"
    [containers]="mounts:: image::tests::the_tar"
    [doctor]="egress:: image::"
    [file-ops]="fast_read_equals"
    [guest]="children:: exec::terminal v3_clone3"
    [host-worker]="setup::"
    [jail]="a_killed_process walk::"
    [steering]="tests::"
)

# Tests of whole programs, which the virtual machine runs: of which programs, and words of their names if not all. Most such tests measure time,
# which emulation lengthens.
# shellcheck disable=SC2034
declare -A WHOLE=(
    [egress-worker/confined]=''
    [egress-worker/egress]="dns:: handed:: process:: tcp:: --skip a_thousand_idle"
)
