//! The files in `/etc` that the daemon gives a container, whatever its image contains.
//!
//! The run's uid has no name in most images, and programs need one: git, ssh, `whoami`, Python's `getpass`. `localhost` and the container's
//! host name have to resolve in images without a hosts file, too. So the daemon's files are mounted read-only. They replace the image's
//! files: reading those from the host means following an image's links (CVE-2018-15664). A container needs no names of users that it can
//! never become. Its name server is the one to which its queries are steered, if any.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::ids::RunUser;

/// Path of the list of users in a container.
pub const PASSWD_PATH: &str = "/etc/passwd";
pub const GROUP_PATH: &str = "/etc/group";
/// Host name of every container. A warm container gets it before its run is known.
pub(crate) const HOSTNAME: &str = "cofferdam";

/// Name of the run's user.
const USER: &str = "agent";
/// The kernel's overflow id, under which files of unmapped owners appear.
const NOBODY: u32 = 65_534;
/// Without a name server the libraries query this machine. It refuses at once, but musl waits for its full timeout.
const NO_NAMES: &str = "# There is no network.\noptions timeout:1 attempts:1\n";

/// Host path of each file, by its path in a container. The files belong to root and are readable for all.
pub type EtcFiles = Vec<(&'static str, PathBuf)>;

/// Returns the content of each file, by its path in a container that runs as `user`.
pub fn etc_files(user: RunUser, home: &str, resolver: Option<Ipv4Addr>) -> Vec<(&'static str, String)> {
    let accounts = [(PASSWD_PATH, passwd(user, home)), (GROUP_PATH, group(user))];
    accounts.into_iter().chain(host_files(resolver)).collect()
}

/// Returns the content of the files about hosts.
pub fn host_files(resolver: Option<Ipv4Addr>) -> [(&'static str, String); 3] {
    let hosts =
        format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\t{HOSTNAME}\n");
    [
        ("/etc/hosts", hosts),
        ("/etc/hostname", format!("{HOSTNAME}\n")),
        (
            "/etc/resolv.conf",
            resolver.map_or_else(|| NO_NAMES.to_owned(), |address| format!("nameserver {address}\n")),
        ),
    ]
}

/// Returns `/etc/passwd`: root, the overflow user, and the run's user with its home.
pub(crate) fn passwd(user: RunUser, home: &str) -> String {
    let mut text = String::from("root:x:0:0:root:/:/bin/false\n");
    if user.uid() != NOBODY {
        text.push_str("nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n");
    }
    text + &format!("{USER}:x:{}:{}:{USER}:{home}:/bin/sh\n", user.uid(), user.gid())
}

pub(crate) fn group(user: RunUser) -> String {
    let mut text = String::from("root:x:0:\n");
    if user.gid() != NOBODY {
        text.push_str("nogroup:x:65534:\n");
    }
    text + &format!("{USER}:x:{}:\n", user.gid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_one_name() {
        for user in [RunUser::DEFAULT, RunUser::new(NOBODY, NOBODY).unwrap(), RunUser::new(1, 7).unwrap()] {
            for text in [passwd(user, "/tmp"), group(user)] {
                let mut ids: Vec<&str> = text.lines().map(|line| line.split(':').nth(2).unwrap()).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), text.lines().count(), "{text}");
            }
            let entry = format!("agent:x:{}:{}:agent:/tmp:/bin/sh\n", user.uid(), user.gid());
            assert!(passwd(user, "/tmp").ends_with(&entry));
            let entry = entry.replace("/tmp", "/home/agent");
            assert!(passwd(user, "/home/agent").ends_with(&entry));
        }
    }
}
