//! The second check: what profile and role say to an operation. The stricter of the two wins; unknown is denied.

use ops::{Operation, Reason};

use crate::decision::{Decision, Refusal, Verdict};
use crate::exec::{self, ExecRuling};
use crate::policy::{Grant, Policy, Profile, Role};
use crate::risk::risk_of;
use crate::shown::shown;

/// What a rule says, and in which words.
struct Ruling {
    verdict: Verdict,
    rule: String,
    justification: String,
    reason: Reason,
    message: String,
}

/// Decides over an operation, or refuses it. The decision's verdict is never `deny`.
pub(crate) fn decide(
    policy: &Policy,
    profile_name: &str,
    role_name: &str,
    operation: &Operation,
) -> Result<Decision, Refusal> {
    let Some(profile) = policy.profile(profile_name) else {
        return Err(refusal(
            policy,
            Reason::NotFound,
            format!("no such profile: `{}`", shown(profile_name)),
            "profile",
        ));
    };
    let Some(role) = policy.role(role_name) else {
        let message = format!("the role `{}` is not in the policy", shown(role_name));
        return Err(refusal(policy, Reason::PermissionDenied, message, "role"));
    };
    let command = match operation {
        Operation::Exec(exec) => Some(exec::judge(profile, exec)),
        Operation::Shell(shell) => exec::judge_script(profile, shell),
        _ => None,
    };
    let reads = command.as_ref().and_then(|ruling| ruling.reads.as_deref());
    let risk = risk_of(operation, reads);
    let of_role = of_role(profile, role_name, role, operation, reads.is_some());
    let of_profile = of_profile(profile, profile_name, operation);
    // Nothing in a script matters to one who may run none: "not this command" would invite to try another.
    let no_script = matches!(operation, Operation::Shell(_))
        && (of_role.verdict == Verdict::Deny || of_profile.verdict == Verdict::Deny);
    let command = command.filter(|_| !no_script);
    let rulings = [Some(of_role), Some(of_profile), command.map(|ruling| of_command(profile_name, ruling))];
    // Of equally strict ones the last is taken: it is the most telling.
    let strictest = rulings
        .into_iter()
        .flatten()
        .reduce(|best, next| if next.verdict >= best.verdict { next } else { best });
    match strictest {
        Some(Ruling { verdict: Verdict::Deny, rule, reason, message, .. }) => {
            Err(refusal(policy, reason, message, &rule))
        }
        Some(ruling) => Ok(Decision {
            verdict: ruling.verdict,
            rule: ruling.rule,
            risk,
            policy_digest: policy.digest().to_owned(),
            justification: ruling.justification,
        }),
        None => Err(refusal(policy, Reason::PermissionDenied, "no rule applies".to_owned(), "none")),
    }
}

pub(crate) fn refusal(policy: &Policy, reason: Reason, message: String, rule: &str) -> Refusal {
    Refusal { reason, message, rule: rule.to_owned(), policy_digest: policy.digest().to_owned() }
}

fn of_role(profile: &Profile, name: &str, role: &Role, operation: &Operation, read_only: bool) -> Ruling {
    let operation = operation.name();
    let (verdict, justification) = match role.grant(operation, read_only) {
        Some(Grant::AsProfile) => (Verdict::Allow, format!("the role `{name}` has `{operation}`")),
        Some(Grant::Ask) if profile.unattended => {
            (Verdict::Allow, format!("the role `{name}` has `{operation}` in unattended profiles"))
        }
        Some(Grant::Ask) => (Verdict::Ask, format!("the role `{name}` has `{operation}` only with consent")),
        None => (Verdict::Deny, String::new()),
    };
    Ruling {
        verdict,
        rule: format!("role {name}: {operation}"),
        justification,
        reason: Reason::PermissionDenied,
        message: format!(
            "the role `{name}` does not have the operation `{operation}`{}",
            instead_of(operation)
        ),
    }
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
    let verdict = profile.operations.get(operation).copied().unwrap_or(Verdict::Deny);
    Ruling {
        verdict,
        rule: format!("profile {name}: operations.{operation}"),
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
