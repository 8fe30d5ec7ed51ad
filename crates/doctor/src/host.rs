//! Checks the host itself: privileges, cgroups, link protection. Each judgement is a function of the values that were read.

use crate::commands::Host;
use crate::egress;
use crate::finding::Finding;
use crate::kernel::{self, read};

/// Capabilities that the daemon needs, by their bit in `CapEff`.
const NEEDED_CAPABILITIES: [(u32, &str); 9] = [
    (0, "CHOWN"),
    (1, "DAC_OVERRIDE"),
    (3, "FOWNER"),
    (5, "KILL"),
    (6, "SETGID"),
    (7, "SETUID"),
    (8, "SETPCAP"),
    (19, "SYS_PTRACE"),
    (21, "SYS_ADMIN"),
];

/// Capability that a user namespace takes whose map has root of the host, by its bit (user_namespaces(7)).
const SETFCAP: u32 = 31;

/// Architectures of `images/seccomp.json`.
const PROCESSORS: [&str; 2] = ["x86_64", "aarch64"];
const LINK_PROTECTION: [&str; 4] =
    ["protected_symlinks", "protected_hardlinks", "protected_fifos", "protected_regular"];

pub(super) fn examine(host: &Host) -> Vec<Finding> {
    let links: Vec<_> =
        LINK_PROTECTION.iter().map(|name| (*name, read(&format!("/proc/sys/fs/{name}")))).collect();
    let mut findings = vec![
        processor(std::env::consts::ARCH),
        privileges(rustix::process::geteuid().as_raw(), read("/proc/self/status").as_deref()),
        cgroups(read("/proc/self/mounts").as_deref()),
    ];
    findings.extend(kernel::examine(host));
    findings.push(egress::examine());
    findings.push(link_protection(&links, host));
    findings.push(memory_of_others(read("/proc/sys/kernel/yama/ptrace_scope").as_deref(), host));
    findings
}

/// Checks that the lists of system calls, of containers and of the host lane, are for this architecture.
fn processor(architecture: &str) -> Finding {
    const TOPIC: &str = "processor";
    if PROCESSORS.contains(&architecture) {
        return Finding::good(TOPIC, architecture.to_owned());
    }
    Finding::missing(
        TOPIC,
        architecture.to_owned(),
        format!(
            "the filters of system calls are for {}: neither containers nor the host lane could be hardened",
            PROCESSORS.join(" and ")
        ),
    )
}

/// Checks that processes of one user cannot read each other's memory.
///
/// The processes of a run have one user. Yama (ptrace(2), `ptrace_scope`) restricts each to the memory of its children.
fn memory_of_others(scope: Option<&str>, host: &Host) -> Finding {
    const TOPIC: &str = "memory of other processes";
    if scope.and_then(|scope| scope.trim().parse::<u8>().ok()).is_some_and(|scope| scope > 0) {
        return Finding::good(TOPIC, "closed to processes of the same user (kernel.yama.ptrace_scope)");
    }
    Finding::limited(
        TOPIC,
        "open to each process of the same user (/proc/PID/mem)",
        "processes of a run can change each other and, in a session, forge the end and the exit code of a \
         command; to prevent it set `kernel.yama.ptrace_scope=1` in /etc/sysctl.d (the kernel needs Yama)",
    )
    // Without the file the kernel has no Yama, and nothing can be set.
    .with_remedy(scope.and_then(|_| host.set(&["kernel.yama.ptrace_scope=1".to_owned()])))
}

fn privileges(uid: u32, status: Option<&str>) -> Finding {
    const TOPIC: &str = "privileges";
    if uid != 0 {
        return Finding::limited(
            TOPIC,
            format!("this is uid {uid}, not root"),
            "cofferd itself must be started as root: it makes mounts and acts as the workspaces' owners",
        );
    }
    let effective = status
        .and_then(|status| status.lines().find_map(|line| line.strip_prefix("CapEff:")))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let Some(effective) = effective else {
        return Finding::limited(TOPIC, "root; its capabilities cannot be read", "is /proc mounted?");
    };
    let lacking: Vec<_> = NEEDED_CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective & (1 << bit) == 0)
        .map(|(_, name)| format!("CAP_{name}"))
        .collect();
    if lacking.is_empty() && effective & (1 << SETFCAP) == 0 {
        return Finding::limited(
            TOPIC,
            "root without CAP_SETFCAP",
            "the kernel refuses maps of owners in which root is: overlays of another user's files, and runs of profiles \
             with `root: writable-layer`, are refused",
        );
    }
    if lacking.is_empty() {
        return Finding::good(TOPIC, "root, with the capabilities that cofferd needs");
    }
    Finding::missing(
        TOPIC,
        format!("root without {}", lacking.join(", ")),
        "cofferd cannot make mounts or act as the workspaces' owners; for a container see the book, \"Compose\"",
    )
}

fn cgroups(mounts: Option<&str>) -> Finding {
    const TOPIC: &str = "cgroups";
    let (mut unified, mut hybrid, mut legacy) = (false, false, false);
    for line in mounts.unwrap_or_default().lines() {
        let mut fields = line.split(' ').skip(1);
        match (fields.next(), fields.next()) {
            (Some("/sys/fs/cgroup"), Some("cgroup2")) => unified = true,
            (Some(_), Some("cgroup2")) => hybrid = true,
            (Some(_), Some("cgroup")) => legacy = true,
            _ => {}
        }
    }
    match (unified, legacy, hybrid) {
        (true, ..) => Finding::good(TOPIC, "version 2"),
        (false, true, true) => Finding::good(TOPIC, "version 1, with version 2 beside it (hybrid)"),
        (false, true, false) => Finding::limited(
            TOPIC,
            "version 1",
            "a command's processes are ended through the freezer, which is slower than cgroup.kill",
        ),
        (false, false, _) => Finding::missing(
            TOPIC,
            "no control groups are mounted beneath /sys/fs/cgroup",
            "nothing could limit a run's memory, CPU and processes",
        ),
    }
}

fn link_protection(values: &[(&str, Option<String>)], host: &Host) -> Finding {
    const TOPIC: &str = "link protection";
    let set = |value: &Option<String>| {
        value
            .as_deref()
            .map(str::trim)
            .and_then(|value| value.parse::<u32>().ok())
            .is_some_and(|value| value > 0)
    };
    let off: Vec<_> =
        values.iter().filter(|(_, value)| !set(value)).map(|(name, _)| format!("fs.{name}")).collect();
    if off.is_empty() {
        return Finding::good(TOPIC, "symlinks, hard links, FIFOs and files in sticky directories");
    }
    let parameters: Vec<_> = off.iter().map(|name| format!("{name}=1")).collect();
    Finding::limited(
        TOPIC,
        format!("off: {}", off.join(", ")),
        "Cofferdam does not rely on it, but other programs of this host do when they open an agent's files",
    )
    .with_remedy(host.set(&parameters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn memory_of_other_processes_is_closed_by_yama_alone() {
        for (scope, verdict) in [
            (Some("1\n"), Verdict::Good),
            (Some("0\n"), Verdict::Limited),
            (Some("x"), Verdict::Limited),
            (None, Verdict::Limited),
        ] {
            let finding = memory_of_others(scope, &Host::default());
            assert_eq!(finding.verdict, verdict, "{scope:?}");
            let is_offered = scope.is_some() && verdict != Verdict::Good;
            assert_eq!(finding.remedy.is_some(), is_offered, "{scope:?}");
        }
    }

    #[test]
    fn a_processor_without_filters_is_missing() {
        for architecture in PROCESSORS {
            assert_eq!(processor(architecture), Finding::good("processor", architecture));
        }
        let other = processor("riscv64");
        assert_eq!((other.verdict, other.found.as_str()), (Verdict::Missing, "riscv64"));
        assert!(other.follows.unwrap().contains("for x86_64 and aarch64:"));
    }

    #[test]
    fn root_is_not_enough() {
        let all = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        let container = "CapEff:\t00000000a80425fb\n";
        assert_eq!(privileges(0, Some(all)).verdict, Verdict::Good);
        assert_eq!(privileges(0, Some(container)).verdict, Verdict::Missing);
        assert!(privileges(0, Some(container)).found.contains("CAP_SYS_ADMIN"));
        let unmapped = privileges(0, Some("CapEff:\t00000000002831eb\n"));
        assert_eq!((unmapped.verdict, &*unmapped.found), (Verdict::Limited, "root without CAP_SETFCAP"));
        assert_eq!(privileges(0, Some("CapEff:\t00000000802831eb\n")).verdict, Verdict::Good);
        assert_eq!(privileges(0, Some("CapEff: nonsense")).verdict, Verdict::Limited);
        assert_eq!(privileges(0, None).verdict, Verdict::Limited);
        assert_eq!(privileges(1000, Some(all)).verdict, Verdict::Limited);
    }

    #[test]
    fn every_arrangement_of_cgroups() {
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let v1 = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";
        let hybrid = format!("{v1}cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n");
        assert_eq!(cgroups(Some(v2)), Finding::good("cgroups", "version 2"));
        assert!(cgroups(Some(&hybrid)).found.contains("hybrid"));
        assert_eq!(cgroups(Some(v1)).verdict, Verdict::Limited);
        assert_eq!(cgroups(Some("proc /proc proc rw 0 0\n")).verdict, Verdict::Missing);
        assert_eq!(cgroups(None).verdict, Verdict::Missing);
    }

    #[test]
    fn names_the_protections_that_are_off() {
        let values = |symlinks: Option<&str>| {
            [("protected_symlinks", symlinks.map(str::to_owned)), ("protected_hardlinks", Some("1\n".into()))]
        };
        assert_eq!(link_protection(&values(Some("1\n")), &Host::default()).verdict, Verdict::Good);
        let off = link_protection(&values(Some("0\n")), &Host::default());
        assert_eq!((off.verdict, off.found.as_str()), (Verdict::Limited, "off: fs.protected_symlinks"));
        assert!(off.follows.unwrap().ends_with("run `sudo sysctl -w fs.protected_symlinks=1`"));
        assert_eq!(link_protection(&values(None), &Host::default()).verdict, Verdict::Limited);
    }

    #[test]
    fn looking_at_a_real_host_gives_every_topic_once() {
        let mut topics: Vec<_> = examine(&Host::detect()).into_iter().map(|finding| finding.topic).collect();
        let number = topics.len();
        topics.sort_unstable();
        topics.dedup();
        assert_eq!((topics.len(), number), (11, 11));
    }
}
