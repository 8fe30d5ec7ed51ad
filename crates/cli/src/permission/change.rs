//! `coffer permission grant` and `coffer permission revoke`.

use std::time::Duration;

use clap::Args;
use wire::v1::permission::Subject;
use wire::v1::{GrantPermissionRequest, Permission, RevokePermissionRequest};
use wire::v1::{grant_permission_request as grant, revoke_permission_request as revoke};

use super::resolve;
use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};
use crate::time;
use crate::ui::Ui;

/// Grant an agent, a role or a team an operation beyond its role, within the profile; or lift a revocation.
///
/// A grant allows nothing that the profile, a command rule or the deny list denies. With --preapproved the
/// call runs without the approval that the profile would ask for. Prints the permission's id.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer permission grant --agent alice --operation exec --preapproved --for 2h --reason 'release' -- cargo test"
)]
pub(crate) struct Grant {
    /// Lift this revocation instead: its id, or a unique beginning or end of it.
    #[arg(long, value_name = "ID", conflicts_with_all = ["agent", "role", "team", "operation", "path", "preapproved", "lasts", "command"])]
    lift: Option<String>,
    #[command(flatten)]
    scope: Scope,
    /// Approve in advance: the call runs without the approval that the profile would ask for.
    #[arg(long)]
    preapproved: bool,
    /// Only commands that begin with these words. For the operation exec.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// End a grant, or revoke an operation that an agent, a role or a team has by its role, its team or a grant.
///
/// A revocation overrides every grant. It also covers wrapped or differently spelled commands. Prints the permission's id.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer permission revoke --agent alice --operation git.commit --reason 'code freeze'"
)]
pub(crate) struct Revoke {
    /// The grant to end: its id, or a unique beginning or end of it.
    #[arg(value_name = "ID", conflicts_with_all = ["agent", "role", "team", "operation", "path", "lasts", "command"])]
    id: Option<String>,
    #[command(flatten)]
    scope: Scope,
    /// Only commands that begin with these words.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Subject and object of a permission.
#[derive(Args, Debug)]
struct Scope {
    /// For this agent.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["role", "team"])]
    agent: Option<String>,
    /// For every agent with this role.
    #[arg(long, value_name = "ROLE", conflicts_with = "team")]
    role: Option<String>,
    /// For every agent of this team.
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// The operation, such as write or git.commit. A revocation without one covers every operation.
    #[arg(long, value_name = "OPERATION")]
    operation: Option<String>,
    /// Only calls whose paths match this pattern, as in 'src/**'.
    #[arg(long, value_name = "PATTERN")]
    path: Option<String>,
    /// How long it applies, as in 2h. Default: until it is ended.
    #[arg(long = "for", id = "lasts", value_name = "DURATION", value_parser = time::parse)]
    lasts: Option<Duration>,
    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT", required = true)]
    reason: String,
}

impl Scope {
    fn permission(self, command: Vec<String>, preapproved: bool) -> Result<Permission, Failure> {
        let subject = match (self.agent, self.role, self.team) {
            (Some(name), ..) => Subject::AgentId(name),
            (_, Some(name), _) => Subject::Role(name),
            (.., Some(name)) => Subject::Team(name),
            _ => return Err(Failure::usage("the subject is missing: use --agent, --role or --team")),
        };
        let expires_at = self.lasts.map(|lasts| {
            let mut at = time::now();
            at.seconds = at.seconds.saturating_add(i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX));
            at
        });
        Ok(Permission {
            subject: Some(subject),
            operation: self.operation.unwrap_or_default(),
            path_pattern: self.path.unwrap_or_default(),
            command_prefix: command,
            preapproved,
            reason: self.reason,
            expires_at,
            ..Default::default()
        })
    }
}

impl Grant {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let reason = self.scope.reason.clone();
        let what = match self.lift {
            Some(id) => grant::What::LiftPermissionId(id),
            None => grant::What::Permission(self.scope.permission(self.command, self.preapproved)?),
        };
        let client = context.connect().await?;
        let what = match what {
            grant::What::LiftPermissionId(id) => grant::What::LiftPermissionId(resolve(&client, &id).await?),
            permission @ grant::What::Permission(_) => permission,
        };
        let request = GrantPermissionRequest { what: Some(what), reason };
        let response = client.permissions().grant_permission(quick(request)).await?.into_inner();
        show(context.ui, &response.permission.unwrap_or_default())
    }
}

impl Revoke {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let reason = self.scope.reason.clone();
        let what = match self.id {
            Some(id) => revoke::What::PermissionId(id),
            None => revoke::What::Permission(self.scope.permission(self.command, false)?),
        };
        let client = context.connect().await?;
        let what = match what {
            revoke::What::PermissionId(id) => revoke::What::PermissionId(resolve(&client, &id).await?),
            permission @ revoke::What::Permission(_) => permission,
        };
        let request = RevokePermissionRequest { what: Some(what), reason };
        let response = client.permissions().revoke_permission(quick(request)).await?.into_inner();
        show(context.ui, &response.permission.unwrap_or_default())
    }
}

fn show(ui: Ui, permission: &Permission) -> Ended {
    ui.answer(permission, |permission, page| {
        page.word(&permission.permission_id).end_line();
    })
}
