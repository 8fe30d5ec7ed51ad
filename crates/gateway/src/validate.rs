//! The first check: is the call well-formed, and inside the profile's bounds? It asks nobody and looks at no file.
//!
//! The decoder of the request has parsed paths and names already. This module checks the ranges that the operation's
//! fields promise, the profile's bounds, and the protected paths, so that no reviewer is asked about a call that
//! would be refused in its lane anyway. The lanes check again.

use std::collections::BTreeMap;
use std::time::Duration;

use jail::{Access, SandboxPath};
use ops::{
    Delete, Edit, EditChange, Exec, Git, Glob, Grep, List, Operation, Patch, PatchChange, Read, ReadPart,
    Reason, Shell, Write,
};

use crate::policy::Profile;
use text::excerpt;

const MAX_ARGS: usize = 4_096;
const MAX_ARG_BYTES: usize = 128 * 1024;
const MAX_SCRIPT_BYTES: usize = 64 * 1024;
const MAX_STDIN_BYTES: usize = 1024 * 1024;
const MAX_ENV: usize = 256;
const MAX_PATTERN_BYTES: usize = 4_096;
const MAX_GLOB_BYTES: usize = 1_024;
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
const MAX_PATHS: usize = 10_000;
/// Commits that a log shows, at most.
const MAX_COMMITS: u32 = 10_000;
/// Files of one patch: as many as a consent can be bound to.
const MAX_PATCHED: usize = 256;

/// Why a call is not even considered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

type Checked = Result<(), Invalid>;

fn argument(holds: bool, message: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Invalid { reason: Reason::InvalidArgument, message: message() }) }
}

pub(crate) fn validate(profile: &Profile, operation: &Operation) -> Checked {
    match operation {
        Operation::Read(read) => self::read(profile, read),
        Operation::List(list) => self::list(list),
        Operation::Glob(glob) => self::glob(glob),
        Operation::Grep(grep) => self::grep(profile, grep),
        Operation::Exec(exec) => self::exec(profile, exec),
        Operation::Shell(shell) => self::shell(profile, shell),
        Operation::Write(write) => self::write(profile, write),
        Operation::Edit(edit) => self::edit(profile, edit),
        Operation::Patch(patch) => self::patch(profile, patch),
        Operation::Delete(delete) => self::delete(profile, delete),
        Operation::Git(git) => self::git(git),
        // Its names and the bounds of its arguments are those of the type.
        Operation::Mcp(_) => Ok(()),
    }
}

fn within(name: &str, value: u32, most: u32) -> Checked {
    argument((1..=most).contains(&value), || format!("`{name}` must be from 1 to {most}"))
}

fn permitted(profile: &Profile, path: &SandboxPath, access: Access) -> Checked {
    profile
        .protection()
        .check(path, access)
        .map_err(|refusal| Invalid { reason: Reason::SandboxViolation, message: refusal.to_string() })
}

fn read(profile: &Profile, read: &Read) -> Checked {
    if let ReadPart::Lines { first, last } = read.part {
        argument(first >= 1 && last.is_none_or(|last| last >= first), || {
            "lines are counted from 1, and the last must not be before the first".to_owned()
        })?;
    }
    permitted(profile, &read.path, Access::Read)
}

fn list(list: &List) -> Checked {
    within("depth", list.depth, 16)?;
    within("max_entries", list.max_entries, 10_000)
}

fn glob(glob: &Glob) -> Checked {
    argument((1..=MAX_GLOB_BYTES).contains(&glob.pattern.len()), || {
        format!("`pattern` must have 1 to {MAX_GLOB_BYTES} bytes")
    })?;
    within("max_results", glob.max_results, 10_000)
}

fn grep(profile: &Profile, grep: &Grep) -> Checked {
    argument((1..=MAX_PATTERN_BYTES).contains(&grep.pattern.len()), || {
        format!("`pattern` must have 1 to {MAX_PATTERN_BYTES} bytes")
    })?;
    argument(grep.glob.as_ref().is_none_or(|glob| (1..=MAX_GLOB_BYTES).contains(&glob.len())), || {
        format!("`glob` must have 1 to {MAX_GLOB_BYTES} bytes")
    })?;
    argument(grep.before <= 20 && grep.after <= 20, || "`before` and `after` must be at most 20".to_owned())?;
    within("max_matches", grep.max_matches, 1_000)?;
    permitted(profile, &grep.path, Access::Read)
}

fn exec(profile: &Profile, exec: &Exec) -> Checked {
    let command = &exec.command;
    argument(!command.is_empty() && (command.starts_with('/') || !command.contains('/')), || {
        format!("`{}`: a command is a bare name or an absolute path", excerpt(command))
    })?;
    argument(exec.args.len() <= MAX_ARGS, || format!("more than {MAX_ARGS} arguments"))?;
    let bytes = command.len() + exec.args.iter().map(String::len).sum::<usize>();
    argument(bytes <= MAX_ARG_BYTES, || format!("the command line has more than {MAX_ARG_BYTES} bytes"))?;
    argument(![command].into_iter().chain(&exec.args).any(|text| text.contains('\0')), || {
        "arguments must not contain NUL".to_owned()
    })?;
    surroundings(profile, &exec.cwd, &exec.env, &exec.stdin, exec.timeout)
}

fn shell(profile: &Profile, shell: &Shell) -> Checked {
    let script = &shell.script;
    argument(
        !script.trim().is_empty() && script.len() <= MAX_SCRIPT_BYTES && !script.contains('\0'),
        || format!("`script` must not be blank, contain NUL, or have more than {MAX_SCRIPT_BYTES} bytes"),
    )?;
    surroundings(profile, &shell.cwd, &shell.env, &shell.stdin, shell.timeout)
}

fn surroundings(
    profile: &Profile,
    cwd: &SandboxPath,
    env: &BTreeMap<String, String>,
    stdin: &[u8],
    timeout: Duration,
) -> Checked {
    argument(!env.values().any(|value| value.contains('\0')), || {
        "variables must not contain NUL".to_owned()
    })?;
    let env_bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    argument(env.len() <= MAX_ENV && env_bytes <= MAX_ARG_BYTES, || {
        format!("more than {MAX_ENV} environment variables, or more than {MAX_ARG_BYTES} bytes of them")
    })?;
    for name in env.keys() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let well_formed =
            !name.is_empty() && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit());
        argument(well_formed, || format!("`{}` is no name of an environment variable", excerpt(name)))?;
    }
    argument(stdin.len() <= MAX_STDIN_BYTES, || {
        format!("standard input has more than {MAX_STDIN_BYTES} bytes")
    })?;
    let most = profile.exec.max_timeout();
    argument(!timeout.is_zero() && timeout <= most, || {
        format!("a command must be given more than 0 and at most {} s", most.as_secs())
    })?;
    permitted(profile, cwd, Access::Execute)
}

fn write_bytes(profile: &Profile, bytes: usize) -> Checked {
    let most = profile.bounds.max_write_bytes;
    if bytes as u64 <= most {
        return Ok(());
    }
    let message = format!("{bytes} bytes are more than the profile's limit of {most} bytes a file");
    Err(Invalid { reason: Reason::WriteLimit, message })
}

fn sha256(text: Option<&String>) -> Checked {
    let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    argument(text.is_none_or(|text| text.len() == 64 && text.bytes().all(lower_hex)), || {
        "`if_match_sha256` must be 64 lower-case hexadecimal digits".to_owned()
    })
}

fn write(profile: &Profile, write: &Write) -> Checked {
    write_bytes(profile, write.content.len())?;
    sha256(write.if_match_sha256.as_ref())?;
    permitted(profile, &write.path, Access::Write)
}

fn edit(profile: &Profile, edit: &Edit) -> Checked {
    match &edit.change {
        EditChange::StrReplace { old, new, replace_all: _ } => {
            argument(!old.is_empty() && old != new, || {
                "the text to find must not be empty and must differ from its replacement".to_owned()
            })?;
            write_bytes(profile, new.len())?;
        }
        EditChange::Create { content } => write_bytes(profile, content.len())?,
        EditChange::Insert { after_line: _, text } => write_bytes(profile, text.len())?,
    }
    sha256(edit.if_match_sha256.as_ref())?;
    permitted(profile, &edit.path, Access::Write)
}

fn patch(profile: &Profile, patch: &Patch) -> Checked {
    let paths = patch.paths();
    argument((1..=MAX_PATCHED).contains(&paths.len()), || {
        format!("a patch must name 1 to {MAX_PATCHED} files")
    })?;
    if let PatchChange::FrontMatter(update) = patch.change() {
        sha256(update.if_match_sha256.as_ref())?;
    }
    // How large a file becomes is known in its lane only.
    paths.iter().try_for_each(|path| permitted(profile, path, Access::Write))
}

fn delete(profile: &Profile, delete: &Delete) -> Checked {
    argument(!delete.path.rel().is_root(), || "a mount itself cannot be removed".to_owned())?;
    sha256(delete.if_match_sha256.as_ref())?;
    permitted(profile, &delete.path, Access::Write)
}

fn git(git: &Git) -> Checked {
    match git {
        Git::Status => Ok(()),
        Git::Log { max_count, paths, .. } => {
            argument(paths.len() <= MAX_PATHS && (1..=MAX_COMMITS).contains(max_count), || {
                format!("give at most {MAX_PATHS} paths, and ask for 1 to {MAX_COMMITS} commits")
            })
        }
        Git::Diff { paths, .. } | Git::Show { paths, .. } => {
            argument(paths.len() <= MAX_PATHS, || format!("more than {MAX_PATHS} paths"))
        }
        Git::Add { paths } => {
            argument((1..=MAX_PATHS).contains(&paths.len()), || format!("give 1 to {MAX_PATHS} paths"))
        }
        Git::Commit { message } => {
            argument(!message.trim().is_empty() && message.len() <= MAX_MESSAGE_BYTES, || {
                format!("a commit message must not be blank and have at most {MAX_MESSAGE_BYTES} bytes")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert_eq!(refused(&timed(Duration::ZERO)), Some(Reason::InvalidArgument));
    }

    #[test]
    fn malformed_commands_are_refused() {
        for argv in [&[""][..], &["./make"], &["a/b"], &["make", "a\0b"], &["make\0"]] {
            assert_eq!(refused(&Operation::Exec(command(argv))), Some(Reason::InvalidArgument), "{argv:?}");
        }
        let named = |name: &str| {
            let env = [(name.to_owned(), "1".to_owned())].into();
            refused(&Operation::Exec(Exec { env, ..command(&["make"]) }))
        };
        for name in ["", "1A", "A=B", "A-B", "Ä"] {
            assert_eq!(named(name), Some(Reason::InvalidArgument), "{name:?}");
        }
        assert_eq!(named("_A1"), None);
    }

    #[test]
    fn malformed_scripts_are_refused() {
        let most = "x".repeat(MAX_SCRIPT_BYTES);
        assert_eq!(refused(&Operation::Shell(script(&most))), None);
        for text in ["", " \n\t", "ls\0", &(most + "x")] {
            assert_eq!(refused(&Operation::Shell(script(text))), Some(Reason::InvalidArgument), "{text:?}");
        }
        let timed = |timeout| Operation::Shell(Shell { timeout, ..script("ls") });
        assert_eq!(refused(&timed(Duration::from_secs(120))), None);
        assert_eq!(refused(&timed(Duration::from_secs(121))), Some(Reason::InvalidArgument));
        assert_eq!(refused(&timed(Duration::ZERO)), Some(Reason::InvalidArgument));
        let fed = |bytes| Operation::Shell(Shell { stdin: vec![b'x'; bytes], ..script("cat") });
        assert_eq!(refused(&fed(MAX_STDIN_BYTES)), None);
        assert_eq!(refused(&fed(MAX_STDIN_BYTES + 1)), Some(Reason::InvalidArgument));
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
    fn protected_paths_are_refused_before_anybody_is_asked() {
        for path in [".git/hooks/pre-commit", "@pkg/a", "node_modules/.bin/tsc"] {
            assert_eq!(refused(&Operation::Write(writes(path))), Some(Reason::SandboxViolation), "{path}");
        }
    }
}
