//! A guest with a workspace of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use operations::{
    Bounds, CommandEnd, CommandReport, EndedBy, Exec, ExecResult, KillEvidence, KillMethod, Operation, Stop,
    ToolFailure,
};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;
use worker_protocol::client::{CallSpec, Client, ConnectOptions, Finished, LaneError, Peer, Placement};
use worker_protocol::convert::Reply;

pub(crate) struct Guest {
    pub(crate) client: Client,
    pub(crate) process: Child,
    pub(crate) pid: u32,
    dir: tempfile::TempDir,
}

/// The binary, not yet started.
pub(crate) fn binary(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coffer-guest"));
    command.env("HOME", "/tmp");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

impl Guest {
    pub(crate) async fn start() -> Self {
        Self::patient(ConnectOptions::default().grace).await
    }

    /// One whose client waits so long beyond a call's deadline.
    pub(crate) async fn patient(grace: Duration) -> Self {
        Self::start_with(async |_, input, output| {
            Client::connect(input, output, ConnectOptions { grace, ..ConnectOptions::default() })
                .await
                .unwrap()
        })
        .await
    }

    /// Starts the binary and lets `connect` make the client.
    pub(crate) async fn start_with(
        connect: impl AsyncFnOnce(&Child, ChildStdin, ChildStdout) -> (Client, Peer),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for mount in ["project", "state"] {
            fs::create_dir(dir.path().join(mount)).unwrap();
        }
        let at = |mount: &str| dir.path().join(mount).to_str().unwrap().to_owned();
        let (project, state) = (at("project"), at("state"));
        let mut process =
            binary(&["serve", "--project", &project, "--pkg", "/nonexistent", "--state", &state])
                .env("SECRET_OF_THE_AGENT", "1")
                .spawn()
                .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (client, peer) = connect(&process, input, output).await;
        assert_eq!(Some(peer.pid), process.id());
        Self { client, process, pid: peer.pid, dir }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    /// A script in the workspace; its absolute path.
    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.project().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) async fn call(&self, operation: Operation) -> Result<Reply, ToolFailure> {
        self.finish(operation, Bounds::default(), None, CancellationToken::new()).await.unwrap().outcome
    }

    pub(crate) async fn finish(
        &self,
        operation: Operation,
        bounds: Bounds,
        placement: Option<Arc<dyn Placement>>,
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, LaneError> {
        let deadline = Duration::from_secs(60);
        let spec =
            CallSpec { operation: &operation, bounds: &bounds, deadline, preview: false, output: None };
        self.client.call(spec, placement, cancel).await
    }

    pub(crate) async fn ran(&self, exec: Exec) -> ExecResult {
        result(self.call(Operation::Exec(exec)).await)
    }

    pub(crate) async fn refused(&self, exec: Exec) -> ToolFailure {
        self.call(Operation::Exec(exec)).await.unwrap_err()
    }
}

/// What a client is told of a command that ran.
pub(crate) fn result(outcome: Result<Reply, ToolFailure>) -> ExecResult {
    match outcome {
        Ok(Reply::Command(report)) => made(*report),
        other => panic!("the command did not run: {other:?}"),
    }
}

pub(crate) fn made(report: CommandReport) -> ExecResult {
    let ended_by = if report.stop == Stop::Deadline { EndedBy::Timeout } else { EndedBy::Unspecified };
    let CommandReport { exit, stdout, stderr, usage, kill, .. } = report;
    CommandEnd { exit, ended_by, kill, usage, stdout, stderr, ..CommandEnd::default() }.into()
}

pub(crate) fn command(argv: &[&str]) -> Exec {
    Exec::new(argv[0], argv[1..].iter().copied())
}

pub(crate) fn sh(script: &str) -> Exec {
    command(&["sh", "-c", script])
}

/// How many processes have `marker` among their arguments.
pub(crate) fn running(marker: &str) -> usize {
    let has =
        |path: &Path| fs::read(path.join("cmdline")).is_ok_and(|line| contains(&line, marker.as_bytes()));
    fs::read_dir("/proc").unwrap().flatten().filter(|entry| has(&entry.path())).count()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// The most memory that a process had resident, KiB.
pub(crate) fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A number of seconds that no other test sleeps.
pub(crate) fn nap(test: u32) -> String {
    format!("{}.{:05}", 1000 + test, std::process::id() % 100_000)
}

/// Other processes tell nothing, so they are looked at until it is so.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it did not come to be");
}

/// What `run` comes to within the first limit that lets it get as far as it has to: this one, or on a slow machine a longer one.
pub(crate) async fn given_enough<T>(
    first: Duration,
    run: impl AsyncFn(Duration) -> T,
    is_far: impl Fn(&T) -> bool,
) -> T {
    let (longest, mut limit) = (Duration::from_secs(30), first);
    loop {
        let done = run(limit).await;
        if is_far(&done) || limit >= longest {
            return done;
        }
        limit = longest.min(limit * 10);
    }
}

/// A placement by process group, for commands that behave.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) pid: Mutex<Option<u32>>,
    pub(crate) forced: Mutex<Option<bool>>,
    pub(crate) refuse: bool,
}

impl Placement for Group {
    fn place(&self, pid: u32) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        *self.pid.lock() = Some(pid);
        Box::pin(async { if self.refuse { Err("refused".to_owned()) } else { Ok(()) } })
    }

    fn finish(&self, forced: bool) -> Pin<Box<dyn Future<Output = KillEvidence> + Send + '_>> {
        *self.forced.lock() = Some(forced);
        if let Some(pid) = self.pid.lock().and_then(|pid| Pid::from_raw(i32::try_from(pid).unwrap())) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        Box::pin(async {
            KillEvidence {
                ended: 1,
                left: 0,
                method: KillMethod::CgroupV2Kill.into(),
                took_us: 7,
                running: 0,
            }
        })
    }
}
