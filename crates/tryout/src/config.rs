//! Renders the configuration of a private daemon.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Names of the files in the directory of a private daemon.
pub(crate) const FILE: &str = "cofferd.yaml";
pub(crate) const SOCKET: &str = "cofferd.sock";
pub(crate) const POLICY: &str = "policies";
pub(crate) const LOG: &str = "cofferd.log";
pub(crate) const PID: &str = "pid";

/// First line of the configuration of a private daemon. `coffer down` deletes no directory without it.
pub(crate) const MARK: &str = "# A private daemon of `coffer demo` or `coffer up`, which write this file.";

/// User on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// Returns the user who called `sudo`, or the user of this process. `None` for root.
    pub(crate) fn caller() -> Option<Self> {
        let of = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let own = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let (uid, gid) = if own.0 == 0 { of("SUDO_UID").zip(of("SUDO_GID")).unwrap_or(own) } else { own };
        (uid != 0).then_some(Self { uid, gid })
    }
}

/// Settings of a private daemon.
pub(crate) struct Settings<'a> {
    /// Directory of all its files.
    pub(crate) directory: &'a Path,
    pub(crate) roots: &'a [PathBuf],
    pub(crate) has_policy: bool,
    pub(crate) busybox: &'a Path,
    /// User who may do everything, beside root.
    pub(crate) user: Option<User>,
}

impl Settings<'_> {
    /// Renders the file.
    pub(crate) fn render(&self) -> Result<String, Failure> {
        let group = self.user.map_or_else(String::new, |user| format!(", group: {}", user.gid));
        let within = |name: &str| quoted(&self.directory.join(name));
        let roots: Vec<String> = self.roots.iter().map(|root| quoted(root)).collect::<Result<_, _>>()?;
        let mut text = format!(
            "{MARK}\nlisten:\n  unix: {{ path: {}, mode: \"0660\"{group} }}\nstate_dir: {}\nworkspace_roots: [{}]\n",
            within(SOCKET)?,
            within("state")?,
            roots.join(", "),
        );
        if self.has_policy {
            let _ = writeln!(text, "policy_dir: {}", within(POLICY)?);
        }
        let _ = write!(
            text,
            "docker: {{ endpoint: {} }}\ndefault_image: {{ busybox: {} }}\n\
             # Here one person plays the agent and its approver. Never in production.\n\
             approvals: {{ timeout: 5m, allow_self_approval: true }}\n",
            string(&engine()),
            quoted(self.busybox)?,
        );
        if let Some(user) = self.user {
            let _ = writeln!(
                text,
                "access:\n  - {{ uid: {}, roles: [operator, approver, orchestrator, auditor] }}",
                user.uid
            );
        }
        Ok(text)
    }
}

/// Returns the address of the engine, which `DOCKER_HOST` can name.
pub(crate) fn engine() -> String {
    let named = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
    named.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned())
}

/// Returns the path of a directory without links.
pub(crate) fn real(path: &Path) -> Result<PathBuf, Failure> {
    let real = std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()));
    match real {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(real) => Err(Failure::usage(format!("{} is not a directory", real.display()), "")),
        Err(message) => Err(Failure::usage(message, "")),
    }
}

/// Returns a path as a YAML string.
pub(crate) fn quoted(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    text.map(string).ok_or_else(|| {
        Failure::usage(
            format!("{} has characters that a configuration cannot have", path.display()),
            "name a directory with a plain path",
        )
    })
}

/// Returns a text as a YAML string. A string of JSON is one.
fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_lists_the_user_and_quotes_paths() {
        let settings = Settings {
            directory: Path::new("/var/tmp/d"),
            roots: &[PathBuf::from("/home/me/a \"b\"")],
            has_policy: true,
            busybox: Path::new("/bin/busybox"),
            user: Some(User { uid: 1000, gid: 100 }),
        };
        let text = settings.render().unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("docker:")).collect();
        assert_eq!(
            lines,
            [
                MARK,
                "listen:",
                "  unix: { path: \"/var/tmp/d/cofferd.sock\", mode: \"0660\", group: 100 }",
                "state_dir: \"/var/tmp/d/state\"",
                "workspace_roots: [\"/home/me/a \\\"b\\\"\"]",
                "policy_dir: \"/var/tmp/d/policies\"",
                "default_image: { busybox: \"/bin/busybox\" }",
                "# Here one person plays the agent and its approver. Never in production.",
                "approvals: { timeout: 5m, allow_self_approval: true }",
                "access:",
                "  - { uid: 1000, roles: [operator, approver, orchestrator, auditor] }",
            ]
        );
    }

    #[test]
    fn paths_with_control_characters_are_refused() {
        assert!(quoted(Path::new("/a\nstate_dir: /")).is_err());
    }
}
