//! Paths of `/proc`, `/sys` and `/dev` that are hidden from runs.

/// Paths covered by an empty read-only file or directory.
///
/// They describe the host, its hardware and its other tenants. `/dev/mqueue` is covered because the kernel counts its queues per uid across
/// all containers. A path that the kernel does not have is skipped. The engine's own list is included, because a list in the request
/// replaces it.
pub(super) const MASKED: &[&str] = &[
    "/dev/mqueue",
    "/proc/acpi",
    "/proc/asound",
    "/proc/buddyinfo",
    "/proc/bus",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/driver",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/locks",
    "/proc/mdstat",
    "/proc/misc",
    "/proc/modules",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/schedstat",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/swaps",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/proc/vmstat",
    "/proc/zoneinfo",
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices/virtual",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/fs/ext4",
    "/sys/fs/fuse",
    "/sys/fs/pstore",
    "/sys/fs/xfs",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
];

/// Paths that can be read and never written.
///
/// An engine that maps users mounts cgroups writable, and on cgroup v2 runc gives the container's own cgroup to the user of its first process.
/// A command could then leave the cgroup by which it is ended.
pub(super) const READ_ONLY: &[&str] = &["/proc/sys", "/proc/tty", "/sys/fs/cgroup"];

/// Further read-only paths for a root of a user namespace.
///
/// The runtime makes that root the owner of `/dev`, which would be one more writable directory.
pub(super) const READ_ONLY_OF_ROOT: &[&str] = &["/dev"];
