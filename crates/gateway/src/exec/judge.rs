//! The verdict over one command.

use jail::{Access, SandboxPath};
use ops::deny::is_denied_with;
use ops::{Exec, Reason};

use super::environment::{not_allowed, redirects};
use super::read_only;
use super::see_through::see_through;
use crate::decision::Verdict;
use crate::policy::Profile;
use crate::shown::shown;

/// What `exec` of a profile says to one command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExecRuling {
    pub(crate) verdict: Verdict,
    /// Such as `exec rule 3: cargo test`.
    pub(crate) rule: String,
    pub(crate) justification: String,
    /// For a verdict of `deny`.
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// The paths that it reads, if it is a command of the read-only rule.
    pub(crate) reads: Option<Vec<SandboxPath>>,
}

impl ExecRuling {
    fn deny(reason: Reason, rule: &str, message: String) -> Self {
        Self {
            verdict: Verdict::Deny,
            rule: rule.to_owned(),
            justification: message.clone(),
            reason,
            message,
            reads: None,
        }
    }
}

/// Judges one command by a profile.
pub(crate) fn judge(profile: &Profile, exec: &Exec) -> ExecRuling {
    let policy = &profile.exec;
    let not_allowed_command = |rule: &str, program: &str| {
        ExecRuling::deny(Reason::CommandNotAllowed, rule, format!("Command not allowed: {}", shown(program)))
    };

    let argv: Vec<String> = std::iter::once(&exec.command).chain(&exec.args).cloned().collect();
    let Ok(seen) = see_through(argv) else {
        return not_allowed_command("exec: too intricate", &exec.command);
    };

    for program in seen.commands().filter_map(<[String]>::first) {
        if is_denied_with(program, &policy.deny) {
            return not_allowed_command("exec deny list", program);
        }
        if let Some(refusal) = protected(profile, &exec.cwd, program) {
            return ExecRuling::deny(Reason::SandboxViolation, "protected paths", refusal);
        }
    }
    if let Some(name) = not_allowed(&exec.env, &policy.env) {
        let message = format!("the environment variable `{}` may not be set under this profile", shown(name));
        return ExecRuling::deny(Reason::PermissionDenied, "exec.env", message);
    }

    let reads = read_only::paths(exec, profile.protection());
    let plain = !seen.wrapped && !exec.env.keys().any(|name| redirects(name));
    let mut best: Option<(Verdict, String, String)> = None;
    let mut consider = |verdict: Verdict, rule: String, justification: &str| {
        if best.as_ref().is_none_or(|(strictest, ..)| verdict > *strictest) {
            best = Some((verdict, rule, justification.to_owned()));
        }
    };
    if policy.read_only_commands && reads.is_some() {
        consider(Verdict::Allow, "exec.read_only_commands".to_owned(), "it only reads, inside the mounts");
    }
    for (number, rule) in policy.rules.iter().enumerate() {
        let applies = match rule.decision {
            Verdict::Allow => {
                plain && seen.commands().next().is_some_and(|argv| rule.prefix.matches_exactly(argv))
            }
            Verdict::Ask | Verdict::Deny => seen.commands().any(|argv| rule.prefix.matches_loosely(argv)),
        };
        if applies {
            consider(
                rule.decision,
                format!("exec rule {}: {}", number + 1, rule.prefix),
                &rule.justification,
            );
        }
    }
    let (verdict, rule, justification) = best.unwrap_or_else(|| {
        let why = format!("no rule of the profile matches, and its default is `{}`", policy.default);
        (policy.default, "exec.default".to_owned(), why)
    });
    ExecRuling {
        verdict,
        rule,
        justification,
        reason: Reason::CommandNotAllowed,
        message: format!("Command not allowed: {}", shown(&exec.command)),
        reads,
    }
}

/// Why a program's own path may not be executed. A bare name is looked up in the container, and a path beneath no
/// mount is the image's.
fn protected(profile: &Profile, cwd: &SandboxPath, program: &str) -> Option<String> {
    let place = if program.starts_with('/') {
        SandboxPath::parse(program).ok()?
    } else if program.contains('/') {
        SandboxPath::parse(&format!("{}/{program}", cwd.container_path())).ok()?
    } else {
        return None;
    };
    profile.protection().check(&place, Access::Execute).err().map(|refusal| refusal.to_string())
}
