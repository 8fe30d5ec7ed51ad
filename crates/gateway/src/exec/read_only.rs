//! The read-only rule: `cat head tail find wc`, from the system's own directories, with flags that are known to be
//! harmless, on paths inside the mounts.
//!
//! A list of what is harmless, not of what is harmful: whatever is not on it falls to the next rule. The paths are
//! only looked at as text. A link in the workspace can lead elsewhere in the container, where nothing is secret from
//! the run; the mounts are the only way to the host, and they hold by themselves.

use jail::{Access, Protection, SandboxPath};
use ops::Exec;

use super::{find, flags};

/// The paths that a command of the read-only rule reads; `None` when it is no such command.
pub(super) fn paths(exec: &Exec, protection: Protection) -> Option<Vec<SandboxPath>> {
    let program = program(&exec.command)?;
    let given = if program == "find" { find::paths(&exec.args)? } else { flags::paths(program, &exec.args)? };
    // Any variable may change what a program does; none is needed to look at a file.
    if !exec.env.is_empty() {
        return None;
    }
    given.into_iter().map(|path| in_mounts(&exec.cwd, path, protection)).collect()
}

/// The bare name of one of the five programs, or of its path in a system directory. Case counts.
fn program(command: &str) -> Option<&str> {
    let name = ["/bin/", "/usr/bin/"]
        .iter()
        .find_map(|directory| command.strip_prefix(directory))
        .unwrap_or(command);
    matches!(name, "cat" | "head" | "tail" | "find" | "wc").then_some(name)
}

/// The place that a command which runs in `cwd` means by `path`, if that is inside the mounts and not protected.
fn in_mounts(cwd: &SandboxPath, path: &str, protection: Protection) -> Option<SandboxPath> {
    let place = if path.starts_with('/') {
        SandboxPath::parse(path)
    } else {
        // An alias means nothing to a command: `@pkg/a` would be a directory of that name.
        SandboxPath::parse(path).ok()?;
        SandboxPath::parse(&format!("{}/{path}", cwd.container_path()))
    };
    let place = place.ok()?;
    protection.check(&place, Access::Read).ok()?;
    Some(place)
}
