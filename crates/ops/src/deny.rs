//! Programs that no rule can allow: the deny list, and how a program's name is compared with it. A profile can turn the
//! list off by name ([`DenyList::Off`]), for orchestrators that leave the judgement to themselves.
//!
//! The gateway asks before a call is admitted; the container lane asks again once it knows which file a name
//! resolves to, so that a link named `ls` that leads to `rm` is refused as `rm`.
//!
//! The list is about intent, not confinement: whoever can run a program of its own can do the same by other means,
//! and the container is what holds it. On it is what ends or alters the machine, what changes who one is, what
//! leaves the mounts, and what removes files past the trash.

use serde::Serialize;

/// Lower-case base names, sorted. Beside these, every name that begins with `mkfs`.
pub const NAMES: [&str; 84] = [
    "addgroup",
    "adduser",
    "blkdiscard",
    "capsh",
    "cfdisk",
    "chgpasswd",
    "chpasswd",
    "chroot",
    "chsh",
    "cryptsetup",
    "dc3dd",
    "dcfldd",
    "dd",
    "debugfs",
    "delgroup",
    "deluser",
    "dmsetup",
    "doas",
    "fdisk",
    "fsfreeze",
    "fstrim",
    "gdisk",
    "gpasswd",
    "groupadd",
    "groupdel",
    "groupmod",
    "halt",
    "hwclock",
    "init",
    "insmod",
    "kexec",
    "losetup",
    "lvm",
    "mdadm",
    "mkdosfs",
    "mke2fs",
    "mkntfs",
    "mkswap",
    "modprobe",
    "mount",
    "newgidmap",
    "newgrp",
    "newuidmap",
    "nsenter",
    "nuke",
    "parted",
    "passwd",
    "pivot_root",
    "pkexec",
    "poweroff",
    "reboot",
    "rm",
    "rmmod",
    "run-init",
    "run0",
    "runuser",
    "setcap",
    "sfdisk",
    "sgdisk",
    "shred",
    "shutdown",
    "srm",
    "su",
    "su-rs",
    "sudo",
    "sudo-rs",
    "sudo.ws",
    "sudoedit",
    "sudoedit-rs",
    "swapoff",
    "swapon",
    "switch_root",
    "telinit",
    "umount",
    "unlink",
    "unshare",
    "useradd",
    "userdel",
    "usermod",
    "vipw",
    "visudo",
    "visudo-rs",
    "visudo.ws",
    "wipefs",
];

/// Of these, the ones that several projects make, and what they put before the names: `grm`, `gnurm`, `uu-rm`.
const REMADE: [&str; 5] = ["chroot", "dd", "rm", "shred", "unlink"];
const MAKERS: [&str; 5] = ["g", "gnu", "uu-", "uu_", "uutils-"];

/// The last component of a program's name or path, in lower case, as a file system without case would see it.
pub fn base_name(program: &str) -> String {
    let path = program.trim_end_matches('/');
    folded(path.rsplit('/').next().unwrap_or(path))
}

/// A name without its case.
fn folded(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    // By way of upper case, so that `ſ` becomes an `s`.
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Whether the program with this name or path is on the deny list, whatever its case.
pub fn is_denied(program: &str) -> bool {
    let name = base_name(program);
    let remade = |maker: &str| name.strip_prefix(maker).is_some_and(|name| REMADE.contains(&name));
    name.starts_with("mkfs")
        || NAMES.binary_search(&name.as_str()).is_ok()
        || MAKERS.iter().any(|maker| remade(maker))
}

/// Whether this is a binary that is many programs, and takes the name of the one to be from its own or from its first
/// argument. Some know themselves by the beginning of their name.
pub fn is_multi_call(program: &str) -> bool {
    let name = base_name(program);
    ["busybox", "toybox", "coreutils", "uutils"].iter().any(|known| name.starts_with(known))
}

/// Whether a program's path leads through a link of the kernel's to a file of which it tells nothing, most often a shell or
/// a multi-call binary: `/proc/self/exe`.
pub fn is_magic_link(program: &str) -> bool {
    let mut names = program.split('/').filter(|name| !matches!(*name, "" | "."));
    program.starts_with('/')
        && matches!((names.next(), names.next()), (Some("proc"), _) | (Some("dev"), Some("fd")))
}

/// Whether the built-in list applies. The profile decides, and its permit carries the decision to the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DenyList {
    /// No command on the list runs.
    #[default]
    On,
    /// The container is the only boundary.
    Off,
}

impl DenyList {
    /// Whether this is the strict value.
    pub fn is_on(&self) -> bool {
        *self == Self::On
    }

    /// Whether the program is on the list, if that applies, or among a profile's `extra` names. An extra name that ends
    /// in `*` matches every name that begins like it.
    pub fn denies<S: AsRef<str>>(self, program: &str, extra: &[S]) -> bool {
        let name = base_name(program);
        let among_extra = || {
            extra.iter().any(|pattern| {
                let pattern = folded(pattern.as_ref());
                pattern.strip_suffix('*').map_or(name == pattern, |prefix| name.starts_with(prefix))
            })
        };
        self.is_on() && is_denied(program) || among_extra()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_base_name_without_case() {
        for denied in [
            "rm",
            "RM",
            "/bin/rm",
            "/usr/bin/Rm",
            "./rm",
            "a/../rm",
            "rm/",
            "sudo",
            "mkfs",
            "mkfs.ext4",
            "/sbin/MKFS.XFS",
            "\u{17f}udo",
            "mo\u{17f}unt/../\u{17f}u",
            "m\u{212a}fs.ext4",
            "grm",
            "/usr/bin/gnurm",
            "uu-rm",
            "uutils-dd",
            "sudo-rs",
        ] {
            assert!(is_denied(denied), "{denied}");
        }
        for permitted in
            ["", "/", "cat", "rmdir", "farm", "rm.txt", "format", "/rm/cat", "git-rm", "gls", "\u{17f}cp"]
        {
            assert!(!is_denied(permitted), "{permitted}");
        }
    }

    #[test]
    fn every_entry_is_lower_case_sorted_and_once() {
        assert!(NAMES.is_sorted_by(|one, next| one < next));
        assert!(NAMES.iter().all(|name| base_name(name) == *name));
    }

    #[test]
    fn binaries_that_are_many_are_known() {
        for many in ["busybox", "/bin/BusyBox", "busybox-1.36", "toybox", "/x/coreutils"] {
            assert!(is_multi_call(many), "{many}");
        }
        for one in ["box", "ls", "coffer-guest", ""] {
            assert!(!is_multi_call(one), "{one}");
        }
        for magic in ["/proc/self/exe", "//proc/./1/root/bin/ls", "/dev/fd/3", "/proc"] {
            assert!(is_magic_link(magic), "{magic}");
        }
        for plain in ["proc/self/exe", "/bin/proc", "/dev/null", "/workspace/proc/a", ""] {
            assert!(!is_magic_link(plain), "{plain}");
        }
    }

    #[test]
    fn a_profile_can_add_names() {
        for list in [DenyList::On, DenyList::Off] {
            assert!(list.denies("/usr/bin/Curl", &["curl"]));
            assert!(list.denies("docker-compose", &["Docker*"]));
            assert!(!list.denies("wget", &["curl", "docker*"]));
        }
        assert!(DenyList::default().denies::<&str>("rm", &[]));
        assert!(!DenyList::Off.denies::<&str>("rm", &[]) && DenyList::Off.denies("rm", &["rm"]));
    }
}
