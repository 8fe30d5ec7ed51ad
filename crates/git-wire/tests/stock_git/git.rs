//! The git of the machine, without the configuration of its user.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns a command of git in a directory.
pub(crate) fn git(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .envs([
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
        ])
        .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@example.org")])
        .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@example.org"), ("LC_ALL", "C")])
        .env("HOME", directory)
        .stdin(Stdio::null());
    command
}

/// Runs git, which must succeed, and returns its output.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> String {
    let output = git(directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs git, which must fail, and returns its words.
pub(crate) fn fail(directory: &Path, arguments: &[&str]) -> String {
    let output = git(directory).args(arguments).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "git {arguments:?} succeeded: {words}");
    words
}
