//! The user namespace that an engine gives its containers (`userns-remap`), and the host ids of the users inside.
//!
//! Id N inside is `BASE + N` on the host, for all N below 65,536. Mounts and files that the host makes for a container's user have to use
//! the host's ids. The engine reports the base. Before a container's run takes calls, the daemon checks its map with the kernel.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::ids::RunUser;
use crate::run_as::RunAs;

/// Number of ids that a container needs. Debian's `nobody` is 65534.
const COUNT: u32 = 65_536;
/// Lowest base. On most hosts, lower ids belong to people and services, and no container may have them.
const LOWEST: u32 = 65_536;
/// Limit on directory entries, higher than the number of hierarchies in any container.
const MOST_HIERARCHIES: usize = 256;
/// Limit on the size of the files that are read here, in bytes.
const LONGEST: u64 = 64 * 1024;

/// A user and a group of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostUser {
    pub uid: u32,
    pub gid: u32,
}

/// First host ids of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserMap {
    uid: u32,
    gid: u32,
}

/// Reason why a process does not have the intended ids or privileges. The messages contain no path and no number of the host.
#[derive(Debug, thiserror::Error)]
pub enum NotInForce {
    #[error("the kernel does not show {what} of the container's process")]
    Hidden {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{0} of the container's process is not as requested")]
    Other(&'static str),
}

impl RunUser {
    /// Returns the host's ids of this user.
    pub fn on_host(self, map: Option<UserMap>) -> HostUser {
        let (uid, gid) = map.map_or((0, 0), |map| (map.uid, map.gid));
        HostUser { uid: uid.saturating_add(self.uid()), gid: gid.saturating_add(self.gid()) }
    }
}

impl UserMap {
    /// Parses the directory of the engine's data, which ends with the ids of its containers' root: `/var/lib/docker/100000.100000`.
    pub(crate) fn of_engine(root_dir: &str) -> Option<Self> {
        let (uid, gid) = root_dir.rsplit_once('/')?.1.split_once('.')?;
        let id = |text: &str| text.parse().ok().filter(|id| (LOWEST..=u32::MAX - COUNT).contains(id));
        Some(Self { uid: id(uid)?, gid: id(gid)? })
    }

    /// Returns the host's uids that containers use.
    pub(crate) fn uids(self) -> std::ops::Range<u32> {
        self.uid..self.uid + COUNT
    }

    /// Returns the host's gids that containers use.
    pub(crate) fn gids(self) -> std::ops::Range<u32> {
        self.gid..self.gid + COUNT
    }

    /// Checks with the kernel that a process of the container is set up as intended.
    ///
    /// Its ids must be mapped like this. It must run as the run's user, have exactly these capabilities, have no way to gain more, and have
    /// a system-call filter.
    pub fn check(self, host_pid: u32, run_as: RunAs) -> Result<(), NotInForce> {
        let read = |name: &str, what| {
            let mut text = String::new();
            let read = File::open(format!("/proc/{host_pid}/{name}"))
                .and_then(|file| file.take(LONGEST).read_to_string(&mut text));
            read.map(|_| text).map_err(|source| NotInForce::Hidden { what, source })
        };
        for (name, base, what) in
            [("uid_map", self.uid, "the map of users"), ("gid_map", self.gid, "the map of groups")]
        {
            if !is_mapped(&read(name, what)?, base) {
                return Err(NotInForce::Other(what));
            }
        }
        self.check_status(&read("status", "the status")?, run_as)?;
        let cgroups = format!("/proc/{host_pid}/root/sys/fs/cgroup");
        match self.can_move_in(Path::new(&cgroups), run_as) {
            Ok(false) => Ok(()),
            Ok(true) => Err(NotInForce::Other("the write access to cgroups")),
            Err(source) => Err(NotInForce::Hidden { what: "the cgroups", source }),
        }
    }

    /// Returns true if the run's user may move processes in a cgroup hierarchy that is mounted at or in this directory.
    ///
    /// It could then move a command out of the cgroup by which it is ended.
    fn can_move_in(self, mounted: &Path, run_as: RunAs) -> io::Result<bool> {
        let mut hierarchies = vec![mounted.to_owned()];
        for entry in fs::read_dir(mounted)?.take(MOST_HIERARCHIES) {
            let entry = entry?;
            // Symbolic links point to directories beside them, which are checked as well.
            hierarchies.extend(entry.file_type()?.is_dir().then(|| entry.path()));
        }
        for hierarchy in hierarchies {
            let Ok(procs) = fs::symlink_metadata(hierarchy.join("cgroup.procs")) else { continue };
            let has_rights = match run_as {
                RunAs::Agent => procs.uid() == run_as.user().on_host(Some(self)).uid,
                RunAs::MappedRoot => self.uids().contains(&procs.uid()),
            };
            let is_theirs = has_rights || procs.mode() & 0o002 != 0;
            if is_theirs && !statvfs(&hierarchy)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn check_status(self, status: &str, run_as: RunAs) -> Result<(), NotInForce> {
        let field = |name: &str| {
            let mut lines = status.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            lines.next().unwrap_or_default().split_whitespace().collect::<Vec<_>>()
        };
        let user = run_as.user().on_host(Some(self));
        let capabilities = format!("{:016x}", run_as.capability_set());
        let none = format!("{:016x}", 0);
        let is_of = |id: &str| id.parse().is_ok_and(|id| self.gids().contains(&id));
        let facts = [
            ("the user", field("Uid") == [user.uid.to_string().as_str(); 4]),
            ("the group", field("Gid") == [user.gid.to_string().as_str(); 4]),
            ("one of the groups", field("Groups").into_iter().all(is_of)),
            ("the set of permitted capabilities", field("CapPrm") == [capabilities.as_str()]),
            ("the set of effective capabilities", field("CapEff") == [capabilities.as_str()]),
            ("the bounding set of capabilities", field("CapBnd") == [capabilities.as_str()]),
            ("the set of ambient capabilities", field("CapAmb") == [none.as_str()]),
            ("the flag no_new_privs", field("NoNewPrivs") == ["1"]),
            ("the system-call filter", field("Seccomp") == ["2"]),
        ];
        facts.into_iter().find(|(_, holds)| !holds).map_or(Ok(()), |(what, _)| Err(NotInForce::Other(what)))
    }
}

/// Returns true if the ids from 0 on are mapped to those from `base` on, and there are at least [`COUNT`] of them.
fn is_mapped(map: &str, base: u32) -> bool {
    let mut lines =
        map.lines().map(|line| line.split_whitespace().map(str::parse::<u32>).collect::<Vec<_>>());
    let (Some(first), None) = (lines.next(), lines.next()) else { return false };
    matches!(first[..], [Ok(0), Ok(start), Ok(count)] if start == base && count >= COUNT)
}

impl std::fmt::Display for HostUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> UserMap {
        UserMap::of_engine("/var/lib/docker/100000.200000").unwrap()
    }

    #[test]
    fn the_engine_reports_its_first_mapped_id() {
        assert_eq!(map(), UserMap { uid: 100_000, gid: 200_000 });
        let host = |user: RunUser, map| user.on_host(map).to_string();
        assert_eq!(host(RunUser::ROOT, Some(map())), "100000:200000");
        assert_eq!(host(RunUser::DEFAULT, Some(map())), "101001:201001");
        assert_eq!(host(RunUser::DEFAULT, None), "1001:1001");
        for other in [
            "",
            "/var/lib/docker",
            "/var/lib/docker/100000",
            "/var/lib/docker/0.0",
            "/var/lib/docker/100000.1000",
            "/var/lib/docker/100000.-1",
            "/var/lib/docker/4294967295.100000",
            "/srv/v1.2/docker",
        ] {
            assert_eq!(UserMap::of_engine(other), None, "{other}");
        }
    }

    #[test]
    fn only_one_whole_map_will_do() {
        assert!(is_mapped("         0     100000      65536\n", 100_000));
        for other in [
            "",
            "0 0 4294967295\n",
            "0 100000 65535\n",
            "1 100000 65536\n",
            "0 100001 65536\n",
            "0 100000 65536\n65536 0 1\n",
            "0 100000\n",
        ] {
            assert!(!is_mapped(other, 100_000), "{other}");
        }
    }

    const STATUS: &str = "Name:\tUid:\\n\nUid:\t100000\t100000\t100000\t100000\nGid:\t200000\t200000\t200000\t200000\n\
        Groups:\t200000 200010 \nCapInh:\t0000000000000000\nCapPrm:\t00000000000000eb\nCapEff:\t00000000000000eb\n\
        CapBnd:\t00000000000000eb\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn every_fact_of_a_process_is_compared() {
        map().check_status(STATUS, RunAs::MappedRoot).unwrap();
        for (is, other, said) in [
            ("Uid:\t100000\t100000", "Uid:\t100000\t0", "the user"),
            ("Gid:\t200000\t200000", "Gid:\t0\t200000", "the group"),
            ("200010", "10", "one of the groups"),
            ("CapPrm:\t00000000000000eb", "CapPrm:\t000001ffffffffff", "permitted"),
            ("CapEff:\t00000000000000eb", "CapEff:\t00000000002000eb", "effective"),
            ("CapBnd:\t00000000000000eb", "CapBnd:\t00000000a80425fb", "bounding"),
            ("CapAmb:\t0000000000000000", "CapAmb:\t0000000000000001", "ambient"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "no_new_privs"),
            ("Seccomp:\t2", "Seccomp:\t0", "filter"),
            ("CapBnd:", "CapBnx:", "bounding"),
        ] {
            let refused = map().check_status(&STATUS.replace(is, other), RunAs::MappedRoot).unwrap_err();
            assert!(refused.to_string().contains(said), "{other}: {refused}");
        }
        assert!(map().check_status(STATUS, RunAs::Agent).is_err());
        assert!(map().check_status("", RunAs::MappedRoot).is_err());
    }

    #[test]
    fn the_owner_of_a_cgroup_can_move_in_it() {
        let mounted = tempfile::tempdir().unwrap();
        let can = || map().can_move_in(mounted.path(), RunAs::MappedRoot).unwrap();
        assert!(!can(), "there is none");
        let own = mounted.path().join("memory");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("cgroup.procs"), "").unwrap();
        assert!(!can());
        std::os::unix::fs::chown(own.join("cgroup.procs"), Some(100_000), None).expect("run this as root");
        assert!(can());
        assert!(
            !map().can_move_in(mounted.path(), RunAs::Agent).unwrap(),
            "root's is nothing to another user"
        );
        std::os::unix::fs::symlink(&own, mounted.path().join("link")).unwrap();
        fs::rename(own.join("cgroup.procs"), mounted.path().join("cgroup.procs")).unwrap();
        assert!(can(), "also at the top");
        fs::remove_file(mounted.path().join("cgroup.procs")).unwrap();
        assert!(!can());
        assert!(map().can_move_in(Path::new("/proc/none"), RunAs::Agent).is_err());
    }

    #[test]
    fn host_process_is_not_accepted_as_a_container_process() {
        let refused = map().check(std::process::id(), RunAs::MappedRoot).unwrap_err();
        assert_eq!(refused.to_string(), "the map of users of the container's process is not as requested");
        assert!(matches!(map().check(0, RunAs::Agent), Err(NotInForce::Hidden { .. })));
    }
}
