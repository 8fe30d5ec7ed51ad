//! What `cofferd` carries inside: the agent's binary.

#![expect(clippy::disallowed_methods, reason = "the agent's program in the state directory")]

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::replace::replace;

/// The static `coffer-agent`.
const AGENT: &[u8] = include_bytes!(env!("COFFER_AGENT_EMBEDDED"));

/// Makes sure that the agent's binary is in `directory`, and returns its path.
///
/// Its mode is what keeps commands from reading or forging the agent's stream: a process whose file it may not read is
/// non-dumpable from its first instruction. Root's is 0711, executable for the run's uid. Any other user's is 0111,
/// since the owner itself must not be able to read it either.
pub(crate) fn place_agent(directory: &Path) -> io::Result<PathBuf> {
    let digest = Sha256::digest(AGENT);
    let path = directory.join(format!("coffer-agent-{}", &hex::encode(digest)[..16]));
    let uid = rustix::process::geteuid();
    let mode = if uid.is_root() { 0o711 } else { 0o111 };

    if let Ok(metadata) = std::fs::symlink_metadata(&path) {
        let ours =
            metadata.is_file() && metadata.uid() == uid.as_raw() && metadata.len() == AGENT.len() as u64;
        // The directory is the daemon's alone, so that what is there under this name was written by a daemon; a file
        // cut short by a crash has another length.
        if ours && metadata.mode() & 0o7777 == mode {
            return Ok(path);
        }
        std::fs::remove_file(&path)?;
    }
    replace(&path, |file| {
        file.write_all(AGENT)?;
        file.set_permissions(Permissions::from_mode(mode))
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::{AGENT, place_agent};

    #[test]
    fn the_agent_is_placed_once_and_mended_when_it_was_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = place_agent(directory.path()).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), AGENT.len() as u64);
        assert_eq!(metadata.mode() & 0o044, 0, "others must not be able to read it");
        let inode = metadata.ino();
        assert_eq!(place_agent(directory.path()).unwrap(), path);
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        place_agent(directory.path()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o044, 0);
    }
}
