//! Checks the kernel. A feature is tried where that has no effect, not guessed from a version.

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::commands::Host;
use crate::finding::Finding;

/// The first kernel with `mount_setattr` and idmapped mounts.
const IDMAPPED: (u32, u32) = (5, 12);
const ABIS: [(ABI, u32); 6] =
    [(ABI::V6, 6), (ABI::V5, 5), (ABI::V4, 4), (ABI::V3, 3), (ABI::V2, 2), (ABI::V1, 1)];

pub(super) fn examine(host: &Host) -> Vec<Finding> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    vec![
        idmapped_mounts(&release),
        openat2(try_openat2()),
        landlock(newest_abi()),
        seccomp(read("/proc/sys/kernel/seccomp/actions_avail").as_deref()),
        user_namespaces(read("/proc/sys/user/max_user_namespaces").as_deref(), host),
    ]
}

/// Returns the text of a kernel file, as in `/proc`.
pub(super) fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn idmapped_mounts(release: &str) -> Finding {
    const TOPIC: &str = "idmapped mounts";
    match steering::kernel_version(release) {
        Some(version) if version >= IDMAPPED => Finding::good(TOPIC, format!("kernel {release}")),
        Some(_) => Finding::missing(
            TOPIC,
            format!("kernel {release} is older than 5.12"),
            "workspaces cannot be mounted into a run as cofferd does it (mount_setattr)",
        ),
        None => Finding::limited(
            TOPIC,
            format!("the version of kernel {release} cannot be parsed"),
            "start cofferd: it reports what is missing",
        ),
    }
}

/// Opens the root directory beneath itself.
fn try_openat2() -> Result<(), Errno> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::openat2(&root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH)?;
    Ok(())
}

fn openat2(tried: Result<(), Errno>) -> Finding {
    const TOPIC: &str = "openat2";
    match tried {
        Ok(()) => Finding::good(TOPIC, "works"),
        Err(error) => Finding::missing(
            TOPIC,
            format!("refused: {error}"),
            "paths could not be confined to the workspace; a kernel of 5.6 or later is needed, and a container \
             around cofferd must not filter the call",
        ),
    }
}

/// Returns the newest Landlock version that the kernel supports. Rule sets are made and dropped, so nothing is
/// restricted.
fn newest_abi() -> Option<u32> {
    let takes = |abi| {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))
            .and_then(Ruleset::create)
            .is_ok()
    };
    ABIS.into_iter().find(|(abi, _)| takes(*abi)).map(|(_, number)| number)
}

fn landlock(abi: Option<u32>) -> Finding {
    const TOPIC: &str = "Landlock";
    match abi {
        Some(abi) => Finding::good(TOPIC, format!("ABI {abi} or later")),
        None => Finding::limited(
            TOPIC,
            "not in this kernel, or switched off",
            "the host lane has one layer of protection less; its mount namespace, uid and seccomp filter remain",
        ),
    }
}

fn seccomp(actions: Option<&str>) -> Finding {
    const TOPIC: &str = "seccomp";
    let has = |action| actions.is_some_and(|actions| actions.split_whitespace().any(|a| a == action));
    if has("errno") && has("kill_process") {
        return Finding::good(TOPIC, "filters can be installed");
    }
    Finding::missing(
        TOPIC,
        "this kernel has no seccomp filters",
        "neither containers nor the host lane could be hardened",
    )
}

fn user_namespaces(max: Option<&str>, host: &Host) -> Finding {
    const TOPIC: &str = "user namespaces";
    match max.map(str::trim).and_then(|max| max.parse::<u64>().ok()) {
        Some(max) if max > 0 => Finding::good(TOPIC, format!("up to {max}")),
        _ => Finding::limited(
            TOPIC,
            "none can be made",
            "mounts cannot be idmapped: containers run as the workspace owner's uid instead \
             (sysctl user.max_user_namespaces)",
        )
        .with_remedy(max.and_then(|_| host.set(&["user.max_user_namespaces=15000".to_owned()]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn kernels_old_and_new() {
        assert_eq!(idmapped_mounts("6.18.0-amd64").verdict, Verdict::Good);
        assert_eq!(idmapped_mounts("5.12.0").verdict, Verdict::Good);
        assert_eq!(idmapped_mounts("5.10.0-33-amd64").verdict, Verdict::Missing);
        assert_eq!(idmapped_mounts("4.19").verdict, Verdict::Missing);
        assert_eq!(idmapped_mounts("unknown").verdict, Verdict::Limited);
    }

    #[test]
    fn each_feature_has_its_consequence() {
        assert_eq!(openat2(Ok(())).verdict, Verdict::Good);
        assert_eq!(openat2(Err(Errno::NOSYS)).verdict, Verdict::Missing);
        assert_eq!(landlock(Some(3)).found, "ABI 3 or later");
        assert_eq!(landlock(None).verdict, Verdict::Limited);
        assert_eq!(
            seccomp(Some("kill_process kill_thread trap errno user_notif trace log allow\n")).verdict,
            Verdict::Good
        );
        assert_eq!(seccomp(Some("allow")).verdict, Verdict::Missing);
        assert_eq!(seccomp(None).verdict, Verdict::Missing);
        assert_eq!(user_namespaces(Some("96313\n"), &Host::default()).verdict, Verdict::Good);
        let none = user_namespaces(Some("0\n"), &Host::default());
        assert!(none.verdict == Verdict::Limited && none.remedy.is_some(), "{none:?}");
        let unknown = user_namespaces(None, &Host::default());
        assert!(unknown.verdict == Verdict::Limited && unknown.remedy.is_none(), "{unknown:?}");
    }
}
