//! `coffer permission list`.

use clap::Args;
use wire::v1::permission::{Effect, Subject};
use wire::v1::{ListPermissionsRequest, Permission, ProfilePathRule};

use crate::client::{Client, Context, pages, quick};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::{ids, time};

const PAGE: u32 = 1_000;

/// List permissions, newest first. Default: only those in force.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer permission list --all")]
pub(crate) struct List {
    /// Include permissions that have expired or were ended.
    #[arg(long)]
    all: bool,
}

impl List {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let permissions = all(&client, self.all).await?;
        let first = ListPermissionsRequest { page_size: 1, ..Default::default() };
        let path_rules = client.permissions().list_permissions(quick(first)).await?.into_inner().path_rules;
        context.ui.answer_and_talk(permissions, |permissions, page, talk| {
            if permissions.is_empty() {
                talk.own("no permissions\n");
            } else {
                render(&permissions, page);
            }
            render_rules(&path_rules, page);
        })
    }
}

/// Returns all permissions, including those that have ended if `include_ended` is true.
pub(super) async fn all(client: &Client, include_ended: bool) -> Result<Vec<Permission>, Failure> {
    let (permissions, _) = pages(usize::MAX, PAGE, async |page_size, page_token| {
        let request = ListPermissionsRequest { page_size, page_token, include_ended };
        let page = client.permissions().list_permissions(quick(request)).await?.into_inner();
        Ok((page.permissions, page.next_page_token))
    })
    .await?;
    Ok(permissions)
}

fn render(permissions: &[Permission], page: &mut Output) {
    let end = ids::ends(permissions.iter().map(|permission| permission.permission_id.as_str()));
    let rows = permissions.iter().map(|one| row(one, end(&one.permission_id)));
    page.table(&["PERMISSION", "EFFECT", "FOR", "OPERATION", "ONLY", "UNTIL", "BY", "REASON"], rows);
}

/// Prints the rules in the profiles, which no command changes.
fn render_rules(rules: &[ProfilePathRule], page: &mut Output) {
    if rules.is_empty() {
        return;
    }
    let rows = rules.iter().map(|rule| {
        vec![
            rule.profile.clone(),
            rule.rule.clone(),
            rule.decision.clone(),
            rule.access.clone(),
            rule.path.join(", "),
            rule.except.join(", "),
            rule.justification.clone(),
        ]
    });
    page.own("\n").table(&["PROFILE", "RULE", "DECISION", "ACCESS", "PATHS", "EXCEPT", "BECAUSE"], rows);
}

fn row(permission: &Permission, end: String) -> Vec<String> {
    let only = match (permission.path_pattern.as_str(), permission.command_prefix.join(" ")) {
        ("", command) => command,
        (path, _) => path.to_owned(),
    };
    vec![
        end,
        effect(permission).to_owned(),
        subject(permission),
        or_any(&permission.operation),
        or_any(&only),
        until(permission),
        permission.created_by.clone(),
        permission.reason.clone(),
    ]
}

pub(super) fn subject(permission: &Permission) -> String {
    match &permission.subject {
        Some(Subject::AgentId(name)) => format!("agent {name}"),
        Some(Subject::Role(name)) => format!("role {name}"),
        Some(Subject::Team(name)) => format!("team {name}"),
        None => String::new(),
    }
}

pub(super) fn effect(permission: &Permission) -> &'static str {
    match permission.effect() {
        Effect::Grant if permission.preapproved => "grant, preapproved",
        Effect::Grant => "grant",
        Effect::Revocation => "revocation",
        Effect::Unspecified => "unknown",
    }
}

pub(super) fn until(permission: &Permission) -> String {
    match (&permission.ended_at, &permission.expires_at) {
        (Some(ended), _) => format!("ended {}", time::moment(Some(ended))),
        (None, Some(end)) => time::moment(Some(end)),
        (None, None) => "until ended".to_owned(),
    }
}

/// Returns `text`, or `any` if it is empty.
pub(super) fn or_any(text: &str) -> String {
    if text.is_empty() { "any" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_permission() {
        let permission = Permission {
            permission_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            effect: Effect::Grant.into(),
            subject: Some(Subject::AgentId("alice".into())),
            operation: "exec".into(),
            command_prefix: vec!["cargo".into(), "test".into()],
            preapproved: true,
            reason: "release".into(),
            created_by: "uid:0".into(),
            in_force: true,
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(std::slice::from_ref(&permission), &mut page);
        let line = page.as_str().lines().nth(1).unwrap();
        for word in [
            "0000aaaa ",
            "grant, preapproved",
            "agent alice",
            "exec",
            "cargo test",
            "until ended",
            "uid:0",
            "release",
        ] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}
