//! Which file a command's name stands for, and whether it may be run.
//!
//! The gateway has judged the name; here every name that its symlinks lead through is judged too, so that a link
//! named `ls` to `rm` is refused as `rm`. A multi-call box (`ls` → `busybox`) is judged by the name that it is
//! invoked by, since its own is on no list. This is about intent: a copy has any name.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jail::{Access, Jail, SandboxPath};
use ops::{Reason, ToolFailure, deny};
use rustix::fs::{Access as Mode, access};

/// Where programs are looked for, whatever `PATH` a call asks for.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;
/// Characters of a command's name in messages.
const SHOWN: usize = 200;

/// The program's absolute path as it is to be executed: links are not resolved in it, because programs look at the
/// name that they were called by. `denied` are the profile's own names beside the list.
pub(super) fn find(command: &str, denied: &[String], jail: &Jail) -> Result<PathBuf, ToolFailure> {
    let path = if command.starts_with('/') { absolute(command)? } else { lookup(command)? };
    for name in names(&path) {
        permitted(&name, command, denied, jail)?;
    }
    Ok(path)
}

/// The shell that scripts and terminals get: bash, or `sh` where the image has no bash.
pub(super) fn login_shell() -> &'static str {
    if lookup("bash").is_ok() { "bash" } else { "sh" }
}

/// A command's name, fit for a message.
pub(super) fn shown(command: &str) -> String {
    command.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

fn absolute(command: &str) -> Result<PathBuf, ToolFailure> {
    let path = PathBuf::from(command);
    if Path::new(command).components().any(|part| part.as_os_str() == "..") {
        let message = format!("{}: a program's path cannot contain `..`", shown(command));
        return Err(ToolFailure::new(Reason::SandboxViolation, message));
    }
    match look(&path) {
        Found::Program => Ok(path),
        Found::NotExecutable => Err(not_executable(&path)),
        Found::Nothing => {
            Err(ToolFailure::new(Reason::NotFound, format!("{}: no such program in the run", shown(command))))
        }
    }
}

fn lookup(name: &str) -> Result<PathBuf, ToolFailure> {
    if name.contains('/') {
        let message = format!(
            "{}: name a program of PATH, or give its absolute path such as /workspace/{}",
            shown(name),
            shown(name.trim_start_matches("./"))
        );
        return Err(ToolFailure::new(Reason::InvalidArgument, message));
    }
    let mut denied = None;
    for directory in PATH.split(':') {
        let path = Path::new(directory).join(name);
        match look(&path) {
            Found::Program => return Ok(path),
            Found::NotExecutable => denied = Some(path),
            Found::Nothing => {}
        }
    }
    Err(denied.map_or_else(|| not_found(name), |path| not_executable(&path)))
}

enum Found {
    Program,
    NotExecutable,
    Nothing,
}

fn look(path: &Path) -> Found {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() && access(path, Mode::EXEC_OK).is_ok() => Found::Program,
        Ok(_) => Found::NotExecutable,
        Err(_) => Found::Nothing,
    }
}

fn not_found(name: &str) -> ToolFailure {
    let message = format!(
        "{}: no such program in this image (looked in {PATH}); there is no shell, so builtins, aliases and \
         operators such as && or | do not exist",
        shown(name)
    );
    ToolFailure::new(Reason::NotFound, message)
}

fn not_executable(path: &Path) -> ToolFailure {
    let message = format!("{}: exists, but is no executable file", shown(&path.to_string_lossy()));
    ToolFailure::new(Reason::PermissionDenied, message)
}

/// The path, what each link in its last component leads to, and the file's own path.
fn names(path: &Path) -> Vec<PathBuf> {
    let mut names = vec![path.to_owned()];
    let mut current = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&current) else { break };
        current = current.parent().unwrap_or(Path::new("/")).join(target);
        names.push(current.clone());
    }
    names.extend(fs::canonicalize(path));
    names
}

fn permitted(name: &Path, command: &str, denied: &[String], jail: &Jail) -> Result<(), ToolFailure> {
    let base = name.file_name().map(OsString::from).unwrap_or_default();
    if deny::is_denied_with(&String::from_utf8_lossy(base.as_bytes()), denied) {
        let message = format!("Command not allowed: {}", shown(command));
        return Err(ToolFailure::new(Reason::CommandNotAllowed, message));
    }
    let in_mount = name.to_str().and_then(|name| SandboxPath::parse(name).ok());
    Ok(in_mount.map_or(Ok(()), |path| jail.check(&path, Access::Execute))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use jail::{GitReads, Mount, Protection, Root};

    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        jail: Jail,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(Mount::Project, dir.path()).unwrap();
        Place { jail: Jail::new([root], Protection { git_reads: GitReads::Guarded }), dir }
    }

    impl Place {
        fn path(&self, name: &str) -> String {
            self.dir.path().join(name).to_str().unwrap().to_owned()
        }

        fn file(&self, name: &str, mode: u32) -> String {
            let path = self.path(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn link(&self, name: &str, target: &str) -> String {
            symlink(target, self.path(name)).unwrap();
            self.path(name)
        }

        fn reason(&self, command: &str) -> Reason {
            find(command, &["docker*".to_owned()], &self.jail).unwrap_err().reason
        }
    }

    #[test]
    fn bare_names_are_looked_up_in_the_fixed_path() {
        let place = place();
        let found = find("true", &[], &place.jail).unwrap();
        assert_eq!(found.file_name().unwrap(), "true");
        assert!(found.is_absolute());
        assert_eq!(place.reason("no-such-program"), Reason::NotFound);
        assert_eq!(place.reason("./tool"), Reason::InvalidArgument);
    }

    #[test]
    fn absolute_paths_must_be_executable_files() {
        let place = place();
        let tool = place.file("tool", 0o755);
        assert_eq!(find(&tool, &[], &place.jail).unwrap(), Path::new(&tool));
        assert_eq!(place.reason(&place.file("text", 0o644)), Reason::PermissionDenied);
        assert_eq!(place.reason(&place.path("")), Reason::PermissionDenied);
        assert_eq!(place.reason(&place.path("gone")), Reason::NotFound);
        assert_eq!(place.reason(&place.path("../tool")), Reason::SandboxViolation);
    }

    #[test]
    fn links_are_seen_through() {
        let place = place();
        place.file("rm", 0o755);
        place.file("busybox", 0o755);
        assert_eq!(place.reason(&place.link("harmless", "rm")), Reason::CommandNotAllowed);
        assert_eq!(place.reason(&place.link("twice", "harmless")), Reason::CommandNotAllowed);
        assert_eq!(place.reason(&place.link("Dd", "busybox")), Reason::CommandNotAllowed);
        place.file("docker-compose", 0o755);
        assert_eq!(place.reason(&place.link("compose", "docker-compose")), Reason::CommandNotAllowed);
        assert!(find(&place.link("ls", "busybox"), &[], &place.jail).is_ok());
        let refusal = find(&place.path("harmless"), &[], &place.jail).unwrap_err();
        assert!(refusal.message.starts_with("Command not allowed: /"), "{}", refusal.message);
    }

    #[test]
    fn package_binaries_are_refused_by_their_container_path() {
        let place = place();
        let refused =
            permitted(Path::new("/workspace/node_modules/.bin/tsc"), "tsc", &[], &place.jail).unwrap_err();
        assert_eq!(refused.reason, Reason::SandboxViolation);
        assert_eq!(refused.details.get("refusal").map(String::as_str), Some("package_binaries"));
    }
}
