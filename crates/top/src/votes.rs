//! Texts about the votes on an approval, and about the votes that it still needs.

use wire::v1::Approval;
use wire::v1::approval::Remember;

use presentation::quantity::count;
use presentation::time;

/// Describes the missing votes, such as `2 more consents at the level director`.
pub fn missing(approval: &Approval) -> String {
    let given = approval.votes.iter().filter(|vote| vote.approved).count() as u64;
    let missing = u64::from(approval.approvals_needed).saturating_sub(given);
    format!("{} at the level {}", count(missing, "more consent", "more consents"), approval.level_needed)
}

pub(crate) fn needed(approval: &Approval) -> String {
    if approval.level_needed.is_empty() {
        return String::new();
    }
    let consents = count(u64::from(approval.approvals_needed), "consent", "consents");
    format!("{consents} at the level {}", approval.level_needed)
}

/// Returns one line for each vote, with its comment.
pub(crate) fn lines(approval: &Approval) -> Vec<String> {
    let line = |vote: &wire::v1::ApprovalVote| {
        let said = if vote.approved { "consents" } else { "denies" };
        let comment = if vote.comment.is_empty() { String::new() } else { format!(": {}", vote.comment) };
        let signed = if vote.signed { ", signed with a passkey" } else { "" };
        format!(
            "{} ({}) {said} at {}{signed}{comment}",
            vote.principal,
            vote.level,
            time::moment(vote.voted_at.as_ref())
        )
    };
    approval.votes.iter().map(line).collect()
}

/// Returns the forms other than *once* in which the consent may be remembered.
pub(crate) fn options(approval: &Approval) -> Vec<Remember> {
    approval.remember_options().filter(|form| matches!(form, Remember::Digest | Remember::Prefix)).collect()
}

#[cfg(test)]
mod tests {
    use wire::v1::ApprovalVote;

    use super::*;

    #[test]
    fn missing_consents_are_counted() {
        let vote = |principal: &str, approved| ApprovalVote {
            principal: principal.into(),
            level: "director".into(),
            approved,
            ..Default::default()
        };
        let approval = Approval {
            approvals_needed: 3,
            level_needed: "director".into(),
            votes: vec![vote("uid:1", true)],
            remember_options: vec![Remember::Once.into(), Remember::Digest.into()],
            ..Default::default()
        };
        assert_eq!(needed(&approval), "3 consents at the level director");
        assert_eq!(missing(&approval), "2 more consents at the level director");
        assert_eq!(options(&approval), [Remember::Digest]);
        assert!(lines(&approval)[0].starts_with("uid:1 (director) consents at "), "{:?}", lines(&approval));
        let denied = Approval { votes: vec![vote("uid:1", false)], ..approval };
        assert!(lines(&denied)[0].contains(" denies at "));
    }
}
