//! Places the static programs that `cofferd` embeds: the guest of every container, the host worker, and the egress worker.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context as _;
use runs::{Carried, Directories, GuestBinary, place_worker};

/// `coffer-guest`.
const GUEST: Carried =
    Carried { bytes: include_bytes!(env!("COFFER_GUEST_EMBEDDED")), sha256: env!("COFFER_GUEST_SHA256") };

/// `coffer-host-worker`.
const HOST_WORKER: Carried = Carried {
    bytes: include_bytes!(env!("COFFER_HOST_WORKER_EMBEDDED")),
    sha256: env!("COFFER_HOST_WORKER_SHA256"),
};

/// `coffer-egress`.
const EGRESS: Carried =
    Carried { bytes: include_bytes!(env!("COFFER_EGRESS_EMBEDDED")), sha256: env!("COFFER_EGRESS_SHA256") };

/// The programs, in directories from which they can be executed.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) guest: GuestBinary,
    /// Open file that can only be executed.
    pub(crate) host_worker: OwnedFd,
    /// Open file that can only be executed.
    pub(crate) egress: OwnedFd,
}

/// Makes sure that the programs are in the state directory, which must exist.
pub(crate) fn place(state: &Path) -> anyhow::Result<Programs> {
    let bin = Directories { state: state.to_owned() }.bin();
    let guest = GuestBinary::place(&bin, GUEST).context("cannot place the guest's program")?;
    let host_worker = place_worker(&bin, "coffer-host-worker", HOST_WORKER)
        .context("cannot place the host worker's program")?;
    let egress =
        place_worker(&bin, "coffer-egress", EGRESS).context("cannot place the program for egress")?;
    Ok(Programs { guest, host_worker, egress })
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::{EGRESS, GUEST, HOST_WORKER};

    #[test]
    fn programs_have_the_digests_by_which_their_files_are_named() {
        for program in [EGRESS, GUEST, HOST_WORKER] {
            assert_eq!(hex::encode(Sha256::digest(program.bytes)), program.sha256);
        }
    }
}
