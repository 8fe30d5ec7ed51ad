//! The read-only rule: `cat head tail find wc`, from the system's own directories, of which [`super::effects`] knows that
//! they only read, on paths inside the mounts.
//!
//! The rule looks at paths only as text. A link in the workspace can lead elsewhere in the container, where nothing
//! is secret from the run. The mounts are the only way to the host, and they confine by themselves.

use jail::{Access, Protection, SandboxPath};
use ops::{Exec, Reason};

use super::effects::{Effect, effect};
use text::excerpt;

/// Why a command is none of the read-only rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DoesMore {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// The paths that a command of the read-only rule reads.
pub(super) fn paths(exec: &Exec, protection: Protection) -> Result<Vec<SandboxPath>, DoesMore> {
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
    let given = match effect(&program, &exec.args) {
        Effect::Reads(given) => given,
        more => {
            return Err(not(&format!(
                "{}, and only reading is allowed here",
                more.described().unwrap_or_default()
            )));
        }
    };
    // Any variable may change what a program does; none is needed to look at a file.
    if !exec.env.is_empty() {
        return Err(not("where only reading is allowed no environment variable may be set"));
    }
    given.into_iter().map(|path| in_mounts(&exec.cwd, path, protection)).collect()
}

/// The bare name of one of the five programs, or its path in a system directory. Case counts.
fn is_one_of_them(command: &str) -> bool {
    let directory = ["/bin/", "/usr/bin/"].iter().find_map(|directory| command.strip_prefix(directory));
    matches!(directory.unwrap_or(command), "cat" | "head" | "tail" | "find" | "wc")
}

/// The place that a command which runs in `cwd` means by `path`, if that is inside the mounts and not protected.
fn in_mounts(cwd: &SandboxPath, path: &str, protection: Protection) -> Result<SandboxPath, DoesMore> {
    let place = if path.starts_with('/') {
        SandboxPath::parse(path)
    } else {
        // An alias means nothing to a command: `@pkg/a` would be a directory of that name.
        SandboxPath::parse(path).and_then(|_| SandboxPath::parse(&format!("{}/{path}", cwd.container_path())))
    };
    place
        .and_then(|place| protection.check(&place, Access::Read).map(|()| place))
        .map_err(|refusal| DoesMore { reason: Reason::SandboxViolation, message: refusal.to_string() })
}
