//! Paths that are refused although they are beneath a mount.
//!
//! These rules check names, so they apply to the names that a caller passes and to every name that a symlink leads
//! through. They are no confinement: a hard link has another name, and a command in the container is bound only by the
//! container.

use crate::access::Access;
use crate::lookalike::{is_dot_git, is_name};
use crate::mount::Mount;
use crate::path::SandboxPath;
use crate::refusal::PathRefusal;
use crate::rel::RelPath;
use crate::temporary_name::TEMPORARY_PREFIX;

/// The directory in @state with the run's log. The daemon's directory is mounted there, read-only for all but the host
/// lane.
pub const RUN_LOG: &str = "logs";

/// Top directories that no path of the container may enter. Each may lead to any other file, or to the guest.
pub(crate) const SYSTEM: [&str; 4] = ["proc", "sys", "dev", ".cofferdam"];

/// Permission to read git's hooks and configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GitReads {
    /// They are refused, because a configuration may contain credentials.
    #[default]
    Guarded,
    /// They are readable like other files.
    Open,
}

/// A profile's rules for protected paths. The default is the strict one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Protection {
    /// Controls reads of `.git/hooks` and `.git/config`. Writing git's files is always refused.
    pub git_reads: GitReads,
}

impl Protection {
    /// Refuses `path` if `access` to it is not permitted, for every caller and every content.
    pub fn check(self, path: &SandboxPath, access: Access) -> Result<(), PathRefusal> {
        let rel = path.rel();
        if path.mount() == Mount::Container {
            outside_of_mounts(path)?;
        }
        match access {
            Access::Write if !path.mount().is_writable() => {
                Err(PathRefusal::ReadOnlyMount { mount: path.mount(), path: path.excerpt() })
            }
            Access::Write if rel.components().any(is_dot_git) => {
                Err(PathRefusal::GitInternals { path: path.excerpt() })
            }
            Access::Write | Access::Execute if in_package_binaries(rel) => {
                Err(PathRefusal::PackageBinaries { path: path.excerpt(), access })
            }
            Access::Write if rel.components().any(|component| component.starts_with(TEMPORARY_PREFIX)) => {
                Err(PathRefusal::ReservedName { path: path.excerpt() })
            }
            Access::Write if path.mount() == Mount::State && in_run_log(rel) => {
                Err(PathRefusal::RunLog { path: path.excerpt() })
            }
            Access::Read | Access::Execute if self.git_reads == GitReads::Guarded && in_git_secrets(rel) => {
                Err(PathRefusal::GitGuarded { path: path.excerpt() })
            }
            Access::Read | Access::Write | Access::Execute => Ok(()),
        }
    }
}

fn outside_of_mounts(path: &SandboxPath) -> Result<(), PathRefusal> {
    let first = path.rel().components().next().unwrap_or_default();
    if SYSTEM.contains(&first) {
        return Err(PathRefusal::System { path: path.excerpt() });
    }
    if Mount::ALL.iter().any(|mount| &mount.container_path()[1..] == first) {
        return Err(PathRefusal::InMount { path: path.excerpt() });
    }
    Ok(())
}

/// Returns true for these files anywhere below `.git`, because submodules and work trees have hooks and configuration there.
fn in_git_secrets(rel: &RelPath) -> bool {
    const SECRETS: [&str; 3] = ["hooks", "config", "config.worktree"];
    rel.components()
        .skip_while(|component| !is_dot_git(component))
        .any(|component| SECRETS.iter().any(|secret| is_name(component, secret)))
}

/// Returns true for the directory in which only the daemon writes.
fn in_run_log(rel: &RelPath) -> bool {
    rel.components().next().is_some_and(|first| is_name(first, RUN_LOG))
}

fn in_package_binaries(rel: &RelPath) -> bool {
    rel.components()
        .zip(rel.components().skip(1))
        .any(|(outer, inner)| is_name(outer, "node_modules") && is_name(inner, ".bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(path: &str, access: Access, git_reads: GitReads) -> &'static str {
        let path = SandboxPath::parse_anywhere(path).unwrap();
        Protection { git_reads }
            .check(&path, access)
            .map_or_else(|refusal| refusal.reason(), |()| "permitted")
    }

    #[test]
    fn table() {
        use Access::{Execute, Read, Write};
        use GitReads::{Guarded, Open};
        for (path, access, git_reads, expected) in [
            (".git", Write, Open, "git_internals"),
            (".git/index", Write, Open, "git_internals"),
            ("sub/.GIT/index", Write, Open, "git_internals"),
            ("git~1/config", Write, Open, "git_internals"),
            (".gitignore", Write, Guarded, "permitted"),
            (".git/HEAD", Read, Guarded, "permitted"),
            (".git/config", Read, Open, "permitted"),
            (".git/config", Read, Guarded, "git_guarded"),
            (".git/Hooks/pre-commit", Read, Guarded, "git_guarded"),
            (".git/hooks", Read, Guarded, "git_guarded"),
            (".git\\hooks", Read, Guarded, "git_guarded"),
            (".git/modules/a/config", Read, Guarded, "git_guarded"),
            (".git/hooks/pre-commit", Execute, Guarded, "git_guarded"),
            ("config", Read, Guarded, "permitted"),
            ("hooks/.git", Read, Guarded, "permitted"),
            ("node_modules/.bin/tsc", Write, Open, "package_binaries"),
            ("a/node_modules/.bin", Execute, Open, "package_binaries"),
            ("node_modules/.bin/tsc", Read, Open, "permitted"),
            ("node_modules/a/.bin", Write, Open, "permitted"),
            ("@pkg/a", Write, Open, "read_only_mount"),
            ("@pkg/a", Read, Open, "permitted"),
            ("@state/a", Write, Open, "permitted"),
            ("@state/logs", Write, Open, "run_log"),
            ("/state/./Logs//execution.jsonl", Write, Open, "run_log"),
            ("@state/logs/execution.jsonl", Read, Guarded, "permitted"),
            ("@state/a/logs", Write, Open, "permitted"),
            ("logs/a", Write, Open, "permitted"),
            ("a/.cofferdam-tmp-0", Write, Open, "reserved_name"),
            ("/etc/hosts", Read, Guarded, "permitted"),
            ("/tmp/a", Write, Guarded, "permitted"),
            ("/", Read, Guarded, "permitted"),
            ("/tmp/proc", Read, Guarded, "permitted"),
            ("/tmp/.git/config", Write, Open, "git_internals"),
            ("/proc/self/mem", Read, Open, "system_path"),
            ("/sys", Read, Open, "system_path"),
            ("/dev/fd/0", Read, Open, "system_path"),
            ("/.cofferdam/guest", Read, Open, "system_path"),
        ] {
            assert_eq!(reason(path, access, git_reads), expected, "{path} {access} {git_reads:?}");
        }
        let name = crate::EntryName::new(b"workspace").unwrap();
        let linked = SandboxPath::new(Mount::Container, RelPath::root().join(&name).unwrap());
        let refused = Protection::default().check(&linked, Read).map_err(|refusal| refusal.reason());
        assert_eq!(refused, Err("in_mount"));
    }
}
