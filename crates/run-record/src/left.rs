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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Spec, Workspace};

    fn of(principal: &str) -> Record {
        let spec = Spec {
            profile: "review".to_owned(),
            image: String::new(),
            workspace: Workspace::Managed,
            pkg_path: None,
            agent_id: "alice".to_owned(),
            role: "worker".to_owned(),
            limits: Limits::default(),
            ttl: None,
            idle_timeout: None,
            labels: BTreeMap::new(),
            principal: principal.to_owned(),
            token: None,
            env: BTreeMap::new(),
            secret_env: Vec::new(),
            lease: None,
            writable_paths: Vec::new(),
            forked_from: None,
            checkpoints: None,
            companions: Vec::new(),
        };
        Record::new(RunId::new(), spec)
    }

    #[test]
    fn a_run_and_its_workspace_are_one_and_a_living_run_is_none() {
        let [both, ends, lives, deleted, bound] = ["uid:1", "uid:1", "uid:1", "uid:2", "uid:2"].map(of);
        let kept = [&both, &lives, &deleted].map(|record| (record.id, Kept::of(record).unwrap()));
        let living = BTreeSet::from([ends.id, lives.id]);
        let ended = [both, ends, bound].map(|record| (record.id, record));
        let left = left_by_principal(&BTreeMap::from(ended), &BTreeMap::from(kept), &living);
        assert_eq!(left, BTreeMap::from([("uid:1".to_owned(), 1), ("uid:2".to_owned(), 2)]));
    }
}
