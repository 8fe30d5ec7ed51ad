//! The verdict over one command, and over one script.

use std::collections::BTreeMap;

use jail::{Access, SandboxPath};
use ops::{Exec, Reason, Shell};

use super::denied::is_denied;
use super::environment::{not_allowed, redirects};
use super::read_only;
use super::see_through::{Seen, see_through};
use crate::decision::Verdict;
use crate::policy::{ExecRule, Profile};
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

    fn deny_command(rule: &str, program: &str) -> Self {
        Self::deny(Reason::CommandNotAllowed, rule, format!("Command not allowed: {}", shown(program)))
    }
}

/// Judges one command by a profile.
pub(crate) fn judge(profile: &Profile, exec: &Exec) -> ExecRuling {
    let policy = &profile.exec;
    let argv: Vec<String> = std::iter::once(&exec.command).chain(&exec.args).cloned().collect();
    let Ok(seen) = see_through(argv, &exec.stdin) else {
        return ExecRuling::deny_command("exec: too intricate", &exec.command);
    };
    if let Some(ruling) = forbidden(profile, &seen, &exec.cwd, &exec.env) {
        return ruling;
    }

    let reads = read_only::paths(exec, profile.protection());
    let plain = !seen.wrapped && !exec.env.keys().any(|name| redirects(name));
    let read_only = (policy.read_only_commands && reads.is_some()).then(|| {
        let why = "it only reads, inside the mounts".to_owned();
        (Verdict::Allow, "exec.read_only_commands".to_owned(), why)
    });
    let rules = policy.rules.iter().enumerate().filter(|(_, rule)| match rule.decision {
        Verdict::Allow => {
            plain && seen.commands().next().is_some_and(|argv| rule.prefix.matches_exactly(argv))
        }
        Verdict::Ask | Verdict::Deny => tightens(rule, &seen),
    });
    let best = read_only.into_iter().chain(rules.map(|(number, rule)| said(number, rule)));
    let (verdict, rule, justification) = strictest(best).unwrap_or_else(|| {
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

/// Judges one script by a profile, like `sh -c SCRIPT` but for what loosens: neither an `allow` rule nor the profile's
/// default for commands speaks for a script. `None` when nothing speaks against it either.
pub(crate) fn judge_script(profile: &Profile, shell: &Shell) -> Option<ExecRuling> {
    // Which of the two it is going to be is for the image to say.
    if let Some(name) = ["sh", "bash"].into_iter().find(|name| is_denied(name, &profile.exec.deny)) {
        return Some(ExecRuling::deny_command("exec deny list", name));
    }
    let argv = ["sh", "-c", &shell.script].map(str::to_owned).to_vec();
    let Ok(seen) = see_through(argv, &shell.stdin) else {
        let message =
            "Command not allowed: the script is too intricate to be looked through; run its parts one by one";
        return Some(ExecRuling::deny(Reason::CommandNotAllowed, "exec: too intricate", message.to_owned()));
    };
    if let Some(ruling) = forbidden(profile, &seen, &shell.cwd, &shell.env) {
        return Some(ruling);
    }
    let rules = profile.exec.rules.iter().enumerate().filter(|(_, rule)| rule.decision > Verdict::Allow);
    let applying = rules.filter_map(|(number, rule)| {
        let argv = seen.commands().find(|argv| rule.prefix.matches_loosely(argv))?;
        Some((number, rule, argv.first()?))
    });
    let (number, rule, program) =
        applying.reduce(|best, next| if next.1.decision > best.1.decision { next } else { best })?;
    let (verdict, name, justification) = said(number, rule);
    let refusal = ExecRuling::deny_command(&name, program);
    Some(ExecRuling { verdict, justification, ..refusal })
}

/// What no rule can loosen: programs of the deny list, protected paths, variables without leave.
fn forbidden(
    profile: &Profile,
    seen: &Seen,
    cwd: &SandboxPath,
    env: &BTreeMap<String, String>,
) -> Option<ExecRuling> {
    for program in seen.commands().filter_map(<[String]>::first) {
        if is_denied(program, &profile.exec.deny) {
            return Some(ExecRuling::deny_command("exec deny list", program));
        }
        if let Some(refusal) = protected(profile, cwd, program) {
            return Some(ExecRuling::deny(Reason::SandboxViolation, "protected paths", refusal));
        }
    }
    let name = not_allowed(env, &profile.exec.env)?;
    let message = format!("the environment variable `{}` may not be set under this profile", shown(name));
    Some(ExecRuling::deny(Reason::PermissionDenied, "exec.env", message))
}

/// Whether an `ask` or `deny` rule speaks of any of the commands.
fn tightens(rule: &ExecRule, seen: &Seen) -> bool {
    seen.commands().any(|argv| rule.prefix.matches_loosely(argv))
}

fn said(number: usize, rule: &ExecRule) -> (Verdict, String, String) {
    (rule.decision, format!("exec rule {}: {}", number + 1, rule.prefix), rule.justification.clone())
}

/// Of equally strict ones the first.
fn strictest(rulings: impl Iterator<Item = (Verdict, String, String)>) -> Option<(Verdict, String, String)> {
    rulings.reduce(|best, next| if next.0 > best.0 { next } else { best })
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
