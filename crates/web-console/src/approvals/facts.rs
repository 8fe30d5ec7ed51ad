//! Shows the facts of a request that a reviewer needs: who asks, why, for what exactly, under which rule, and until when.

use maud::{Markup, html};
use serde_json::Value;
use timestamp::UnixMillis;
use wire::Timestamp;
use wire::v1::approval::State;
use wire::v1::{Approval, ApprovalVote, BoundFile, Run};

use super::arguments::arguments;
use super::diff::diff;
use crate::shown::line;

/// Returns the path of the page of an approval.
pub(super) fn path(approval: &Approval) -> String {
    let id = &approval.approval_id;
    let is_plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_plain { format!("/approvals/{id}") } else { "/approvals".to_owned() }
}

/// Rows of a table of facts. An empty value has no row.
pub(super) fn rows(rows: &[(&str, &str)]) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
                dt { (name) }
                dd { (line(value)) }
            }
        }
    }
}

/// Returns the target of a connection or of a push, such as `example.org:443`. Empty for a call.
pub(super) fn target(approval: &Approval) -> String {
    if approval.operation != "connect" && approval.operation != "push" {
        return String::new();
    }
    let value: Value = serde_json::from_str(&approval.operation_json).unwrap_or_default();
    let fields = value.get("connect").or_else(|| value.get("push")).unwrap_or(&value);
    let text = |key| match fields.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let (host, port) = (text("host"), text("port"));
    if port.is_empty() { host } else { format!("{host}:{port}") }
}

/// Shows the operation and its target.
pub(super) fn headline(approval: &Approval) -> Markup {
    let target = target(approval);
    html! {
        (line(&approval.operation))
        @if !target.is_empty() { " to " (line(&target)) }
    }
}

/// Shows the state of an approval, and who has decided.
pub(super) fn state(approval: &Approval, now: UnixMillis) -> Markup {
    let comment = !approval.comment.is_empty();
    html! {
        @match approval.state() {
            State::Pending => {
                p.notice.waits {
                    strong { "Waits for a decision." } " Expires in " (time_left(approval.expires_at.as_ref(), now)) "."
                    @if approval.freezes_run { " The run is frozen meanwhile." }
                    @if approval.reminded { " Half of the time is over." }
                }
            }
            State::Approved => { p.notice.good { strong { "Approved" } (by(approval)) } }
            State::Denied => { p.notice.bad { strong { "Denied" } (by(approval)) } }
            State::Expired => { p.notice.bad { strong { "Expired." } " No reviewer decided in time, so it was denied." } }
            State::Cancelled => { p.notice { strong { "Cancelled." } " The call was cancelled, or its run ended." } }
            State::Unspecified => { p.notice { "The state is unknown." } }
        }
        @if comment { p { "Comment: " (line(&approval.comment)) } }
        @if !approval.consent_id.is_empty() {
            p { "The consent is remembered for the run: " (line(&approval.consent_id)) "." }
        }
        @if !approval.votes.is_empty() {
            ul.votes { @for one in &approval.votes { li { (vote(one)) } } }
        }
    }
}

fn by(approval: &Approval) -> Markup {
    html! {
        @if !approval.decided_by.is_empty() { " by " (line(&approval.decided_by)) }
        @if let Some(at) = &approval.decided_at { " at " (moment(at)) }
        "."
    }
}

fn vote(vote: &ApprovalVote) -> Markup {
    html! {
        (line(&vote.principal)) " (" (line(&vote.level)) ") "
        @if vote.approved { "consents" } @else { "denies" }
        @if let Some(at) = &vote.voted_at { " at " (moment(at)) }
        @if !vote.comment.is_empty() { ": " (line(&vote.comment)) }
    }
}

/// Shows a moment, UTC.
pub(crate) fn moment(at: &Timestamp) -> Markup {
    let text = at.to_string();
    html! { time datetime=(text) { (text) } }
}

/// Shows the time until `end`. The script of the page counts it down.
pub(super) fn time_left(end: Option<&Timestamp>, now: UnixMillis) -> Markup {
    let end = end.and_then(UnixMillis::from_wire).unwrap_or(now);
    let seconds = end.since(now).as_secs();
    html! { span.left data-until=(end.0) { (seconds / 60) " min " (seconds % 60) " s" } }
}

/// Shows the risk, by a word and a class.
pub(super) fn risk(approval: &Approval) -> Markup {
    let class = match approval.risk.as_str() {
        "low" => "low",
        "medium" => "medium",
        "high" => "high",
        _ => "critical",
    };
    html! { span class={ "risk " (class) } { "risk: " (line(&approval.risk)) } }
}

/// Shows who asks and why. `run` is the run, if the viewer may see it.
pub(super) fn who_and_why(approval: &Approval, run: Option<&Run>) -> Markup {
    let asked_at = approval.created_at.as_ref().map(ToString::to_string).unwrap_or_default();
    let consents = match approval.approvals_needed {
        0 => String::new(),
        1 => format!("1 consent at the level {}", approval.level_needed),
        many => format!("{many} consents at the level {}", approval.level_needed),
    };
    html! {
        section {
            h2 { "Who asks, and why" }
            p { (risk(approval)) }
            (rows(&[
                ("Agent", &approval.agent_id),
                ("Role", &approval.role),
                ("Asked by", &approval.requested_by),
                ("Asked at", &asked_at),
                ("Why", &approval.justification),
                ("Rule", &approval.rule),
                ("Profile", &approval.profile),
                ("Needs", &consents),
                ("Time from", &approval.decision_time_from),
                ("Run", &approval.run_id),
                ("Call", &approval.call_id),
                ("Approval", &approval.approval_id),
                ("Policy", &approval.policy_digest),
                ("Bound to", &approval.digest),
            ]))
            @if let Some(run) = run { (of_run(run)) }
        }
    }
}

/// Shows the task of a run: its labels and its image.
fn of_run(run: &Run) -> Markup {
    let mut labels: Vec<_> = run.labels.iter().collect();
    labels.sort();
    html! {
        h3 { "Its run" }
        dl.facts {
            dt { "Image" } dd { (line(&run.image)) }
            @if let Some(at) = &run.created_at { dt { "Since" } dd { (moment(at)) } }
            @for (key, value) in labels { dt { "Label " (line(key)) } dd { (line(value)) } }
        }
    }
}

/// Shows what exactly is asked for.
pub(super) fn what(approval: &Approval) -> Markup {
    html! {
        section {
            h2 { "What exactly" }
            @if !approval.preview.is_empty() { (diff(&approval.preview)) }
            h3 { "Arguments, one by one" }
            (arguments(&approval.operation_json))
            @if !approval.files.is_empty() {
                h3 { "Runs only if these files have not changed" }
                ul.files { @for one in &approval.files { li { (file(one)) } } }
            }
        }
    }
}

fn file(file: &BoundFile) -> Markup {
    html! {
        (line(&file.path)) " "
        @match (file.sha256.as_str(), file.unreadable.as_str()) {
            ("", "") => { span.state { "is absent" } }
            ("", why) => { span.state { "cannot be read (" (line(why)) ") and may change unseen" } }
            (hash, _) => { span.state { "sha256 " (line(hash)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::v1::approval::Remember;

    use super::*;

    const HOSTILE: &str = "<script>x</script>\u{202e}\u{1b}[2K\"'&\u{200b}\r\n<a href=//evil.example.org>";

    /// An approval of which each text is hostile.
    fn hostile(state: State) -> Approval {
        let text = || HOSTILE.to_owned();
        let vote = ApprovalVote { principal: text(), level: text(), comment: text(), ..Default::default() };
        let file = BoundFile { path: text(), sha256: text(), ..Default::default() };
        let unreadable = BoundFile { path: text(), unreadable: text(), ..Default::default() };
        Approval {
            approval_id: text(),
            state: state.into(),
            run_id: text(),
            call_id: text(),
            agent_id: text(),
            requested_by: text(),
            operation: text(),
            operation_json: serde_json::json!({ HOSTILE: [HOSTILE, { HOSTILE: HOSTILE }] }).to_string(),
            preview: text(),
            justification: text(),
            risk: text(),
            digest: text(),
            created_at: Some(Timestamp::default()),
            expires_at: Some(Timestamp::default()),
            decided_by: text(),
            decided_at: Some(Timestamp::default()),
            comment: text(),
            role: text(),
            profile: text(),
            rule: text(),
            policy_digest: text(),
            approvals_needed: 2,
            level_needed: text(),
            votes: vec![vote],
            remember_options: vec![Remember::Once.into()],
            files: vec![file, unreadable],
            reminded: true,
            consent_id: text(),
            freezes_run: true,
            decision_time_from: text(),
            needs_passkey: true,
        }
    }

    #[test]
    fn no_field_of_an_approval_or_its_run_becomes_markup() {
        let run = Run {
            image: HOSTILE.into(),
            labels: [(HOSTILE.to_owned(), HOSTILE.to_owned())].into(),
            ..Default::default()
        };
        for state in [State::Pending, State::Approved, State::Denied, State::Expired, State::Cancelled] {
            let approval = hostile(state);
            let connect = Approval {
                operation: "connect".into(),
                operation_json: serde_json::json!({ "host": HOSTILE, "port": 1 }).to_string(),
                ..approval.clone()
            };
            let shown = [
                headline(&approval),
                headline(&connect),
                super::state(&approval, UnixMillis(0)),
                who_and_why(&approval, Some(&run)),
                what(&approval),
            ];
            let shown = shown.map(maud::PreEscaped::into_string).concat();
            assert!(shown.contains("&lt;script&gt;"), "{shown}");
            for bad in ["<script", "<a ", "\u{202e}", "\u{1b}", "\u{200b}", "\r"] {
                assert!(!shown.contains(bad), "{bad:?} is in {shown}");
            }
        }
    }

    #[test]
    fn a_path_has_no_foreign_text() {
        let of = |id: &str| path(&Approval { approval_id: id.into(), ..Default::default() });
        let plain = "0198a1b2-0000-7000-8000-00000000aaaa";
        assert_eq!(of(plain), format!("/approvals/{plain}"));
        for bad in ["", "../x", "a?b", "//evil.example.org", "a b", "\u{202e}"] {
            assert_eq!(of(bad), "/approvals", "{bad}");
        }
    }

    #[test]
    fn the_target_of_a_connection_is_named() {
        let of = |operation: &str, json: &str| {
            target(&Approval {
                operation: operation.into(),
                operation_json: json.into(),
                ..Default::default()
            })
        };
        assert_eq!(of("connect", r#"{"host":"example.org","port":443}"#), "example.org:443");
        assert_eq!(of("push", r#"{"push":{"host":"git.example.org","port":443}}"#), "git.example.org:443");
        assert_eq!(of("connect", r#"{"host":"example.org"}"#), "example.org");
        assert_eq!(of("connect", "no json"), "");
        assert_eq!(of("exec", r#"{"host":"example.org"}"#), "");
    }

    #[test]
    fn time_that_is_left_never_is_negative() {
        let end = UnixMillis(125_000).to_wire();
        assert!(time_left(Some(&end), UnixMillis(0)).into_string().contains("2 min 5 s"));
        assert!(time_left(Some(&end), UnixMillis(900_000)).into_string().contains("0 min 0 s"));
        assert!(time_left(None, UnixMillis(900_000)).into_string().contains("0 min 0 s"));
    }
}
