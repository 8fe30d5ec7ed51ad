//! The verdict over one command, and over one script.

use std::collections::BTreeMap;

use jail::{Access, PathRefusal, RootMode, SandboxPath};
use operations::{Exec, Operation, Process, ProcessProgram, Reason, Session, SessionInput, Shell};

use command_rules::{DoesMore, Seen, deletes, read_only};
use policy::environment::{not_allowed, redirected};
use policy::{ExecRule, Profile, Verdict};
use text::excerpt;

/// Ruling of a profile's `exec` section on one command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExecRuling {
    pub(crate) verdict: Verdict,
    /// Such as `exec rule 3: cargo test`.
    pub(crate) rule: String,
    pub(crate) justification: String,
    /// Used only if the verdict is `deny`.
    pub(crate) reason: Reason,
    /// Used only if the verdict is `deny`.
    pub(crate) message: String,
    /// The paths that the command reads, if the read-only rule covers it.
    pub(crate) reads: Option<Vec<SandboxPath>>,
    /// Every rule that applied, including the decisive one, in the order of the file.
    pub(crate) applied: Vec<Applied>,
}

/// A rule that applies to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) verdict: Verdict,
    pub(crate) rule: String,
    pub(crate) justification: String,
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
            applied: Vec::new(),
        }
    }

    fn deny_command(rule: &str, program: &str) -> Self {
        Self::deny(Reason::CommandNotAllowed, rule, format!("Command not allowed: {}", excerpt(program)))
    }
}

/// Judges the program of an operation by a profile. Returns `None` if it runs none, or if no rule speaks about it.
pub(crate) fn judge_operation(profile: &Profile, operation: &Operation) -> Option<ExecRuling> {
    match operation {
        Operation::Exec(exec) => Some(judge(profile, exec)),
        Operation::Shell(shell) => judge_script(profile, shell),
        Operation::Process(process) => judge_process(profile, process),
        Operation::Session(session) => judge_session(profile, session),
        _ => None,
    }
}

/// Judges one command by a profile.
pub(crate) fn judge(profile: &Profile, exec: &Exec) -> ExecRuling {
    let policy = &profile.exec;
    let seen = match Seen::of_command(exec) {
        Ok(seen) => seen,
        // The profile has no rule that looks into the command.
        Err(_) if policy.is_blind() => Seen::default(),
        Err(_) => return ExecRuling::deny_command("exec: too intricate", &exec.command),
    };
    if let Some(ruling) = forbidden(profile, &seen, &exec.cwd, &exec.env) {
        return ruling;
    }

    let reads = match read_only(exec, profile.protection()) {
        // This identifies the program by its name, which proves nothing if commands can replace programs.
        Ok(reads) => (profile.root == RootMode::ReadOnly).then_some(reads),
        Err(DoesMore { reason, message }) if exec.only_reads => {
            return ExecRuling::deny(reason, "only_reads", message);
        }
        Err(_) => None,
    };
    let redirected = redirected(policy, &exec.cwd, &exec.env);
    let read_only = (policy.read_only_commands && reads.is_some()).then(|| {
        let why = "it only reads, inside the mounts".to_owned();
        Applied { verdict: Verdict::Allow, rule: "exec.read_only_commands".to_owned(), justification: why }
    });
    let rules = policy.rules.about(seen.commands()).filter(|(_, rule)| match rule.decision {
        Verdict::Allow => {
            let speaks = !redirected && seen.is_plain_to(rule.prefix.words());
            speaks && seen.commands().next().is_some_and(|argv| rule.prefix.matches_exactly(argv))
        }
        Verdict::Ask | Verdict::Deny => tightens(rule, &seen),
    });
    let mut applied: Vec<Applied> =
        read_only.into_iter().chain(rules.map(|(number, rule)| said(number, rule))).collect();
    if applied.is_empty() {
        let verdict = policy.default;
        let justification = format!("no rule of the profile matches, and its default is `{verdict}`");
        applied.push(Applied { verdict, rule: "exec.default".to_owned(), justification });
    }
    // An `allow` rule that applies has named the part that is not seen through.
    let is_allowed = applied.iter().any(|applied| applied.verdict == Verdict::Allow);
    applied.splice(0..0, not_seen_through(profile, &seen).filter(|_| !is_allowed));
    applied.extend(deletion(profile, &seen).map(|(_, applied)| applied));
    let Some(Applied { verdict, rule, justification }) = strictest(&applied) else {
        return ExecRuling::deny_command("exec.default", &exec.command);
    };
    let message = match verdict {
        Verdict::Deny => format!("Command not allowed: {}", excerpt(&exec.command)),
        Verdict::Allow | Verdict::Ask => String::new(),
    };
    ExecRuling { verdict, rule, justification, reason: Reason::CommandNotAllowed, message, reads, applied }
}

/// Judges one script by a profile, like `sh -c SCRIPT`, except that no `allow` rule and no default of the profile
/// permits it.
///
/// Returns `None` if no rule speaks against it either.
pub(crate) fn judge_script(profile: &Profile, shell: &Shell) -> Option<ExecRuling> {
    // The image decides which of the two shells runs it.
    if let Some(name) = ["sh", "bash"].into_iter().find(|name| profile.exec.denies(name)) {
        return Some(ExecRuling::deny_command("exec deny list", name));
    }
    let seen = match Seen::of_script(shell) {
        Ok(seen) => seen,
        Err(_) if profile.exec.is_blind() => Seen::default(),
        Err(_) => {
            let message =
                "Command not allowed: the script is too complex to be analysed; run its parts one by one";
            return Some(ExecRuling::deny(
                Reason::CommandNotAllowed,
                "exec: too intricate",
                message.to_owned(),
            ));
        }
    };
    if let Some(ruling) = forbidden(profile, &seen, &shell.cwd, &shell.env) {
        return Some(ruling);
    }
    let rules = profile.exec.rules.about(seen.commands()).filter(|(_, rule)| rule.decision > Verdict::Allow);
    let rules = rules.filter_map(|(number, rule)| {
        let argv = seen.commands().find(|argv| rule.prefix.matches_loosely(argv))?;
        Some((argv.first()?.as_str(), said(number, rule)))
    });
    let unseen = not_seen_through(profile, &seen).map(|applied| ("sh", applied));
    let (programs, applied): (Vec<&str>, Vec<Applied>) =
        unseen.into_iter().chain(rules).chain(deletion(profile, &seen)).unzip();
    let best = strictest(&applied)?;
    let program = applied.iter().zip(programs).find(|(one, _)| **one == best).map(|(_, program)| program)?;
    let refusal = ExecRuling::deny_command(&best.rule, program);
    Some(ExecRuling { verdict: best.verdict, justification: best.justification, applied, ..refusal })
}

/// Judges the command or script of a process.
///
/// If the profile asks about commands, it also asks about input that is not there yet. The files that a process reads
/// are never known, because it continues when they change.
pub(crate) fn judge_process(profile: &Profile, process: &Process) -> Option<ExecRuling> {
    let (ruling, program) = match &process.program {
        ProcessProgram::Command(exec) => (Some(judge(profile, exec)), exec.command.as_str()),
        ProcessProgram::Script(shell) => (judge_script(profile, shell), "sh"),
        ProcessProgram::Session { cwd, env } => {
            let nothing = Shell { cwd: cwd.clone(), env: env.clone(), ..Shell::new(":") };
            (judge_script(profile, &nothing), "sh")
        }
    };
    let unseen = process.takes_input().then_some("input that it gets later");
    not_seen_either(profile, ruling, program, unseen)
}

/// Judges the input of a session; a command is judged like the same script.
///
/// If the profile asks about commands, it asks about all such input. Its meaning to the session's shell or program
/// depends on everything that was done there before.
pub(crate) fn judge_session(profile: &Profile, session: &Session) -> Option<ExecRuling> {
    let ruling = session.script().and_then(|script| judge_script(profile, &script));
    let unseen = match session.input {
        SessionInput::Command(_) => Some("its meaning to the shell of the session"),
        SessionInput::Typed(_) => Some("its meaning to the program that reads it"),
        SessionInput::Nothing => None,
    };
    not_seen_either(profile, ruling, "sh", unseen)
}

/// Adds to a ruling that a part of the call is unseen. The files that it reads are then unknown.
fn not_seen_either(
    profile: &Profile,
    ruling: Option<ExecRuling>,
    program: &str,
    unseen: Option<&str>,
) -> Option<ExecRuling> {
    let ruling = ruling.map(|ruling| ExecRuling { reads: None, ..ruling });
    let is_decided = ruling.as_ref().is_some_and(|ruling| ruling.verdict > Verdict::Allow);
    let Some(unseen) = unseen.filter(|_| profile.exec.default > Verdict::Allow && !is_decided) else {
        return ruling;
    };
    let asks = Applied {
        verdict: Verdict::Ask,
        rule: "exec.not_seen_through".to_owned(),
        justification: format!("cannot be judged in advance: {unseen}"),
    };
    let before = ruling.map(|ruling| ruling.applied).unwrap_or_default();
    let refusal = ExecRuling::deny_command(&asks.rule, program);
    let (verdict, justification) = (asks.verdict, asks.justification.clone());
    Some(ExecRuling {
        verdict,
        justification,
        applied: before.into_iter().chain([asks]).collect(),
        ..refusal
    })
}

/// Asks about a part that cannot be seen through, if the profile asks about commands.
fn not_seen_through(profile: &Profile, seen: &Seen) -> Option<Applied> {
    let unseen = seen.unseen().filter(|_| profile.exec.default > Verdict::Allow)?;
    let justification = format!("cannot be judged in advance: {unseen}");
    Some(Applied { verdict: Verdict::Ask, rule: "exec.not_seen_through".to_owned(), justification })
}

/// Applies the profile's verdict for `delete` to the first command that deletes the files it finds.
fn deletion<'s>(profile: &Profile, seen: &'s Seen) -> Option<(&'s str, Applied)> {
    let (program, word) = seen.commands().find_map(|argv| {
        let (program, args) = argv.split_first()?;
        deletes(program, args).map(|word| (program.as_str(), word))
    })?;
    // A profile without a verdict for `delete` has one for commands, and this is a command.
    let verdict = profile.operation("delete").map_or(Verdict::Ask, |(_, verdict)| verdict);
    let justification = format!("`{word}` deletes files, which is judged like `delete`");
    let applied = Applied { verdict, rule: "operations.delete".to_owned(), justification };
    (verdict > Verdict::Allow).then_some((program, applied))
}

/// Refuses what no rule can permit: programs of the deny list, protected paths, variables that are not allowed.
fn forbidden(
    profile: &Profile,
    seen: &Seen,
    cwd: &SandboxPath,
    env: &BTreeMap<String, String>,
) -> Option<ExecRuling> {
    for program in seen.programs() {
        if profile.exec.denies(program) {
            return Some(ExecRuling::deny_command("exec deny list", program));
        }
        if let Some(refusal) = protected(profile, cwd, program) {
            return Some(ExecRuling::deny(Reason::SandboxViolation, "protected paths", refusal));
        }
    }
    let message = not_allowed(&profile.exec, cwd, env)?;
    Some(ExecRuling::deny(Reason::PermissionDenied, "exec.env", message))
}

/// Returns true if an `ask` or `deny` rule matches one of the commands.
fn tightens(rule: &ExecRule, seen: &Seen) -> bool {
    seen.commands().any(|argv| rule.prefix.matches_loosely(argv))
}

fn said(number: usize, rule: &ExecRule) -> Applied {
    Applied {
        verdict: rule.decision,
        rule: format!("exec rule {}: {}", number + 1, rule.prefix),
        justification: rule.justification.clone(),
    }
}

/// Returns the strictest, and the first among equals.
fn strictest(applied: &[Applied]) -> Option<Applied> {
    applied.iter().reduce(|best, next| if next.verdict > best.verdict { next } else { best }).cloned()
}

/// Returns the reason why a program's own path may not be executed.
///
/// A bare name is looked up in the container, and a path outside the mounts is the image's.
fn protected(profile: &Profile, cwd: &SandboxPath, program: &str) -> Option<String> {
    let place = if program.starts_with('/') {
        SandboxPath::parse(program).ok()?
    } else if program.contains('/') {
        SandboxPath::parse(&format!("{}/{program}", cwd.container_path())).ok()?
    } else {
        return None;
    };
    match profile.protection().check(&place, Access::Execute) {
        // With `deny_list: off` names of programs decide nothing, so this check does not apply either.
        Err(PathRefusal::PackageBinaries { .. }) if !profile.exec.deny_list.is_on() => None,
        checked => checked.err().map(|refusal| refusal.to_string()),
    }
}
