//! Shows all facts that a reviewer needs, in a form that cannot deceive the reviewer.

use presentation::output::{Output, Style};
use presentation::time;
use wire::v1::approval::{Remember, State};
use wire::v1::{Approval, BoundFile};

use crate::votes;

/// Writes all facts that a reviewer needs. `hints` adds the commands that decide.
pub fn render(approval: &Approval, now: &wire::Timestamp, hints: bool, page: &mut Output) {
    let waits = approval.state() == State::Pending;
    page.facts(&[
        ("approval", approval.approval_id.clone()),
        ("state", approval.state().as_str_name().into()),
        ("operation", approval.operation.clone()),
        ("risk", approval.risk.clone()),
        ("why", approval.justification.clone()),
        ("rule", approval.rule.clone()),
        ("needs", votes::needed(approval)),
        ("agent", approval.agent_id.clone()),
        ("role", approval.role.clone()),
        ("profile", approval.profile.clone()),
        ("asked by", approval.requested_by.clone()),
        ("asked at", time::moment(approval.created_at.as_ref())),
        ("meanwhile", if waits && approval.freezes_run { "its run is frozen".into() } else { String::new() }),
        ("expires in", if waits { expiry(approval, now) } else { String::new() }),
        ("time from", approval.decision_time_from.clone()),
        ("decided by", approval.decided_by.clone()),
        ("decided at", time::known(approval.decided_at.as_ref())),
        ("comment", approval.comment.clone()),
        ("run", approval.run_id.clone()),
        ("call", approval.call_id.clone()),
        ("digest", approval.digest.clone()),
        ("policy", approval.policy_digest.clone()),
        ("remembered", approval.consent_id.clone()),
    ]);
    for vote in votes::lines(approval) {
        page.own("vote        ").word(&vote).own("\n");
    }
    if !approval.files.is_empty() {
        page.own("\n").styled(Style::Bold, "Runs only if these files have not changed").own("\n");
    }
    for file in &approval.files {
        page.own("  ").word(&file.path).own("  ").word(&state_of(file)).own("\n");
    }
    page.own("\n").styled(Style::Bold, "Preview").own("\n");
    let preview = if approval.preview.is_empty() { &approval.operation_json } else { &approval.preview };
    page.diff(preview);
    if waits && hints {
        if approval.needs_passkey {
            page.own("\n").own("approve: in the console, with a passkey (coffer console)\n");
        } else {
            ways_to_approve(approval, page);
        }
        page.own("deny:    coffer approval deny ").word(&approval.approval_id).own("\n");
    }
}

fn ways_to_approve(approval: &Approval, page: &mut Output) {
    page.own("\n").own("approve: coffer approval approve ").word(&approval.approval_id).own("\n");
    for form in votes::options(approval) {
        page.own("         coffer approval approve ").word(&approval.approval_id);
        page.own(match form {
            Remember::Prefix => {
                " --remember-prefix WORD…  (also for commands of this run that begin with these words)\n"
            }
            _ if approval.call_id.is_empty() => {
                " --remember  (also for later connections to it in this run)\n"
            }
            _ => " --remember  (also for the same call again in this run)\n",
        });
    }
}

/// Returns the time after which a pending approval expires.
pub fn expiry(approval: &Approval, now: &wire::Timestamp) -> String {
    match (approval.state(), approval.expires_at.as_ref()) {
        (State::Pending, Some(end)) => {
            time::between(Some(now), Some(end)).map_or_else(|| "now".into(), time::brief)
        }
        _ => "-".into(),
    }
}

fn state_of(file: &BoundFile) -> String {
    match (file.sha256.as_str(), file.unreadable.as_str()) {
        ("", "") => "absent".into(),
        ("", why) => format!("cannot be read ({why}) and may change unseen"),
        (hash, _) => format!("sha256 {hash}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presentation::output::Look;

    #[test]
    fn a_preview_cannot_deceive() {
        let at = |seconds| Some(wire::Timestamp { seconds, nanos: 0 });
        let approval = Approval {
            approval_id: "a".into(),
            state: State::Pending.into(),
            operation: "write".into(),
            justification: "writes are\nreviewed".into(),
            preview: "@@ -1 +1 @@\n-rm -rf /\r+harmless\u{202e}\n+\x1b[1A\x1b[2K".into(),
            created_at: at(0),
            expires_at: at(160),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&approval, &at(100).unwrap(), true, &mut page);
        assert_eq!(
            page.as_str(),
            "approval    a\n\
             state       PENDING\n\
             operation   write\n\
             why         writes are␊reviewed\n\
             asked at    1970-01-01T00:00:00.000Z\n\
             expires in  1m 0s\n\
             \nPreview\n\
             @@ -1 +1 @@\n-rm -rf /␍+harmless<U+202E>\n+␛[1A␛[2K\n\
             \napprove: coffer approval approve a\n\
             deny:    coffer approval deny a\n"
        );
    }

    #[test]
    fn approval_shows_level_bound_files_and_ways_to_remember() {
        let approval = Approval {
            approval_id: "a".into(),
            call_id: "c".into(),
            state: State::Pending.into(),
            approvals_needed: 2,
            freezes_run: true,
            level_needed: "director".into(),
            remember_options: vec![Remember::Once.into(), Remember::Digest.into(), Remember::Prefix.into()],
            files: vec![BoundFile {
                path: "@project/a.sh".into(),
                sha256: "ab".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&approval, &wire::Timestamp::default(), true, &mut page);
        for part in [
            "needs       2 consents at the level director\n",
            "meanwhile   its run is frozen\n",
            "Runs only if these files have not changed\n  @project/a.sh  sha256 ab\n",
            "coffer approval approve a --remember  (also for the same call again in this run)\n",
            "coffer approval approve a --remember-prefix WORD…",
        ] {
            assert!(page.as_str().contains(part), "{part} is not in\n{}", page.as_str());
        }
    }

    #[test]
    fn without_a_preview_the_operation_itself_is_shown() {
        let approval = Approval {
            state: State::Denied.into(),
            operation_json: r#"{"read":{}}"#.into(),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&approval, &wire::Timestamp::default(), true, &mut page);
        assert!(page.as_str().ends_with("Preview\n{\"read\":{}}\n"), "{}", page.as_str());
    }

    #[test]
    fn an_approval_with_a_passkey_leads_to_the_console() {
        let approval = Approval {
            approval_id: "a".into(),
            state: State::Pending.into(),
            needs_passkey: true,
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&approval, &wire::Timestamp::default(), true, &mut page);
        let text = page.as_str();
        assert!(
            text.ends_with(
                "approve: in the console, with a passkey (coffer console)\ndeny:    coffer approval deny a\n"
            ),
            "{text}"
        );
    }
}
