//! The first check: the call has to be inside the profile's bounds, and away from protected paths. It needs no reviewer
//! and reads no file.
//!
//! An operation that exists is well-formed. This check adds the bounds that a profile sets, so that no reviewer is
//! asked about a call that its lane would refuse anyway. The lanes check again.

use jail::{Access, PathRefusal, SandboxPath};
use operations::{Effect, Operation, Reason};

use policy::{ContainerPaths, Profile};

/// Reason why a call is rejected before any rule is considered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

type Checked = Result<(), Invalid>;

/// Checks one operation.
pub(crate) fn validate(profile: &Profile, operation: &Operation) -> Checked {
    outside(profile, operation)?;
    timeout(profile, operation)?;
    input(profile, operation)?;
    write_bytes(profile, operation)?;
    let access = match operation.effect() {
        Effect::Reads => Access::Read,
        Effect::Runs => Access::Execute,
        Effect::Writes | Effect::Deletes => Access::Write,
        // These operations leave out protected files themselves.
        Effect::Looks | Effect::Commits | Effect::Keeps | Effect::Foreign => return Ok(()),
    };
    operation.paths().into_iter().try_for_each(|path| permitted(profile, path, access))
}

fn permitted(profile: &Profile, path: &SandboxPath, access: Access) -> Checked {
    profile
        .protection()
        .check(path, access)
        .map_err(|refusal| Invalid { reason: Reason::SandboxViolation, message: refusal.to_string() })
}

/// Rejects a path outside the mounts. The parser has checked this too; here no permit can be made without it.
fn outside(profile: &Profile, operation: &Operation) -> Checked {
    match operation.outside() {
        Some(path) if profile.container_paths == ContainerPaths::Deny => {
            let refusal = PathRefusal::AbsoluteOutside { given: path.excerpt() };
            Err(Invalid { reason: Reason::SandboxViolation, message: refusal.to_string() })
        }
        Some(_) | None => Ok(()),
    }
}

fn timeout(profile: &Profile, operation: &Operation) -> Checked {
    let most = profile.exec.max_timeout();
    if operation.command_timeout().is_none_or(|timeout| timeout <= most) {
        return Ok(());
    }
    let message = format!("a command must be given at most {} s", most.as_secs());
    Err(Invalid { reason: Reason::InvalidArgument, message })
}

/// Rejects input from a file if commands are judged. Input can change what a command does, so the judge has to see it.
fn input(profile: &Profile, operation: &Operation) -> Checked {
    if operation.input_file().is_none() || profile.exec.is_blind() {
        return Ok(());
    }
    let message = "stdin_file: this profile judges commands, and the content of a file cannot be judged: give it as standard input";
    Err(Invalid { reason: Reason::PermissionDenied, message: message.to_owned() })
}

fn write_bytes(profile: &Profile, operation: &Operation) -> Checked {
    let bytes = operation.written_bytes();
    let bounds = &profile.bounds;
    let most =
        if operation.transfer().is_some() { bounds.max_transfer_bytes } else { bounds.max_write_bytes };
    if bytes as u64 <= most {
        return Ok(());
    }
    let message = format!("{bytes} bytes are more than the profile's limit of {most} bytes a file");
    Err(Invalid { reason: Reason::WriteLimit, message })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use operations::{Exec, Shell, Write};

    use super::*;
    use crate::testing::{builtin, exec as command, shell as script, write as writes};

    fn refused(operation: &Operation) -> Option<Reason> {
        let policy = builtin();
        validate(policy.profile("build").unwrap(), operation).err().map(|invalid| invalid.reason)
    }

    #[test]
    fn bounds_are_exact() {
        let most = builtin().profile("build").unwrap().bounds.max_write_bytes;
        let most = usize::try_from(most).unwrap();
        let sized = |bytes: usize| Operation::Write(Write { content: vec![b'x'; bytes], ..writes("a") });
        assert_eq!(refused(&sized(most)), None);
        assert_eq!(refused(&sized(most + 1)), Some(Reason::WriteLimit));
        let timed = |timeout| Operation::Exec(Exec { timeout, ..command(&["make"]) });
        assert_eq!(refused(&timed(Duration::from_secs(120))), None);
        assert_eq!(refused(&timed(Duration::from_millis(120_001))), Some(Reason::InvalidArgument));
    }

    #[test]
    fn c3_a_working_directory_is_a_path_like_any_other() {
        for (cwd, reason) in [
            ("src", None),
            ("@state", None),
            ("@pkg/a", None),
            (".git", None),
            (".git/hooks", Some(Reason::SandboxViolation)),
            ("node_modules/.bin", Some(Reason::SandboxViolation)),
        ] {
            let cwd = SandboxPath::parse(cwd).unwrap();
            let exec = Operation::Exec(Exec { cwd: cwd.clone(), ..command(&["ls"]) });
            let shell = Operation::Shell(Shell { cwd, ..script("ls") });
            assert_eq!((refused(&exec), refused(&shell)), (reason, reason), "{exec:?}");
        }
    }

    #[test]
    fn no_path_outside_of_the_mounts_passes_without_the_profiles_permission() {
        let path = SandboxPath::parse_anywhere("/etc/hosts").unwrap();
        let write = Operation::Write(Write { path, ..writes("a") });
        assert_eq!(refused(&write), Some(Reason::SandboxViolation));
        assert_eq!(validate(builtin().profile("harness").unwrap(), &write), Ok(()));
    }

    #[test]
    fn protected_paths_are_refused_before_approval() {
        for path in [".git/hooks/pre-commit", "@pkg/a", "node_modules/.bin/tsc"] {
            assert_eq!(refused(&Operation::Write(writes(path))), Some(Reason::SandboxViolation), "{path}");
        }
    }
}
