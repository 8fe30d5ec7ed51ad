//! Paths of `/proc`, `/sys` and `/dev` that a run has no business with.

/// Covered by an empty read-only file or directory: what tells about the host, its hardware and its other tenants, and
/// `/dev/mqueue`: its queues count for a uid across all containers. A path that the kernel does not have is skipped.
///
/// The engine's own list is in here: a list of one's own replaces it.
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

/// Readable, never writable, whoever asks.
pub(super) const READ_ONLY: &[&str] = &["/proc/sys", "/proc/tty"];

/// The same for a root of a user namespace, whose the runtime makes them. `/dev` would be one more writable place. Cgroups the engine
/// mounts so that they can be written there, and on cgroup v2 runc gives the container's own to that root (with systemd): a command could
/// leave the cgroup by which it is ended.
pub(super) const READ_ONLY_OF_ROOT: &[&str] = &["/dev", "/sys/fs/cgroup"];
