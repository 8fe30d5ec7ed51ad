//! The commands of the book's pages on operating, as they stand; only names of hosts, files and ports are others.

mod backup;
mod tls;
mod tokens;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use harness::{Daemon, binary};
use tempfile::TempDir;

/// Exit codes of `coffer`.
const REFUSED: i32 = 3;
const UNREACHABLE: i32 = 5;

/// Longer than the commands of a block take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the commands of the block that a comment in the page names.
fn block(page: &'static str, name: &str) -> &'static str {
    let mark = format!("<!-- block: {name} -->\n```sh");
    let (_, after) = page.split_once(&mark).unwrap_or_else(|| panic!("the page has no block {name}"));
    let (_, commands) = after.split_once('\n').unwrap();
    commands.split_once("\n```").unwrap().0
}

/// An operator with an empty home directory.
struct Operator {
    home: TempDir,
    socket: PathBuf,
    config: PathBuf,
    replaced: Vec<(&'static str, String)>,
}

impl Operator {
    /// Returns the operator of this daemon. In the commands each first text is replaced by the second, in order.
    fn of(daemon: &Daemon) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { home, socket: daemon.socket(), config: daemon.config_path(), replaced: Vec::new() }
    }

    fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns the commands with the names of this host.
    fn adapt(&self, commands: &str) -> String {
        self.replaced.iter().fold(commands.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    async fn output(&self, commands: &str) -> Output {
        let directory = binary("coffer").parent().unwrap().display().to_string();
        let path = std::env::var("PATH").unwrap();
        let mut command = tokio::process::Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &self.adapt(commands)]).current_dir(self.home());
        for variable in ["COFFERDAM_TOKEN", "COFFERDAM_TLS", "COFFERDAM_RUN", "NO_COLOR"] {
            command.env_remove(variable);
        }
        command.env("HOME", self.home()).env("PATH", format!("{directory}:{path}"));
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", self.socket.display()));
        command.env("COFFERDAM_CONFIG", &self.config).kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, command.output()).await;
        output.expect("the commands do not end").unwrap()
    }

    /// Runs commands that must succeed, and returns their standard output.
    async fn does(&self, commands: &str) -> String {
        let output = self.output(commands).await;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}\n{out}\n{err}", self.adapt(commands));
        out.into_owned()
    }

    /// Runs commands that must end with this exit code, and returns their standard error.
    async fn fails(&self, code: i32, commands: &str) -> String {
        let output = self.output(commands).await;
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{}\n{err}", self.adapt(commands));
        err
    }
}
