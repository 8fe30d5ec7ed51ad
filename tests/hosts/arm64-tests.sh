# shellcheck shell=bash
# Unit tests that need a kernel of the architecture, by crate: words of their names. qemu-user knows neither filters of system calls nor
# openat2, mount_setattr, BPF and new namespaces of a fork. The virtual machine runs them.

# shellcheck disable=SC2034 # for arm64.sh
declare -A NEEDS_KERNEL=(
    [containers]="mounts::tests"
    [egress-worker]="jail::tests"
    [guest]="children::"
    [host-worker]="setup::"
    [steering]="tests::"
)
