//! Tells people of approvals that wait: gives the crate `notices` what the gateway and the tokens know.

use std::sync::Arc;
use std::time::Duration;

use calls::Approvals;
use gateway::{Approval, ApprovalFilter, ApprovalState, Gateway};
use identity::{ApiToken, NOBODY, Role, Roles, RunId, TokenId};
use listener::{GuardLayer, Tokens};
use notices::{Board, Links, Notice, Push};
use timestamp::UnixMillis;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use web_console::{Doors, Identity, Token};
use webhook::Sender;

use crate::config::Notices;

/// Life of the credential of a session that a link in a notice opens.
const SESSION: Duration = Duration::from_secs(900);

/// Starts the tasks that tell of approvals, if the configuration has somebody to tell.
pub(crate) fn start(
    settings: &Notices,
    (gateway, approvals): (Arc<Gateway>, Arc<Approvals>),
    (tokens, guard): (Arc<Tokens>, GuardLayer),
    (push, doors): (Option<Arc<Push>>, Option<Arc<Doors>>),
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> anyhow::Result<()> {
    let hooks = settings.open()?;
    let links = Links { console: doors.as_ref().map(|doors| doors.origin().to_string()) };
    if hooks.is_empty() && push.is_none() {
        return Ok(());
    }
    let sender = Sender::new().map_err(anyhow::Error::msg)?;
    let board = Arc::new(Board::default());
    for hook in hooks {
        tasks.spawn(hook.run(board.clone(), links.clone(), sender.clone(), stop.clone()));
    }
    if let Some(push) = push {
        let may_review =
            Box::new(move |principal: &str, since: UnixMillis| may_review(&tokens, &guard, principal, since));
        let link = Box::new(move |principal: &str, (approval, run): (&str, &str)| {
            let is_linked = principal.starts_with("uid:") || principal.starts_with("token:");
            let made = doors
                .as_ref()
                .filter(|_| is_linked)
                .and_then(|doors| doors.make_notice_link(principal, (approval, run), UnixMillis::now()));
            made.unwrap_or_else(|| links.approval(approval))
        });
        tasks.spawn(push.run(board.clone(), (link, may_review), sender, stop.clone()));
    }
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.run_until_cancelled(follow(board, gateway, approvals)).await;
    });
    Ok(())
}

/// Keeps the board as the gateway's approvals are.
async fn follow(board: Arc<Board>, gateway: Arc<Gateway>, approvals: Arc<Approvals>) {
    loop {
        // Subscribes before it lists, so that no change is missed between the two.
        let mut changes = approvals.changes();
        let pending = ApprovalFilter { state: Some(ApprovalState::Pending), run_id: None };
        board.replace(gateway.list_approvals(&pending).iter().map(notice));
        loop {
            match changes.recv().await {
                Ok(approval) if approval.state == ApprovalState::Pending => board.waits(notice(&approval)),
                Ok(approval) => board.ended(&approval.approval_id, approval.state.as_str()),
                Err(RecvError::Lagged(_)) => break,
                Err(RecvError::Closed) => return,
            }
        }
    }
}

fn notice(approval: &Approval) -> Notice {
    Notice {
        approval_id: approval.approval_id.clone(),
        run_id: approval.run_id.clone(),
        operation: approval.operation.clone(),
        profile: approval.profile.clone(),
        risk: approval.risk.as_str(),
        requested_by: approval.requested_by.clone(),
        expires_at: approval.expires_at,
        preview: approval.preview.clone(),
    }
}

/// Returns false for a principal that decides on nothing now.
///
/// That is a user or a certificate without the role, or the principal of tokens of which none that it had at `since` is in force.
fn may_review(tokens: &Tokens, guard: &GuardLayer, principal: &str, since: UnixMillis) -> bool {
    if let Some(name) = principal.strip_prefix("token:") {
        return reviewing(tokens, name, since).is_some();
    }
    // The roles of an issuer's holders are in their tokens alone.
    guard.roles_of(principal).is_none_or(|roles| roles.has_any(&[Role::Approver, Role::Director]))
}

/// Returns the newest token of this name, of those at `since`, that decides on approvals of any run.
///
/// A token that was made later is for another device or person: the one before may have been stolen.
fn reviewing(tokens: &Tokens, name: &str, since: UnixMillis) -> Option<ApiToken> {
    tokens.list(false).into_iter().find(|token| {
        let is_wide = token.runs.is_empty() && token.profiles.is_empty();
        let decides = token.roles.has_any(&[Role::Approver, Role::Director]);
        token.name == name && token.created_at <= since && is_wide && decides
    })
}

/// Returns the credential of a session that a link in a notice opens: it decides on approvals of one run. The link was made at `since`.
///
/// The holder of a token gets another one of the same name, for this run and a quarter of an hour, on record. A principal with neither a
/// user nor a token signs in.
pub(crate) async fn identify(
    tokens: &Tokens,
    principal: &str,
    run: &str,
    since: UnixMillis,
) -> Option<Identity> {
    if let Some(uid) = principal.strip_prefix("uid:") {
        return Some(Identity::User { uid: uid.parse().ok()?, gid: NOBODY });
    }
    let name = principal.strip_prefix("token:")?;
    // As much as the newest token, and not from more networks.
    let newest = reviewing(tokens, name, since)?;
    let roles = [Role::Approver, Role::Director].into_iter().filter(|role| newest.roles.has(*role));
    let roles = roles.fold(Roles::none(), Roles::with);
    let (id, now) = (TokenId::new(), UnixMillis::now());
    let (secret, hash) = ApiToken::issue(id);
    let token = ApiToken {
        id,
        name: name.to_owned(),
        roles,
        profiles: Vec::new(),
        runs: vec![RunId::parse(run).ok()?],
        networks: newest.networks,
        created_by: principal.to_owned(),
        uid: NOBODY,
        gid: NOBODY,
        created_at: now,
        expires_at: now.after(SESSION).min(newest.expires_at),
        ended: None,
        hash,
    };
    tokens.create(token).await.ok()?;
    // The last one may have been revoked meanwhile, which ended only the tokens that were there.
    if reviewing(tokens, name, since).is_none() {
        tokens.revoke(id, principal).await.ok()?;
        return None;
    }
    Token::parse(&secret).map(Identity::Token)
}
