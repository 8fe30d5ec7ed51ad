//! Counts runs that have ended, and workspaces of deleted runs.

use std::collections::{BTreeMap, BTreeSet};

use identity::RunId;

use crate::{Kept, Record};

/// Counts ended runs, and workspaces of deleted ones, by principal. A run and its workspace are one, and a living run counts nothing.
///
/// There may be very many of them, so it copies each principal once.
pub fn left_by_principal(
    ended: &BTreeMap<RunId, Record>,
    kept: &BTreeMap<RunId, Kept>,
    living: &BTreeSet<RunId>,
) -> BTreeMap<String, usize> {
    let runs = ended.iter().map(|(id, record)| (id, record.spec.principal.as_str()));
    let workspaces = kept.iter().filter(|(id, _)| !ended.contains_key(*id));
    let workspaces = workspaces.map(|(id, kept)| (id, kept.principal.as_str()));
    let mut counted = BTreeMap::<&str, usize>::new();
    for (_, principal) in runs.chain(workspaces).filter(|(id, _)| !living.contains(*id)) {
        *counted.entry(principal).or_default() += 1;
    }
    counted.into_iter().map(|(principal, count)| (principal.to_owned(), count)).collect()
}
