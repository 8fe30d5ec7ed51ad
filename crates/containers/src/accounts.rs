//! The users and groups that every container knows, whatever its image says.
//!
//! The run's uid has no name in most images, and programs need one: git, ssh, `whoami`, Python's `getpass`. So files of our own are
//! mounted read-only over `/etc/passwd` and `/etc/group`. They do not extend the image's: reading those from the host means to
//! follow an image's links (CVE-2018-15664), and a container has no use for names of users that it can never become.

use std::path::PathBuf;

use crate::ids::RunUser;

/// The run's user by name.
const NAME: &str = "agent";
/// The kernel's overflow id, as which files of unknown owners appear.
const NOBODY: u32 = 65_534;

/// Where the two files are on the host: root's, readable for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    /// Has the content of [`passwd`].
    pub passwd: PathBuf,
    /// Has the content of [`group`].
    pub group: PathBuf,
}

/// `/etc/passwd`: root, nobody, and the run's user with its home.
pub fn passwd(user: RunUser, home: &str) -> String {
    let mut text = String::from("root:x:0:0:root:/:/bin/false\n");
    if user.uid() != NOBODY {
        text.push_str("nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n");
    }
    text + &format!("{NAME}:x:{}:{}:{NAME}:{home}:/bin/sh\n", user.uid(), user.gid())
}

pub fn group(user: RunUser) -> String {
    let mut text = String::from("root:x:0:\n");
    if user.gid() != NOBODY {
        text.push_str("nogroup:x:65534:\n");
    }
    text + &format!("{NAME}:x:{}:\n", user.gid())
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
