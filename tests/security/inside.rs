//! A run with the probe in its workspace.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::v1;
use harness::v1::operation::Kind as Operation;
use harness::v1::run::StartKind;
use harness::{Daemon, RunHandle, Setup, calls, reason};
use rustix::fs::{CWD, Mode, mkfifoat};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

/// Where the run sees the probe.
pub(crate) const PROBE: &str = "/workspace/probe";
/// What a workspace's files belong to on the host.
const OWNER: u32 = 4321;
/// Variables that a command has in its environment, which `confinement.rs` names.
pub(crate) const VARIABLES: usize = 8;
/// An event that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run with the probe in its workspace.
pub(crate) struct Inside {
    pub(crate) run: RunHandle,
    /// The workspace on the host.
    pub(crate) workspace: PathBuf,
}

impl Inside {
    /// A run of the profile `open`, where commands need nobody's consent.
    pub(crate) async fn enter(daemon: &Daemon, name: &str) -> Self {
        Self::enter_with(daemon, name, v1::CreateRunRequest::default()).await
    }

    /// The same, otherwise as asked.
    pub(crate) async fn enter_with(daemon: &Daemon, name: &str, request: v1::CreateRunRequest) -> Self {
        let workspace = daemon.workspace(name, &[]);
        Self::enter_at(daemon, workspace, request).await
    }

    /// A run of the profile `harness`, which a [`lenient`] daemon permits.
    pub(crate) async fn harness(daemon: &Daemon, name: &str, request: v1::CreateRunRequest) -> Self {
        let request = v1::CreateRunRequest { profile: "harness".to_owned(), ..request };
        Self::enter_with(daemon, name, request).await
    }

    /// The same, in an existing workspace.
    pub(crate) async fn enter_at(daemon: &Daemon, workspace: PathBuf, request: v1::CreateRunRequest) -> Self {
        let program = workspace.join("probe");
        std::fs::copy(harness::probe(), &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(&program, Some(OWNER), Some(OWNER)).unwrap();
        let source = v1::workspace::Source::Bind(v1::BindWorkspace { path: workspace.display().to_string() });
        let profile = if request.profile.is_empty() { "open".to_owned() } else { request.profile };
        let request = v1::CreateRunRequest {
            profile,
            agent_id: "attacker".to_owned(),
            role: "director".to_owned(),
            workspace: Some(v1::Workspace { source: Some(source) }),
            ..request
        };
        let run =
            daemon.run_with(request).await.unwrap_or_else(|status| panic!("{status}\n{}", daemon.log()));
        Self { run, workspace }
    }

    /// Runs the probe to its end and returns the lines that it printed.
    pub(crate) async fn probe(&mut self, args: &[&str]) -> Vec<String> {
        self.probe_with(args, Vec::new()).await
    }

    /// The same with bytes for its standard input.
    pub(crate) async fn probe_with(&mut self, args: &[&str], stdin: Vec<u8>) -> Vec<String> {
        let mut request = exec(args);
        request.stdin = stdin;
        let result = self.exec(request).await;
        assert_eq!((result.exit_code, result.stderr.as_str()), (Some(0), ""), "{args:?}: {}", result.stdout);
        assert_eq!(result.stdout_omitted_bytes, 0, "{args:?} printed too much");
        result.stdout.lines().map(str::to_owned).collect()
    }

    /// Runs a command that may end in any way.
    pub(crate) async fn exec(&mut self, request: v1::ExecRequest) -> v1::ExecResult {
        let response = self.run.call(Operation::Exec(request)).await.unwrap();
        match response.kind().cloned() {
            Some(v1::result::Kind::Exec(result)) => result,
            other => panic!("{other:?}: {:?}", response.error),
        }
    }

    /// The profile of the run, one of the [`PROFILES`].
    pub(crate) fn profile(&self) -> &'static Profile {
        PROFILES.into_iter().find(|profile| profile.name == self.run.run.profile).unwrap()
    }

    /// Ends what commands have left running, each with proof that nothing of it is left, and returns how many processes that were.
    pub(crate) async fn end_left(&mut self) -> u32 {
        let mut processes = 0;
        for left in self.run.listed().await {
            if left.state() == v1::process::State::Running {
                self.run.send(&left.process_id, v1::signal_process_request::Signal::Kill).await.unwrap();
                assert_eq!(self.run.waited(&left.process_id).await.kill.unwrap().left, 0);
                processes += left.left_behind;
            }
        }
        processes
    }

    /// Another connection to the same run.
    pub(crate) async fn again(&self, daemon: &Daemon) -> Self {
        let run = RunHandle { run: self.run.run.clone(), clients: daemon.connect().await };
        Self { run, workspace: self.workspace.clone() }
    }

    /// What is in the container when nothing runs in it.
    pub(crate) fn assert_idle(&self) {
        let processes = harness::processes(&self.run.run.container_id);
        assert_eq!(processes, ["/.cofferdam/guest hold", "/.cofferdam/guest serve"]);
    }

    /// A FIFO in the workspace, through which something inside says that it is so far.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let path = self.workspace.join(name);
        mkfifoat(CWD, &path, Mode::empty()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        // Nobody may write to a file whose owner the mount does not know.
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        // Open for writing too: without a writer there would be no wait, but the end of the file.
        Gate { pipe: pipe::OpenOptions::new().read_write(true).open_receiver(path).unwrap() }
    }
}

/// The host's end of a FIFO.
pub(crate) struct Gate {
    pipe: pipe::Receiver,
}

impl Gate {
    /// Waits for the first byte.
    pub(crate) async fn passed(&mut self) {
        let byte = tokio::time::timeout(PATIENCE, self.pipe.read_u8()).await;
        byte.expect("nobody came through the gate").unwrap();
    }
}

/// A shipped profile under which commands need nobody's consent, with all that differs in what is promised about its containers.
/// Beside it, `harness` has no deny list, longer timeouts and larger limits.
#[derive(Debug)]
pub(crate) struct Profile {
    /// As a request names it.
    pub(crate) name: &'static str,
    /// HOME of its commands.
    pub(crate) home: &'static str,
    /// Directories of the image that commands can change, in a layer of the run's own.
    pub(crate) layer: &'static [&'static str],
    /// Options of `/tmp`.
    pub(crate) tmp: &'static str,
    /// What is said of an absolute path that nothing is at, and that no mount holds.
    pub(crate) nowhere: &'static str,
    /// True if processes that a command leaves running stay until they or the run are ended.
    pub(crate) keeps: bool,
}

const OPEN: Profile = Profile {
    name: "open",
    home: "/tmp",
    layer: &[],
    tmp: "noexec,nosuid,nodev",
    nowhere: "SANDBOX_VIOLATION",
    keeps: false,
};

const HARNESS: Profile = Profile {
    name: "harness",
    home: "/home/agent",
    layer: &["bin", "etc", "home", "usr"],
    tmp: "exec,nosuid,nodev",
    nowhere: "NOT_FOUND",
    keeps: true,
};

/// Under each of them the container keeps the same promises.
pub(crate) const PROFILES: [&Profile; 2] = [&OPEN, &HARNESS];

/// A daemon whose runs of the profile `harness` may work on directories of the host, as those of `open` do.
pub(crate) async fn lenient() -> Daemon {
    Daemon::start_with(Setup { config: "harness_on_bind: allow\n".to_owned(), ..Setup::default() }).await
}

/// A run of the profile `open`, one of `harness`, whose root is writable, and one of `open` in a container that was there before:
/// what the container promises is the same.
pub(crate) async fn every() -> (Daemon, [Inside; 3]) {
    let config = "harness_on_bind: allow\npool: [{ profile: open, min: 1, max: 1 }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let harness = Inside::harness(&daemon, "harness", v1::CreateRunRequest::default()).await;
    // With a limit that no container has which waits.
    let limits = v1::Limits { open_files: 8_000, ..Default::default() };
    let request = v1::CreateRunRequest { limits: Some(limits), ..Default::default() };
    let cold = Inside::enter_with(&daemon, "open", request).await;
    daemon.pool_is_full(1).await;
    let warm = Inside::enter(&daemon, "warm").await;
    let started = [&cold, &harness, &warm].map(|inside| inside.run.run.start_kind());
    assert_eq!(started, [StartKind::Cold, StartKind::Cold, StartKind::Warm]);
    (daemon, [cold, harness, warm])
}

/// A run of each of the [`PROFILES`], made as asked.
pub(crate) async fn both(request: v1::CreateRunRequest) -> (Daemon, Vec<Inside>) {
    both_on(lenient().await, request).await
}

/// The same of a daemon that permits both.
pub(crate) async fn both_on(daemon: Daemon, request: v1::CreateRunRequest) -> (Daemon, Vec<Inside>) {
    let mut runs = Vec::new();
    for profile in PROFILES {
        let request = v1::CreateRunRequest { profile: profile.name.to_owned(), ..request.clone() };
        // Boxed, as a request is large.
        runs.push(Box::pin(Inside::enter_with(&daemon, profile.name, request)).await);
    }
    (daemon, runs)
}

/// The probe as a command.
pub(crate) fn exec(args: &[&str]) -> v1::ExecRequest {
    let args = args.iter().map(ToString::to_string).collect();
    v1::ExecRequest { command: PROBE.to_owned(), args, ..Default::default() }
}

/// What came of an attempt: 0, or the errno.
pub(crate) fn outcomes(lines: &[String]) -> Vec<(String, i32)> {
    let outcome = |line: &String| {
        let (name, outcome) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let errno = if outcome == "ok" { 0 } else { outcome.parse().unwrap_or_else(|_| panic!("{line}")) };
        (name.to_owned(), errno)
    };
    lines.iter().map(outcome).collect()
}

/// Why a call was refused or its tool failed: the stable reason, and the words.
pub(crate) async fn refusal(run: &mut RunHandle, operation: Operation) -> (String, String) {
    match run.call(operation.clone()).await {
        Ok(response) => {
            let Some(error) = response.error else {
                panic!("{operation:?} succeeded: {:?}", response.result)
            };
            (error.reason, error.message)
        }
        Err(status) => (reason(&status), status.message().to_owned()),
    }
}

/// The content of a file, by `read`; or why not.
pub(crate) async fn read(run: &mut RunHandle, path: &str) -> Result<String, String> {
    let response = run.call(calls::read(path)).await.map_err(|status| reason(&status))?;
    match response.kind().cloned() {
        Some(v1::result::Kind::Read(result)) => Ok(result.content),
        _ => Err(response.error.unwrap().reason),
    }
}

/// The content of every regular file below a directory.
pub(crate) fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            files.extend(contents(&path));
        } else if kind.is_file() {
            files.push((path.clone(), std::fs::read(&path).unwrap()));
        } else {
            files.push((path, Vec::new()));
        }
    }
    files.sort();
    files
}
