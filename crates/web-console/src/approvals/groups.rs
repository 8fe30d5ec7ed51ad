//! Equal requests, which are decided together: equal in all that a reviewer sees, except for who made them and when.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use wire::v1::approval::State;
use wire::v1::{Approval, ListApprovalsRequest};

use super::facts::path;
use crate::api::quick;
use crate::error::Problem;
use crate::viewer::Viewer;

/// Most requests that are decided at once.
pub(super) const AT_ONCE: usize = 100;

/// Requests with the same key, oldest first.
pub(super) struct Group {
    pub(super) key: String,
    pub(super) approvals: Vec<Approval>,
}

impl Group {
    /// Returns the request that is shown for all.
    pub(super) fn first(&self) -> &Approval {
        &self.approvals[0]
    }

    /// Returns the path of the page.
    pub(super) fn path(&self) -> String {
        match self.approvals.as_slice() {
            [one] => path(one),
            _ => format!("/approvals/group/{}", self.key),
        }
    }
}

/// Returns the pending approvals that the viewer sees, oldest first.
pub(super) async fn pending(viewer: &Viewer) -> Result<Vec<Approval>, Problem> {
    let request = ListApprovalsRequest { state: State::Pending.into(), run_id: String::new() };
    Ok(viewer.services.approvals().list_approvals(quick(request)).await?.into_inner().approvals)
}

/// Groups equal requests, in the order of the oldest of each.
pub(super) fn groups(approvals: Vec<Approval>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places = HashMap::new();
    for approval in approvals {
        let key = key(&approval);
        let place = *places.entry(key.clone()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.approvals.push(approval),
            None => groups.push(Group { key, approvals: vec![approval] }),
        }
    }
    groups
}

/// Returns the SHA-256 over all that a reviewer sees of a request, except for its run, call, agent and time.
///
/// An approval that a list shows without its details equals no other.
fn key(approval: &Approval) -> String {
    let mut digest = Sha256::new();
    let mut part = |text: &str| {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    };
    if approval.operation_json.is_empty() {
        part(&approval.approval_id);
    }
    for text in [
        &approval.operation,
        &approval.operation_json,
        &approval.preview,
        &approval.justification,
        &approval.risk,
        &approval.role,
        &approval.profile,
        &approval.rule,
        &approval.policy_digest,
        &approval.level_needed,
        &approval.approvals_needed.to_string(),
    ] {
        part(text);
    }
    for file in &approval.files {
        for text in [&file.path, &file.sha256, &file.unreadable] {
            part(text);
        }
    }
    hex::encode(digest.finalize())
}

#[cfg(test)]
mod tests {
    use wire::v1::BoundFile;

    use super::*;

    fn one(id: &str, json: &str) -> Approval {
        Approval {
            approval_id: id.into(),
            operation: "exec".into(),
            operation_json: json.into(),
            ..Default::default()
        }
    }

    #[test]
    fn equal_requests_of_different_runs_are_one_group() {
        let run = |run: &str, one: Approval| Approval { run_id: run.into(), agent_id: run.into(), ..one };
        let all = vec![run("r1", one("a", "{1}")), run("r2", one("b", "{2}")), run("r3", one("c", "{1}"))];
        let groups = groups(all);
        let ids: Vec<Vec<&str>> = groups
            .iter()
            .map(|group| group.approvals.iter().map(|one| one.approval_id.as_str()).collect())
            .collect();
        assert_eq!(ids, [vec!["a", "c"], vec!["b"]]);
        assert_eq!(groups[1].path(), "/approvals/b");
        assert_eq!(groups[0].path(), format!("/approvals/group/{}", groups[0].key));
    }

    #[test]
    fn what_differs_for_a_reviewer_is_not_grouped() {
        let base = one("a", "{}");
        let file = |path: &str, sha256: &str| BoundFile {
            path: path.into(),
            sha256: sha256.into(),
            unreadable: String::new(),
        };
        let others = [
            Approval { preview: "x".into(), ..base.clone() },
            Approval { justification: "x".into(), ..base.clone() },
            Approval { risk: "x".into(), ..base.clone() },
            Approval { profile: "x".into(), ..base.clone() },
            Approval { rule: "x".into(), ..base.clone() },
            Approval { policy_digest: "x".into(), ..base.clone() },
            Approval { files: vec![file("x", "y")], ..base.clone() },
            Approval { files: vec![file("xy", "")], ..base.clone() },
            Approval { operation: "shell".into(), ..base.clone() },
        ];
        let mut all = vec![base];
        all.extend(others);
        assert_eq!(groups(all.clone()).len(), all.len());
        // A list shows them without their arguments.
        assert_eq!(groups(vec![one("a", ""), one("b", "")]).len(), 2);
        assert!(groups(Vec::new()).is_empty());
    }
}
