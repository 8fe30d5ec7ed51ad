//! The reason for which a host cannot steer, and the next step.

use std::io;

use crate::SteeringError;

/// The first kernel with programs of the type `sk_lookup`.
const SK_LOOKUP: (u32, u32) = (5, 9);

/// Answers of a kernel that was built without a part.
const ABSENT: [i32; 5] =
    [libc::ENOSYS, libc::EINVAL, libc::EOPNOTSUPP, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT];

impl SteeringError {
    /// Returns the reason, with the step that an operator can take.
    pub fn remedy(&self) -> String {
        remedy(&self.source, &rustix::system::uname().release().to_string_lossy())
    }
}

/// Returns the reason for an error on a kernel of this release.
fn remedy(error: &io::Error, release: &str) -> String {
    if is_older(release) {
        return format!("kernel {release} is older than 5.9 and has no BPF sk_lookup: install a newer one");
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        return "cofferd may not steer a network namespace: give it CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW and \
                CAP_BPF; in a container, its seccomp profile must not filter bpf(2)"
            .to_owned();
    }
    if error.raw_os_error().is_some_and(|code| ABSENT.contains(&code)) {
        return format!(
            "kernel {release} was built without a part that steering needs: it needs CONFIG_BPF_SYSCALL, \
             CONFIG_NET_NS, CONFIG_INET and CONFIG_IPV6"
        );
    }
    "the host may lack memory, threads or open files: free some, and restart cofferd or try again".to_owned()
}

/// Returns true if a kernel is known to be older than `sk_lookup`.
fn is_older(release: &str) -> bool {
    kernel_version(release).is_some_and(|version| version < SK_LOOKUP)
}

/// Returns the first two numbers of a kernel's release, such as `6.18.0-amd64`. `None` if they cannot be read.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_next_step() {
        let of = |code, release| remedy(&io::Error::from_raw_os_error(code), release);
        for code in [libc::EINVAL, libc::EPERM, libc::ENOSYS] {
            let old = of(code, "5.8.0-1");
            assert_eq!(old, "kernel 5.8.0-1 is older than 5.9 and has no BPF sk_lookup: install a newer one");
        }
        for code in [libc::EPERM, libc::EACCES] {
            let denied = of(code, "6.18.0");
            assert!(denied.contains("CAP_BPF") && denied.contains("seccomp"), "{denied}");
        }
        for code in ABSENT {
            let absent = of(code, "5.10.0");
            assert!(absent.contains("kernel 5.10.0") && absent.contains("CONFIG_BPF_SYSCALL"), "{absent}");
        }
        for code in [libc::EMFILE, libc::ENOMEM, libc::EAGAIN] {
            assert!(of(code, "6.1").ends_with("try again"), "{code}");
        }
    }

    #[test]
    fn only_a_release_that_can_be_read_is_old() {
        assert!(["4.19.0", "5.8", "5.8.18-custom"].into_iter().all(is_older));
        assert!(!["5.9", "5.10.0-1", "6.18.0", "", "unknown", "5"].into_iter().any(is_older));
    }

    #[test]
    fn versions_are_read_from_releases() {
        assert_eq!(kernel_version("6.1+rpt"), Some((6, 1)));
        assert_eq!(kernel_version("5.10.0-33-amd64"), Some((5, 10)));
        assert_eq!(kernel_version("6"), None);
        assert_eq!(kernel_version(""), None);
    }
}
