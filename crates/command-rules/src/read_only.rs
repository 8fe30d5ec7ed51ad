//! The read-only rule: `cat head tail find wc` from the system's directories, if [`super::effects`] knows that they
//! only read, on paths inside the mounts.
//!
//! The rule checks paths only as text. A link in the workspace can lead elsewhere in the container, where no file is
//! secret from the run. The mounts are the only way to the host, and they confine by themselves.

use jail::{Access, Protection, SandboxPath};
use operations::{Exec, Reason};

use super::effects::reads;
use text::excerpt;

/// Reason why the read-only rule does not cover a command.
#[derive(Debug, PartialEq, Eq)]
pub struct DoesMore {
    pub reason: Reason,
    pub message: String,
}

/// Returns the paths that a command reads if the read-only rule covers it.
pub fn read_only(exec: &Exec, protection: Protection) -> Result<Vec<SandboxPath>, DoesMore> {
    let not = |why: &str| {
        let message = format!("Command not allowed: {}: {why}", excerpt(&exec.command));
        DoesMore { reason: Reason::CommandNotAllowed, message }
    };
    let program = exec.program();
    if !is_one_of_them(&program) {
        return Err(not(
            "only cat, head, tail, find and wc of the image are known to read and do nothing else",
        ));
    }
    let given = reads(&program, &exec.args).map_err(|word| {
        not(&format!("`{}` is not known to be harmless, and only reading is allowed here", excerpt(word)))
    })?;
    // Any variable may change the effect of a program, and none is needed to read a file.
    if !exec.env.is_empty() {
        return Err(not("a read-only command must not set environment variables"));
    }
    given.into_iter().map(|path| in_mounts(&exec.cwd, path, protection)).collect()
}

/// Returns true for the bare name of one of the five programs, or its path in a system directory. Case matters.
fn is_one_of_them(command: &str) -> bool {
    let directory = ["/bin/", "/usr/bin/"].iter().find_map(|directory| command.strip_prefix(directory));
    matches!(directory.unwrap_or(command), "cat" | "head" | "tail" | "find" | "wc")
}

/// Returns the path that a command in `cwd` means by `path`, if it is inside the mounts and not protected.
fn in_mounts(cwd: &SandboxPath, path: &str, protection: Protection) -> Result<SandboxPath, DoesMore> {
    let place = if path.starts_with('/') {
        SandboxPath::parse(path)
    } else {
        // A command knows no aliases: `@pkg/a` would be a directory of that name.
        SandboxPath::parse(path).and_then(|_| SandboxPath::parse(&format!("{}/{path}", cwd.container_path())))
    };
    place
        .and_then(|place| protection.check(&place, Access::Read).map(|()| place))
        .map_err(|refusal| DoesMore { reason: Reason::SandboxViolation, message: refusal.to_string() })
}
