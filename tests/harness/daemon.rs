//! Starting and stopping `cofferd`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::runtime::{Builder, Runtime};

use crate::client::Clients;
use crate::engine::{self, docker};
use crate::mounts::mounts_beneath;
use crate::network::Network;

/// Longer than anything here takes. The default image is imported when a daemon first starts on an engine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections live here: they answer the daemon's goodbye while a test's own runtime is blocked by waiting for its end.
static CONNECTIONS: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

/// Ends a daemon whose test is gone, by the time limit of the test runner, say.
struct Leash {
    _watcher: Child,
    line: std::io::PipeWriter,
}

impl Leash {
    /// `directory` is the daemon's: it goes with it.
    fn new(pid: u32, directory: &Path) -> Self {
        let (end, line) = std::io::pipe().unwrap();
        // In another session, so that a kill of the test's process group spares it.
        let watcher = Command::new("setsid")
            .args(["sh", concat!(env!("CARGO_MANIFEST_DIR"), "/harness/leash.sh")])
            .arg(pid.to_string())
            .arg(directory)
            .stdin(end)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { _watcher: watcher, line }
    }

    /// The test has ended the daemon itself.
    fn release(mut self) {
        let _ = std::io::Write::write_all(&mut self.line, b"\n");
    }
}

/// How a daemon is to be, where it differs from the harness's defaults.
#[derive(Debug, Default, Clone)]
pub struct Setup {
    /// Further lines of the configuration, YAML at top level.
    pub config: String,
    /// One person is agent and approver. The harness has one uid.
    pub forbid_self_approval: bool,
    /// Keys of `listen.tcp`; empty: no such listener.
    pub tcp: String,
    /// Policy files by name, in place of the built-in policy.
    pub policy: Vec<(&'static str, String)>,
    /// Further variables of its environment.
    pub environment: Vec<(&'static str, String)>,
    /// Capabilities that it lacks, as setpriv(1) names them.
    pub lacks: &'static [&'static str],
    /// The host that it is on; absent: this one.
    pub network: Option<Arc<Network>>,
}

/// A daemon. It ends with the value, and its directory with it.
pub struct Daemon {
    child: Option<Child>,
    leash: Option<Box<Leash>>,
    directory: TempDir,
    environment: Vec<(&'static str, String)>,
    lacks: &'static [&'static str],
    network: Option<Arc<Network>>,
}

impl Daemon {
    /// Starts one with the defaults.
    pub async fn start() -> Self {
        Self::start_with(Setup::default()).await
    }

    /// Starts one and waits until it answers.
    pub async fn start_with(setup: Setup) -> Self {
        let directory = tempfile::Builder::new().prefix("cofferdam-test-").tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(directory.path().join("roots")).unwrap();
        let environment = setup.environment.clone();
        let (lacks, network) = (setup.lacks, setup.network.clone());
        let mut daemon = Self { child: None, leash: None, directory, environment, lacks, network };
        std::fs::write(daemon.config_path(), daemon.config(&setup)).unwrap();
        if !setup.policy.is_empty() {
            std::fs::create_dir(daemon.policy_dir()).unwrap();
        }
        for (name, text) in &setup.policy {
            std::fs::write(daemon.policy_dir().join(name), text).unwrap();
        }
        daemon.launch().await;
        daemon
    }

    fn config(&self, setup: &Setup) -> String {
        let root = self.directory.path().display();
        let tcp = if setup.tcp.is_empty() { String::new() } else { format!(", tcp: {{ {} }}", setup.tcp) };
        let mut config = format!(
            "listen: {{ unix: {{ path: {root}/cofferd.sock, mode: \"0660\" }}{tcp} }}\n\
             state_dir: {root}/state\n"
        );
        // Nodes of a fleet may share theirs.
        if !setup.config.contains("workspace_roots:") {
            writeln!(config, "workspace_roots: [{root}/roots]").unwrap();
        }
        // The engine of the `docker` command.
        if let Some(engine) = engine::address()
            && !setup.config.contains("docker:")
        {
            writeln!(config, "docker: {{ endpoint: \"{engine}\" }}").unwrap();
        }
        if !setup.policy.is_empty() {
            writeln!(config, "policy_dir: {root}/policy").unwrap();
        }
        if !setup.config.contains("approvals:") {
            writeln!(config, "approvals: {{ allow_self_approval: {} }}", !setup.forbid_self_approval)
                .unwrap();
        }
        config + &setup.config
    }

    /// Starts the process again, after [`Self::kill`] or [`Self::stop`], on the same directory.
    pub async fn launch(&mut self) {
        assert!(self.child.is_none(), "the daemon runs already");
        let child = self.spawn(&self.config_path(), &[]);
        self.is_now(child);
        self.answers().await;
    }

    /// Starts a process that takes over from this one, with a configuration.
    pub fn spawn_successor(&self, config: &Path) -> Child {
        self.spawn(config, &["--take-over"])
    }

    /// Starts a process that takes over, and waits until this one has ended and that one answers.
    pub async fn take_over(&mut self) {
        let successor = self.spawn_successor(&self.config_path());
        let status = self.is_followed_by(successor).await;
        assert!(status.success(), "the earlier daemon ended with {status}:\n{}", self.log());
        self.answers().await;
    }

    /// Waits until this process has ended. The daemon is the other one from now on.
    pub async fn is_followed_by(&mut self, successor: Child) -> std::process::ExitStatus {
        let mut earlier = self.child.take().expect("the daemon does not run");
        let ended = tokio::time::timeout(PATIENCE, earlier.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("the earlier daemon does not end:\n{}", self.log()));
        self.is_now(successor);
        status.unwrap()
    }

    /// The daemon is this process. The previous one, if there was one, has ended.
    fn is_now(&mut self, child: Child) {
        if let Some(leash) = self.leash.take() {
            leash.release();
        }
        self.leash = child.id().map(|pid| Box::new(Leash::new(pid, self.directory.path())));
        self.child = Some(child);
    }

    fn spawn(&self, config: &Path, further: &[&str]) -> Child {
        let log = std::fs::File::options().create(true).append(true).open(self.log_path()).unwrap();
        self.command()
            .arg("--config")
            .arg(config)
            .args(further)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Waits until the daemon answers.
    pub async fn answers(&mut self) {
        let answered = tokio::time::timeout(PATIENCE, async {
            loop {
                let child = self.child.as_mut().unwrap();
                if let Some(status) = child.try_wait().unwrap() {
                    panic!("cofferd ended with {status}:\n{}", self.log());
                }
                if let Ok(mut clients) = self.try_connect().await
                    && clients.runs.list_runs(crate::v1::ListRunsRequest::default()).await.is_ok()
                {
                    return;
                }
                // There is nothing to wait on before the socket is there.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(answered.await.is_ok(), "cofferd does not answer:\n{}", self.log());
    }

    /// Whether its process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// Waits until the daemon answers, or until its process has ended.
    pub async fn answers_or_ends(&mut self) {
        let settled = async {
            while !self.has_ended() {
                if let Ok(mut clients) = self.try_connect().await
                    && clients.runs.list_runs(crate::v1::ListRunsRequest::default()).await.is_ok()
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let settled = tokio::time::timeout(PATIENCE, settled).await;
        assert!(settled.is_ok(), "cofferd neither answers nor ends:\n{}", self.log());
    }

    /// The program. It keeps the pid of what starts it.
    fn command(&self) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(network) = &self.network {
            words.extend(network.enter().map(OsString::from));
        }
        if !self.lacks.is_empty() {
            let lacks: Vec<_> = self.lacks.iter().map(|name| format!("-{name}")).collect();
            words.push("setpriv".into());
            words.extend(
                ["bounding-set", "inh-caps"]
                    .map(|set| OsString::from(format!("--{set}={}", lacks.join(",")))),
            );
            words.push("--".into());
        }
        words.push(binary("cofferd").into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// A connection of one's own.
    pub async fn connect(&self) -> Clients {
        self.try_connect().await.unwrap()
    }

    async fn try_connect(&self) -> Result<Clients, tonic::transport::Error> {
        let socket = self.socket();
        CONNECTIONS.spawn(async move { Clients::connect(&socket).await }).await.unwrap()
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("cofferd.sock")
    }

    /// Its state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Its policy directory, when the set-up has policy files.
    pub fn policy_dir(&self) -> PathBuf {
        self.directory.path().join("policy")
    }

    /// A place of the host that no run may reach.
    pub fn outside(&self) -> &Path {
        self.directory.path()
    }

    /// The one workspace root.
    pub fn roots(&self) -> PathBuf {
        self.directory.path().join("roots")
    }

    /// Makes a workspace with these files, owned by an ordinary user as most are.
    pub fn workspace(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let workspace = self.roots().join(name);
        std::fs::create_dir_all(&workspace).unwrap();
        for (path, content) in files {
            let path = workspace.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        own(&workspace, 4321);
        workspace
    }

    /// A workspace that is a git repository with one commit of these files.
    pub fn repository(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let workspace = self.workspace(name, files);
        for arguments in [&["init", "-q", "-b", "main"][..], &["add", "-A"], &["commit", "-q", "-m", "first"]]
        {
            git(&workspace, arguments);
        }
        own(&workspace, 4321);
        workspace
    }

    /// Everything that it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The word that follows `before` in its log, the last time that it was said.
    pub fn told(&self, before: &str) -> String {
        let log = self.log();
        let (_, after) = log.rsplit_once(before).expect(before);
        after.split_whitespace().next().unwrap().to_owned()
    }

    /// Waits until the pool has said so many times, over all starts, that as many containers wait as are wanted.
    pub async fn pool_is_full(&self, times: usize) {
        let full = async {
            // No client is told of it.
            while self.log().matches("warm containers wait").count() < times {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let full = tokio::time::timeout(PATIENCE, full).await;
        assert!(full.is_ok(), "the pool is not full:\n{}", self.log());
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().and_then(Child::id).expect("the daemon does not run")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Sends it a signal, unless its process has ended.
    pub fn signal_if_there(&mut self, signal: Signal) {
        if !self.has_ended() {
            self.signal(signal);
        }
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill(&mut self) {
        let mut child = self.child.take().expect("the daemon does not run");
        if child.try_wait().unwrap().is_none() {
            child.kill().await.unwrap();
        }
    }

    /// Kills it, and starts the next one on the same state.
    pub async fn relaunch(&mut self) {
        self.kill().await;
        self.launch().await;
    }

    /// Runs `coffer` as a client of this daemon.
    pub fn coffer(&self, arguments: &[&str]) -> Output {
        let mut command = std::process::Command::new(binary("coffer"));
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", self.socket().display()));
        command.args(arguments).output().unwrap()
    }

    /// Asks it to stop and waits until it has; it must end with success.
    pub async fn stop(&mut self) {
        self.signal(Signal::TERM);
        let mut child = self.child.take().unwrap();
        let status = tokio::time::timeout(Duration::from_secs(60), child.wait()).await;
        let status = status.expect("cofferd does not stop").unwrap();
        assert!(status.success(), "cofferd ended with {status}:\n{}", self.log());
    }

    /// Ids of this daemon's containers, running or not, as the engine's own command line says.
    pub fn containers(&self) -> Vec<String> {
        let instance = std::fs::read_to_string(self.state_dir().join("instance")).unwrap();
        let filter = format!("label=io.cofferdam.instance={}", instance.trim());
        let output = docker()
            .args(["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter])
            .output()
            .expect("the docker command line is part of the set-up");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Mounts beneath this daemon's directory.
    pub fn mounts(&self) -> Vec<String> {
        mounts_beneath(self.directory.path())
    }

    /// The containers and mounts of runs that have ended. Mounts are gone when a run has; containers are given time.
    pub fn left_by_runs(&self) -> (Vec<String>, Vec<String>) {
        let mounts = self.mounts();
        let until = Instant::now() + PATIENCE;
        loop {
            let containers = self.containers();
            if containers.is_empty() || Instant::now() > until {
                return (containers, mounts);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether no layer of a writable root is left. They are given time: each is removed after the end of its run was told.
    pub fn roots_are_gone(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        let is_left = || {
            let roots = std::fs::read_dir(self.state_dir().join("roots"));
            roots.is_ok_and(|mut roots| roots.next().is_some())
        };
        while is_left() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        !is_left()
    }

    /// Waits until the layer of one run's root is removed.
    pub fn root_is_gone(&self, run: &str) -> bool {
        let layer = self.state_dir().join("roots").join(run);
        let until = Instant::now() + PATIENCE;
        while layer.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        !layer.exists()
    }

    /// What runs have left: containers, mounts, and directories that the daemon made.
    pub fn leftovers(&self) -> Vec<String> {
        let made = ["workspaces", "runs", "roots", "host-worker", "mounts", "spool", "sessions"]
            .into_iter()
            .flat_map(|name| {
                let entries = std::fs::read_dir(self.state_dir().join(name)).into_iter().flatten().flatten();
                entries.map(|entry| entry.path().display().to_string())
            });
        let (containers, mounts) = self.left_by_runs();
        self.roots_are_gone();
        containers.into_iter().chain(mounts).chain(made).collect()
    }

    /// Lets every user of the host reach the socket, as only an operator with root's rights can.
    pub fn expose(&self) {
        for (path, mode) in [(self.directory.path().to_owned(), 0o711), (self.socket(), 0o666)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    }

    /// Its configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.directory.path().join("cofferd.yaml")
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("cofferd.log")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // In order, so that no container or mount outlives the test; then for sure.
            if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
                let _ = kill_process(pid, Signal::TERM);
                for _ in 0..600 {
                    if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        if std::thread::panicking() {
            eprintln!("--- cofferd's log ---\n{}", self.log());
        }
        for container in
            self.state_dir().join("instance").exists().then(|| self.containers()).into_iter().flatten()
        {
            let _ = docker().args(["rm", "-f", &container]).output();
        }
        crate::image::remove_left();
        for mount in self.mounts().iter().rev() {
            let _ = std::process::Command::new("umount").args(["-l", mount]).output();
        }
        if let Some(leash) = self.leash.take() {
            leash.release();
        }
    }
}

/// Path of one of our programs, beside the test's own.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/debug/deps/TEST
    let binary = test.ancestors().nth(2).unwrap().join(name);
    assert!(binary.exists(), "{} is not built: cargo build -p cofferd -p coffer", binary.display());
    binary
}

/// Gives a tree to a user.
pub fn own(path: &Path, uid: u32) {
    let owner = format!("{uid}:{uid}");
    let status = std::process::Command::new("chown").args(["-R", &owner]).arg(path).status().unwrap();
    assert!(status.success());
}

/// The real git, for setting up and for looking at what was done.
pub fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "user.name=Test", "-c", "user.email=test@example.invalid"])
        // Nothing is packed in the background, as another user than the owner.
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        .args(arguments)
        .current_dir(directory)
        .env_remove("GIT_DIR")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
