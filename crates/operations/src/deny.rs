//! Programs that no rule can allow: the deny list, and how a program's name is compared with it. A profile can turn the
//! list off by name ([`DenyList::Off`]), for orchestrators that leave the judgement to themselves.
//!
//! The gateway checks before a call is admitted. The container lane checks again once it knows which file a name resolves to, so a link
//! named `ls` that leads to `rm` is refused as `rm`.
//!
//! The list expresses intent and does not confine anything. A caller that can run any other program can do the same by other means, and the
//! container confines it. The list names programs that end or alter the machine, change the user, leave the mounts, or remove files without
//! the trash.

use serde::Serialize;

/// Denied programs: lower-case base names, sorted. Every name that begins with `mkfs` is denied, too.
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

/// Programs in [`NAMES`] that several projects implement under a prefix: `grm`, `gnurm`, `uu-rm`.
const REMADE: [&str; 5] = ["chroot", "dd", "rm", "shred", "unlink"];
const MAKERS: [&str; 5] = ["g", "gnu", "uu-", "uu_", "uutils-"];

/// Returns the last component of a program's name or path, in lower case, as a case-insensitive file system would see it.
pub fn base_name(program: &str) -> String {
    let path = program.trim_end_matches('/');
    folded(path.rsplit('/').next().unwrap_or(path))
}

/// Returns a name with its case folded.
fn folded(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    // Through upper case, so that `ſ` becomes `s`.
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Returns true if the program with this name or path is on the deny list, in any case.
pub fn is_denied(program: &str) -> bool {
    let name = base_name(program);
    let remade = |maker: &str| name.strip_prefix(maker).is_some_and(|name| REMADE.contains(&name));
    name.starts_with("mkfs")
        || NAMES.binary_search(&name.as_str()).is_ok()
        || MAKERS.iter().any(|maker| remade(maker))
}

/// Returns true if this binary contains many programs and picks one by its file name or by its first argument.
///
/// Some such binaries look only at the beginning of their name.
pub fn is_multi_call(program: &str) -> bool {
    let name = base_name(program);
    ["busybox", "toybox", "coreutils", "uutils"].iter().any(|known| name.starts_with(known))
}

/// Returns true if a program's path leads through one of the kernel's magic links, such as `/proc/self/exe`.
///
/// The path does not show which file such a link opens. Most often it is a shell or a multi-call binary.
pub fn is_magic_link(program: &str) -> bool {
    let mut names = program.split('/').filter(|name| !matches!(*name, "" | "."));
    program.starts_with('/')
        && matches!((names.next(), names.next()), (Some("proc"), _) | (Some("dev"), Some("fd")))
}

/// State of the built-in list. The profile sets it, and the permit carries it to the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DenyList {
    /// Refuses every command on the list.
    #[default]
    On,
    /// Disables the list; the container is then the only boundary.
    Off,
}

impl DenyList {
    /// Returns true for the strict value.
    pub fn is_on(&self) -> bool {
        *self == Self::On
    }

    /// Returns true if the program is on the enabled list or among a profile's `extra` names.
    ///
    /// An extra name that ends in `*` matches every name with that prefix.
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
