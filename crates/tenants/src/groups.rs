//! Groups of principals, as the last valid token of each named them, and the file in which they outlive the daemon.
//!
//! Only a group that a tenant of the policy has is kept, and for each principal the first of them. A principal whose token names none
//! has no entry.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use parking_lot::{RwLock, RwLockReadGuard};
use serde::{Deserialize, Serialize};
use timestamp::Timestamp;

use crate::state_file::StateFile;

/// Most principals that have a group. Beyond that, the one that was not seen for the longest time loses its own until its next request.
const MOST: usize = 4_096;
/// Time between two notes that a principal was seen, seconds.
const SEEN: i64 = 3_600;
/// Version of the file. A daemon that cannot read the file knows no groups until the next tokens.
pub const FORMAT: u32 = 1;

/// The group of a principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Membership {
    group: String,
    /// Time of the last note of its token, seconds since 1970.
    seen: i64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    format: u32,
    principals: BTreeMap<String, Membership>,
}

#[derive(Debug, Default)]
struct State {
    principals: BTreeMap<String, Membership>,
    is_changed: bool,
}

/// The groups of all principals.
#[derive(Debug)]
pub(crate) struct Groups {
    file: StateFile,
    state: RwLock<State>,
}

/// A look at all groups.
pub(crate) struct Look<'a>(RwLockReadGuard<'a, State>);

impl Look<'_> {
    /// Returns the group of a principal.
    pub(crate) fn of(&self, principal: &str) -> Option<&str> {
        self.0.principals.get(principal).map(|one| one.group.as_str())
    }
}

impl Groups {
    /// Opens the groups. If the file cannot be read, principals have none until their next request.
    pub(crate) fn open(path: &Path) -> Self {
        let file = StateFile::new(path);
        let principals = read(&file).unwrap_or_else(|error| {
            tracing::error!(
                %error,
                file = %path.display(),
                "the groups of principals cannot be read: until its next request, each counts for the tenant that its name matches"
            );
            BTreeMap::new()
        });
        let state = RwLock::new(State { principals, is_changed: false });
        Self { file, state }
    }

    /// Looks at the groups, which must not change meanwhile.
    pub(crate) fn look(&self) -> Look<'_> {
        Look(self.state.read())
    }

    /// Notes the group of a principal that has shown a valid token; `None` for none that a tenant has. Returns true if a group has changed.
    pub(crate) fn note(&self, principal: &str, group: Option<&str>, now: Timestamp) -> bool {
        let now = now.unix_seconds();
        let is_noted = match (self.state.read().principals.get(principal), group) {
            (None, None) => true,
            (Some(known), Some(group)) => known.group == group && (now - known.seen).abs() < SEEN,
            _ => false,
        };
        if is_noted {
            return false;
        }
        let mut state = self.state.write();
        state.is_changed = true;
        let principals = &mut state.principals;
        let Some(group) = group else {
            principals.remove(principal);
            return true;
        };
        if principals.len() >= MOST && !principals.contains_key(principal) {
            let oldest = principals.iter().min_by_key(|(_, one)| one.seen).map(|(name, _)| name.clone());
            oldest.and_then(|name| principals.remove(&name));
        }
        principals.insert(principal.to_owned(), Membership { group: group.to_owned(), seen: now });
        true
    }

    /// Writes the groups if they have changed. Blocks on the disk.
    pub(crate) fn write(&self) -> io::Result<()> {
        let changed = || {
            let mut state = self.state.write();
            let is_changed = std::mem::take(&mut state.is_changed);
            is_changed.then(|| Kept { format: FORMAT, principals: state.principals.clone() })
        };
        self.file.write(changed, || self.state.write().is_changed = true)
    }
}

fn read(file: &StateFile) -> io::Result<BTreeMap<String, Membership>> {
    let Some(kept) = file.read::<Kept>()? else { return Ok(BTreeMap::new()) };
    if kept.format != FORMAT {
        return Err(io::Error::other(format!("it has the version {}", kept.format)));
    }
    Ok(kept.principals)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.replace('Z', ".000000000Z").parse().unwrap()
    }

    #[test]
    fn groups_outlive_the_daemon_and_end_with_the_next_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tenant-groups.json");
        let now = at("2026-03-01T12:00:00Z");
        let groups = Groups::open(&path);
        groups.note("oidc:corp:a", Some("corp:ml"), now);
        groups.note("oidc:corp:b", Some("corp:web"), now);
        groups.note("oidc:corp:b", Some("corp:ml"), now);
        groups.note("oidc:corp:c", None, now);
        groups.write().unwrap();
        let groups = Groups::open(&path);
        let of = |name: &str| groups.look().of(name).map(str::to_owned);
        assert_eq!(of("oidc:corp:a").as_deref(), Some("corp:ml"));
        assert_eq!(of("oidc:corp:b").as_deref(), Some("corp:ml"));
        assert_eq!(of("oidc:corp:c"), None);
        groups.note("oidc:corp:a", None, now);
        assert_eq!(of("oidc:corp:a"), None);
        groups.write().unwrap();
        assert_eq!(Groups::open(&path).look().of("oidc:corp:a"), None);
        std::fs::write(&path, "{\"format\":2,\"principals\":{}}").unwrap();
        assert_eq!(Groups::open(&path).look().of("oidc:corp:b"), None);
    }

    #[test]
    fn groups_are_bounded_and_the_principal_of_long_ago_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let groups = Groups::open(&directory.path().join("tenant-groups.json"));
        groups.note("first", Some("corp:ml"), at("2026-03-01T12:00:00Z"));
        let later = at("2026-03-02T12:00:00Z");
        for number in 0..MOST {
            groups.note(&format!("p{number}"), Some("corp:ml"), later);
        }
        let look = groups.look();
        assert_eq!(
            (look.of("first"), look.of("p0"), look.of("p4095")),
            (None, Some("corp:ml"), Some("corp:ml"))
        );
    }

    #[test]
    fn a_principal_that_is_seen_again_is_written_once_an_hour() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tenant-groups.json");
        let groups = Groups::open(&path);
        let is_written = |now: &str| {
            groups.note("a", Some("corp:ml"), at(now));
            let _ = std::fs::remove_file(&path);
            groups.write().unwrap();
            path.exists()
        };
        let written = ["12:00:00", "12:00:01", "12:59:59", "13:00:00", "13:00:01"]
            .map(|time| is_written(&format!("2026-03-01T{time}Z")));
        assert_eq!(written, [true, false, false, true, false]);
    }
}
