//! User namespaces of maps of owners, which runs of the same owners share.
//!
//! Each namespace needs a process to make. That process is a copy of the daemon, which takes milliseconds while all of the daemon's
//! memory is copied on write.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{IdMap, MountError, Others, new_user_namespace};

/// Most maps that are remembered. Each keeps a file open.
const MOST: usize = 32;

/// The namespaces that were used last, oldest first. A map never changes, so they are shared by the whole process.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// A map with its namespace.
type Known = ((IdMap, Others), Arc<OwnedFd>);

/// Returns the user namespace with this map, and makes it if it is not among those that were used last.
pub(super) fn user_namespace(map: IdMap, others: Others) -> Result<Arc<OwnedFd>, MountError> {
    let mut known = KNOWN.lock();
    let found = known.iter().position(|(of, _)| *of == (map, others)).map(|at| known.remove(at).1);
    let namespace = match found {
        Some(namespace) => namespace,
        None => Arc::new(new_user_namespace(map, others)?),
    };
    if known.len() >= MOST {
        known.remove(0);
    }
    known.push(((map, others), namespace.clone()));
    Ok(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_map_of_owners_has_one_namespace_and_another_map_another_one() {
        let map =
            |disk_uid| IdMap { disk_uid, disk_gid: 7_000_001, seen_uid: 7_000_002, seen_gid: 7_000_003 };
        let one = user_namespace(map(7_000_000), Others::Nobody).unwrap();
        let again = user_namespace(map(7_000_000), Others::Nobody).unwrap();
        assert!(Arc::ptr_eq(&one, &again));
        for (map, others) in [(map(7_000_004), Others::Nobody), (map(7_000_000), Others::Themselves)] {
            assert!(!Arc::ptr_eq(&one, &user_namespace(map, others).unwrap()), "{map:?} {others:?}");
        }
    }
}
