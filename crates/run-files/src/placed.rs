//! Files that the daemon places: the guest's binary and files in `/etc`, for containers, and the host worker's binary.

#![expect(clippy::disallowed_methods, reason = "files of the daemon's own in the state directory")]

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use atomic_file::replace;
use containers::{Boundary, EtcFiles, Hardening, RunUser, etc_files};
use rustix::fs::{Mode, OFlags, open};
use sha2::{Digest as _, Sha256};

/// A program that `cofferd` carries, and its SHA-256 in hex. If a start finds the program in place, it does not read its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Carried {
    pub bytes: &'static [u8],
    pub sha256: &'static str,
}

/// The guest's binary, for each boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestBinary {
    hidden: PathBuf,
    readable: PathBuf,
}

impl GuestBinary {
    /// Writes the binary to `directory` if it is not there.
    ///
    /// The file's mode keeps commands from reading or forging the guest's stream: a process that may not read its own program file is
    /// non-dumpable from its first instruction. For a daemon that runs as root the mode is 0711, so that the run's uid can execute it. For
    /// any other user it is 0111, since the owner must not be able to read it either.
    ///
    /// gVisor's loader reads a program with the rights of its user, so that copy is readable for all. Its guest gets its streams from a
    /// process of another user instead.
    pub fn place(directory: &Path, binary: Carried) -> io::Result<Self> {
        let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o111 };
        let place = |name, mode| place_named(directory, name, binary.sha256, binary.bytes, mode);
        Ok(Self { hidden: place("coffer-guest", mode)?, readable: place("coffer-guest-readable", 0o755)? })
    }

    pub fn of(&self, boundary: Boundary) -> &Path {
        match boundary {
            Boundary::HostKernel => &self.hidden,
            Boundary::OwnKernel => &self.readable,
        }
    }
}

/// Writes a worker's binary to `directory` if it is not there. Returns a handle for executing it, whatever happens to its name.
pub fn place_worker(directory: &Path, name: &str, binary: Carried) -> io::Result<OwnedFd> {
    let path = place_named(directory, name, binary.sha256, binary.bytes, 0o500)?;
    Ok(open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Writes the files in `/etc` for containers that run as `user` to `directory`, if they are not there.
pub fn place_etc(directory: &Path, user: RunUser, hardening: &Hardening) -> io::Result<EtcFiles> {
    let place = |(target, content): (&'static str, String)| {
        let (name, sha256) = (target.trim_start_matches("/etc/"), hex::encode(Sha256::digest(&content)));
        Ok((target, place_named(directory, name, &sha256, content.as_bytes(), 0o644)?))
    };
    etc_files(user, hardening.home(), hardening.resolver).into_iter().map(place).collect()
}

/// Returns a file with this content. The name has the content's digest, so a container that has it mounted keeps its version after an
/// update.
fn place_named(directory: &Path, name: &str, sha256: &str, content: &[u8], mode: u32) -> io::Result<PathBuf> {
    let path = directory.join(format!("{name}-{sha256:.16}"));
    let uid = rustix::process::geteuid();
    if let Ok(metadata) = std::fs::symlink_metadata(&path) {
        let ours =
            metadata.is_file() && metadata.uid() == uid.as_raw() && metadata.len() == content.len() as u64;
        // Only the daemon can write the directory, so a daemon wrote the file with this name. A file that a crash cut short has another
        // length.
        if ours && metadata.mode() & 0o7777 == mode {
            return Ok(path);
        }
        std::fs::remove_file(&path)?;
    }
    replace(&path, |file| {
        file.write_all(content)?;
        file.set_permissions(Permissions::from_mode(mode))
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use containers::{Boundary, Hardening};
    use jail::RootMode;

    use super::{Carried, GuestBinary, place_etc};

    const GUEST: Carried = Carried { bytes: b"a program", sha256: "0123456789abcdef0123456789abcdef" };

    #[test]
    fn the_guest_is_placed_once_and_mended_when_it_was_changed() {
        let directory = tempfile::tempdir().unwrap();
        let placed = || GuestBinary::place(directory.path(), GUEST).unwrap();
        let path = placed().hidden;
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), GUEST.bytes.len() as u64);
        assert_eq!(metadata.mode() & 0o044, 0, "others must not be able to read it");
        let inode = metadata.ino();
        assert_eq!(placed().of(Boundary::HostKernel), path);
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let readable = placed().of(Boundary::OwnKernel).to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o044, 0);
        assert_eq!(std::fs::metadata(&readable).unwrap().mode() & 0o7777, 0o755);
    }

    #[test]
    fn the_files_in_etc_are_placed_once_for_each_content() {
        use containers::RunUser;
        let directory = tempfile::tempdir().unwrap();
        let place = |user, hardening: &Hardening| place_etc(directory.path(), user, hardening).unwrap();
        let plain = Hardening::default();
        let mine = place(RunUser::DEFAULT, &plain);
        let targets: Vec<_> = mine.iter().map(|(target, _)| *target).collect();
        assert_eq!(targets, ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"]);
        assert_eq!(place(RunUser::DEFAULT, &plain), mine);
        assert!(std::fs::read_to_string(&mine[0].1).unwrap().contains(":1001:1001:"));
        let at_home = Hardening { root: RootMode::WritableLayer, ..plain.clone() };
        let at_home = place(RunUser::DEFAULT, &at_home);
        assert!(at_home[0] != mine[0] && at_home[1..] == mine[1..]);
        let other = place(RunUser::new(77, 88).unwrap(), &plain);
        assert!(std::fs::read_to_string(&other[1].1).unwrap().contains(":88:"));
        let resolver = Some(std::net::Ipv4Addr::new(11, 200, 0, 1));
        let named = place(RunUser::DEFAULT, &Hardening { resolver, ..plain.clone() });
        assert_eq!(std::fs::read_to_string(&named[4].1).unwrap(), "nameserver 11.200.0.1\n");
        assert!(!std::fs::read_to_string(&mine[4].1).unwrap().contains("nameserver"));
        for (target, path) in mine {
            assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o7777, 0o644, "{target}");
        }
    }
}
