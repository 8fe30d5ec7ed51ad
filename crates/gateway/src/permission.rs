//! The second check: what profile, role, teams, and permissions given at run time say to an operation. The strictest of
//! all wins; unknown is denied.
//!
//! [`weigh`] is the one place where this is judged. A call is decided on with it, an explanation shows all of it, and a
//! proposed policy is tried with it.

use ops::{Operation, Reason};

use crate::caller::Caller;
use crate::clock::UnixMillis;
use crate::decision::{Decision, Refusal, Risk, Verdict};
use crate::exec::{self, Applied, ExecRuling};
use crate::grants::{Holders, Permissions, Standing};
use crate::policy::{Grant, Policy, Profile, Role};
use crate::risk::risk_of;
use crate::shown::shown;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'q> {
    pub(crate) policy: &'q Policy,
    pub(crate) permissions: &'q Permissions,
    pub(crate) now: UnixMillis,
    pub(crate) profile: &'q str,
    pub(crate) caller: &'q Caller,
    pub(crate) operation: &'q Operation,
}

/// What a rule says, and in which words.
#[derive(Debug)]
pub(crate) struct Ruling {
    pub(crate) verdict: Verdict,
    pub(crate) rule: String,
    pub(crate) justification: String,
    reason: Reason,
    message: String,
}

/// Everything that was said to a call.
#[derive(Debug)]
pub(crate) struct Weighed {
    /// What has a say in the verdict; of equally strict ones the last decides, for it is the most telling.
    pub(crate) rulings: Vec<Ruling>,
    /// What applies as well, and is looser than one of the same kind.
    pub(crate) beside: Vec<Applied>,
    pub(crate) risk: Risk,
}

impl Weighed {
    /// Which of the rulings decides.
    pub(crate) fn decisive(&self) -> Option<usize> {
        let strictest = self.rulings.iter().map(|ruling| ruling.verdict).max()?;
        self.rulings.iter().rposition(|ruling| ruling.verdict == strictest)
    }

    /// The decision. Its verdict is never `deny`.
    pub(crate) fn decide(mut self, policy: &Policy) -> Result<Decision, Refusal> {
        let Some(decisive) = self.decisive() else {
            return Err(refusal(policy, Reason::PermissionDenied, "no rule applies".to_owned(), "none"));
        };
        match self.rulings.swap_remove(decisive) {
            Ruling { verdict: Verdict::Deny, rule, reason, message, .. } => {
                Err(refusal(policy, reason, message, &rule))
            }
            ruling => Ok(Decision {
                verdict: ruling.verdict,
                rule: ruling.rule,
                risk: self.risk,
                policy_digest: policy.digest().to_owned(),
                justification: ruling.justification,
            }),
        }
    }
}

/// Hears everything that has a say. An unknown profile or role is refused.
pub(crate) fn weigh(question: &Question<'_>) -> Result<Weighed, Refusal> {
    let Question { policy, operation, caller, .. } = *question;
    let Some(profile) = policy.profile(question.profile) else {
        let message = format!("no such profile: `{}`", shown(question.profile));
        return Err(refusal(policy, Reason::NotFound, message, "profile"));
    };
    let Some(role) = policy.role(&caller.role) else {
        let message = format!("the role `{}` is not in the policy", shown(&caller.role));
        return Err(refusal(policy, Reason::PermissionDenied, message, "role"));
    };
    let command = match operation {
        Operation::Exec(exec) => Some(exec::judge(profile, exec)),
        Operation::Shell(shell) => exec::judge_script(profile, shell),
        _ => None,
    };
    let reads = command.as_ref().and_then(|ruling| ruling.reads.as_deref());
    let read_only = reads.is_some();
    let risk = risk_of(profile, operation, reads);
    let standing = standing(question, read_only);

    let of_role = of_holder(question, profile, role, &standing, read_only);
    let of_profile = of_profile(profile, question.profile, operation);
    // Nothing in a script matters to one who may run none: "not this command" would invite to try another.
    let no_script = matches!(operation, Operation::Shell(_))
        && (of_role.verdict == Verdict::Deny || of_profile.verdict == Verdict::Deny);
    let command = command.filter(|_| !no_script);
    let beside = command.as_ref().map_or_else(Vec::new, |ruling| {
        ruling.applied.iter().filter(|applied| applied.rule != ruling.rule).cloned().collect()
    });
    let mut rulings: Vec<Ruling> = of_consent(profile, &caller.role, role, risk).into_iter().collect();
    rulings.extend([of_role, of_profile]);
    rulings.extend(command.map(|ruling| of_command(question.profile, ruling)));
    // Consent that was given beforehand. It speaks to those that would ask, not to those that deny.
    if let Some(given) = standing.given.filter(|given| given.preapproved) {
        for ruling in rulings.iter_mut().filter(|ruling| ruling.verdict == Verdict::Ask) {
            ruling.justification = format!("{}; preapproved by {}: {}", ruling.rule, given.by, given.reason);
            ruling.rule = format!("permission {}", given.id);
            ruling.verdict = Verdict::Allow;
        }
    }
    // First, so that it decides only where nothing else asks.
    rulings.splice(0..0, of_risk(risk));
    Ok(Weighed { rulings, beside, risk })
}

pub(crate) fn refusal(policy: &Policy, reason: Reason, message: String, rule: &str) -> Refusal {
    Refusal {
        reason,
        message,
        rule: rule.to_owned(),
        retry_after: None,
        policy_digest: policy.digest().to_owned(),
    }
}

fn standing(question: &Question<'_>, read_only: bool) -> Standing {
    let Question { policy, permissions, now, caller, operation, .. } = *question;
    let teams = policy.teams_of(&caller.agent_id).map(|(name, _)| name);
    let holders = Holders { agent: &caller.agent_id, role: &caller.role, teams };
    permissions.standing(holders, operation, read_only, now)
}

/// What the agent holds, by its role, its teams and by grants, less what is denied to it or was revoked.
fn of_holder(
    question: &Question<'_>,
    profile: &Profile,
    role: &Role,
    standing: &Standing,
    read_only: bool,
) -> Ruling {
    let Question { policy, caller, .. } = *question;
    let (name, operation) = (&caller.role, question.operation.name());
    let deny = |rule: String, message: String| Ruling {
        verdict: Verdict::Deny,
        rule,
        justification: message.clone(),
        reason: Reason::PermissionDenied,
        message,
    };
    if let Some(taken) = &standing.taken {
        let message = format!("the permission for this `{operation}` was revoked");
        return deny(format!("permission {}", taken.id), message);
    }
    if role.denies(operation, read_only) {
        let message = format!("the role `{name}` denies the operation `{operation}`");
        return deny(format!("role {name}: {operation}"), message);
    }
    if let Some((team, _)) =
        policy.teams_of(&caller.agent_id).find(|(_, team)| team.denies(operation, read_only))
    {
        let message = format!("the team `{team}` denies the operation `{operation}`");
        return deny(format!("team {team}: {operation}"), message);
    }

    let of_role = role.grant(operation, read_only).map(|grant| (grant, format!("role {name}")));
    let of_teams = policy
        .teams_of(&caller.agent_id)
        .filter_map(|(team, of)| Some((of.grant(operation, read_only)?, format!("team {team}"))));
    let given = standing.given.as_ref().map(|given| (Grant::AsProfile, format!("permission {}", given.id)));
    // The role where it is enough, then teams, then grants.
    let best = of_role
        .into_iter()
        .chain(of_teams)
        .chain(given)
        .reduce(|best, next| if next.0 > best.0 { next } else { best });
    let Some((grant, holder)) = best else {
        let message =
            format!("the role `{name}` does not have the operation `{operation}`{}", instead_of(operation));
        return deny(format!("role {name}: {operation}"), message);
    };
    let (verdict, justification) = match grant {
        Grant::AsProfile => (Verdict::Allow, format!("{} has `{operation}`", the(&holder))),
        Grant::Ask if profile.unattended => {
            (Verdict::Allow, format!("{} has `{operation}` in unattended profiles", the(&holder)))
        }
        Grant::Ask => (Verdict::Ask, format!("{} has `{operation}` only with consent", the(&holder))),
    };
    Ruling {
        verdict,
        rule: format!("{holder}: {operation}"),
        justification,
        reason: Reason::PermissionDenied,
        message: String::new(),
    }
}

/// `role worker` in a sentence.
fn the(holder: &str) -> String {
    holder.split_once(' ').map_or_else(|| holder.to_owned(), |(kind, name)| format!("the {kind} `{name}`"))
}

/// What to try where an operation is denied.
fn instead_of(operation: &str) -> &'static str {
    match operation {
        "shell" => "; run one program at a time with `exec`, its arguments as a list",
        _ => "",
    }
}

fn of_profile(profile: &Profile, name: &str, operation: &Operation) -> Ruling {
    let operation = operation.name();
    let (key, verdict) = profile.operation(operation).unwrap_or((operation, Verdict::Deny));
    Ruling {
        verdict,
        rule: format!("profile {name}: operations.{key}"),
        justification: format!("`{operation}` is `{verdict}` under the profile `{name}`"),
        reason: Reason::PermissionDenied,
        message: format!(
            "the operation `{operation}` is denied under the profile `{name}`{}",
            instead_of(operation)
        ),
    }
}

fn of_command(profile_name: &str, ruling: ExecRuling) -> Ruling {
    Ruling {
        verdict: ruling.verdict,
        rule: format!("profile {profile_name}: {}", ruling.rule),
        justification: ruling.justification,
        reason: ruling.reason,
        message: ruling.message,
    }
}

/// A role that has much may have to ask for what is risky, where somebody watches.
fn of_consent(profile: &Profile, name: &str, role: &Role, risk: Risk) -> Option<Ruling> {
    let from = role.consent_from.filter(|from| !profile.unattended && risk >= *from)?;
    Some(Ruling {
        verdict: Verdict::Ask,
        rule: format!("role {name}: consent_from"),
        justification: format!(
            "the role `{name}` needs consent for calls of {from} risk or more, and this is {risk}"
        ),
        reason: Reason::PermissionDenied,
        message: String::new(),
    })
}

/// Nothing critical runs without consent, whatever allows it.
fn of_risk(risk: Risk) -> Option<Ruling> {
    (risk == Risk::Critical).then(|| Ruling {
        verdict: Verdict::Ask,
        rule: "risk: critical".to_owned(),
        justification: "nothing critical runs without consent".to_owned(),
        reason: Reason::PermissionDenied,
        message: String::new(),
    })
}
