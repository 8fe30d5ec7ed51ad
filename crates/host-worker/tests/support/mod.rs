//! A host worker with a client, around a scratch workspace.
#![allow(dead_code, unreachable_pub, unused_imports)] // each test binary uses its part

mod dice;
pub mod facts;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use host_launch::{HostWorkerSpec, Launcher, LinkedSpec, WorkerProcess};
use operations::{
    Bounds, EditResult, Git, GitDiffFlag, GitResult, OpResult, Operation, Outcome, ToolFailure, WriteResult,
};
use tempfile::TempDir;
use wire::v1::{self, git_request};
use wire::worker::v1::{Cancel, FromWorker, Go, Hello, Ping, Start, ToWorker, from_worker, to_worker};
use worker_protocol::convert::{Reply, bounds_to_wire, outcome_from_wire};
use worker_protocol::frame::{FrameBuffer, encode};

pub use dice::Dice;

/// Processes that wait for operations when it is quiet.
pub const WAITING: usize = 4;
pub const DEADLINE: Duration = Duration::from_secs(20);
/// For what must hang until its deadline.
pub const SHORT: Duration = Duration::from_millis(700);

/// Variable with another path of the program, for a test that runs as another user.
pub const PROGRAM: &str = "HOST_WORKER_TEST_PROGRAM";

pub fn launcher() -> Launcher {
    Launcher::of(std::env::var_os(PROGRAM).unwrap_or_else(|| env!("CARGO_BIN_EXE_coffer-host-worker").into()))
}

pub fn directory(path: &Path) -> OwnedFd {
    fs::File::open(path).unwrap().into()
}

/// A scratch directory with the mounts of a run, and things beside them that nobody may reach.
pub struct Scratch {
    pub dir: TempDir,
    pub uid: u32,
}

impl Scratch {
    /// Owned by an ordinary user.
    pub fn new() -> Self {
        Self::owned_by(1234)
    }

    pub fn owned_by(uid: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["workspace", "state", "pkg", "private", "outside"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            chown(dir.path().join(name), Some(uid), Some(uid)).unwrap();
        }
        let scratch = Self { dir, uid };
        fs::write(scratch.outside().join("canary"), "the canary sings\n").unwrap();
        scratch
    }

    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    pub fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    /// Writes a file as the owner, parents made.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        // Only these: a host worker that is being killed may still move others.
        let workspace = self.workspace();
        for made in path.ancestors().take_while(|made| **made != *workspace) {
            std::os::unix::fs::lchown(made, Some(self.uid), Some(self.uid)).unwrap();
        }
        path
    }

    /// Gives everything in the workspace to the owner.
    pub fn own(&self) {
        run(Command::new("chown").arg("-Rh").arg(format!("{0}:{0}", self.uid)).arg(self.workspace()));
    }

    /// The real git command, without configuration, as the owner.
    pub fn git(&self, args: &[&str]) -> String {
        String::from_utf8(self.git_bytes(args)).unwrap()
    }

    pub fn git_bytes(&self, args: &[&str]) -> Vec<u8> {
        self.own();
        let output = run(&mut self.git_command(args));
        self.own();
        output
    }

    pub fn git_command(&self, args: &[&str]) -> Command {
        git_in(&self.workspace(), args)
    }

    pub fn init(&self) {
        self.git(&["init", "-q", "-b", "main"]);
    }

    pub fn commit_all(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", message]);
    }

    pub fn host_worker(&self) -> Hand {
        Hand::start(self)
    }
}

pub fn git_in(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "3")
        .env("GIT_CONFIG_KEY_0", "user.name")
        .env("GIT_CONFIG_VALUE_0", "A U Thor")
        .env("GIT_CONFIG_KEY_1", "user.email")
        .env("GIT_CONFIG_VALUE_1", "author@example.com")
        .env("GIT_CONFIG_KEY_2", "safe.directory")
        .env("GIT_CONFIG_VALUE_2", "*")
        .env("TZ", "UTC")
        .current_dir(dir)
        .args(args);
    command
}

pub fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Every path below `dir` with its kind, owner, mode and content: equal before and after means untouched.
pub fn fingerprint(dir: &Path) -> Vec<(PathBuf, u32, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        if metadata.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push((path, metadata.mode(), metadata.uid(), content));
    }
    found.sort();
    found
}

/// A running host worker and a client of it.
pub struct Hand {
    pub process: WorkerProcess,
    inbox: FrameBuffer,
    next: u64,
    answers: HashMap<u64, Outcome>,
    /// What it takes for its process id.
    pub pid: u32,
    pub bounds: Bounds,
    /// Number of the handle over which the next call asks for streams to servers.
    pub way_out: u64,
}

impl Hand {
    pub fn start(scratch: &Scratch) -> Self {
        Self::start_by(&launcher(), scratch)
    }

    pub fn start_by(launcher: &Launcher, scratch: &Scratch) -> Self {
        Self::start_in(launcher, scratch, None)
    }

    /// One of a workspace that is a linked work tree.
    pub fn start_in(launcher: &Launcher, scratch: &Scratch, linked: Option<LinkedSpec>) -> Self {
        let dir = scratch.dir.path();
        let process = launcher
            .serve(&HostWorkerSpec {
                workspace: directory(&dir.join("workspace")),
                state: Some(directory(&dir.join("state"))),
                pkg: Some(directory(&dir.join("pkg"))),
                private: Some(directory(&dir.join("private"))),
                linked,
                owner_uid: scratch.uid,
                owner_gid: scratch.uid,
            })
            .unwrap();
        let host_worker = Self::of(process);
        // The first of its own namespace.
        assert_eq!(host_worker.pid, 1);
        host_worker
    }

    /// A client of a host worker that was started.
    pub fn of(process: WorkerProcess) -> Self {
        let mut host_worker = Self {
            process,
            inbox: FrameBuffer::new(),
            next: 1,
            answers: HashMap::new(),
            pid: 0,
            bounds: Bounds { max_output_bytes: 1 << 20, ..Bounds::default() },
            way_out: 0,
        };
        host_worker.process.channel.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let hello = Hello { protocol: worker_protocol::PROTOCOL, nonce: vec![7; 32], ..Hello::default() };
        host_worker.send(0, to_worker::Body::Hello(hello));
        let Some(FromWorker { id: 0, body: Some(from_worker::Body::Hello(hello)) }) = host_worker.receive()
        else {
            let words = host_worker.process.wait(Duration::from_secs(1)).unwrap();
            panic!("no hello: {words}")
        };
        assert_eq!(hello.nonce, vec![7; 32]);
        host_worker.pid = hello.pid;
        host_worker
    }

    pub fn send(&mut self, id: u64, body: to_worker::Body) {
        let frame = encode(&ToWorker { id, body: Some(body) }).unwrap();
        self.process.channel.write_all(&frame).unwrap();
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.process.channel.write_all(bytes).unwrap();
    }

    /// `None` at the end of the stream.
    pub fn receive(&mut self) -> Option<FromWorker> {
        let mut bytes = vec![0; 1 << 16];
        loop {
            if let Some(message) = self.inbox.pop().unwrap() {
                return Some(message);
            }
            match self.process.channel.read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.inbox.extend(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends a call and returns its id.
    pub fn begin(&mut self, operation: &Operation, deadline: Duration, preview: bool) -> u64 {
        self.start_call(operation, deadline, preview, false)
    }

    /// The same for a call that takes effect only after [`Self::go`].
    pub fn begin_awaiting(&mut self, operation: &Operation) -> u64 {
        self.start_call(operation, DEADLINE, false, true)
    }

    pub fn go(&mut self, id: u64) {
        self.send(id, to_worker::Body::Go(Go { evidence: None }));
    }

    fn start_call(
        &mut self,
        operation: &Operation,
        deadline: Duration,
        preview: bool,
        awaits_go: bool,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let start = Start {
            operation: Some(operation.message()),
            deadline_ms: deadline.as_millis().try_into().unwrap(),
            bounds: Some(bounds_to_wire(&self.bounds)),
            placed: false,
            preview,
            output_window: u64::MAX,
            terminal: None,
            prepared: 0,
            awaits_go,
            paths: operation.changed_paths().into_iter().map(ToString::to_string).collect(),
            way_out: std::mem::take(&mut self.way_out),
        };
        self.send(id, to_worker::Body::Start(start));
        id
    }

    /// The host worker's own processes on this host: operations at work, and those that wait for the next.
    pub fn operations(&self) -> Vec<String> {
        let children = |pid: &str| -> Vec<String> {
            let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            list.split_whitespace().map(str::to_owned).collect()
        };
        let keeper = self.process.pid().to_string();
        children(&keeper).iter().flat_map(|pid| children(pid)).collect()
    }

    pub fn cancel(&mut self, id: u64) {
        self.send(id, to_worker::Body::Cancel(Cancel {}));
    }

    pub fn ping(&mut self) {
        self.send(0, to_worker::Body::Ping(Ping {}));
    }

    pub fn outcome(&mut self, id: u64) -> Outcome {
        loop {
            if let Some(outcome) = self.answers.remove(&id) {
                return outcome;
            }
            let message = self.receive().expect("the host worker ended");
            if let Some(from_worker::Body::Outcome(outcome)) = message.body {
                let answer = outcome_from_wire(outcome).unwrap();
                self.answers.insert(message.id, answer.and_then(Reply::result));
            }
        }
    }

    pub fn call(&mut self, operation: &Operation) -> Outcome {
        let id = self.begin(operation, DEADLINE, false);
        self.outcome(id)
    }

    pub fn git(&mut self, command: Git) -> Result<GitResult, ToolFailure> {
        match self.call(&Operation::Git(command))? {
            OpResult::Git(result) => Ok(result),
            other => panic!("{other:?}"),
        }
    }

    /// What it says it would do.
    pub fn preview(&mut self, command: Git) -> Result<GitResult, ToolFailure> {
        let id = self.begin(&Operation::Git(command), DEADLINE, true);
        match self.outcome(id)? {
            OpResult::Git(result) => Ok(result),
            other => panic!("{other:?}"),
        }
    }

    pub fn status(&mut self) -> String {
        self.git(Git::Status).unwrap().output
    }

    pub fn diff(&mut self, flags: &[&str], paths: &[&str]) -> String {
        let flags = flags.iter().map(|flag| GitDiffFlag::parse(flag).unwrap()).collect();
        self.git(Git::Diff { flags, paths: self::paths(paths) }).unwrap().output
    }

    /// What `git log` says.
    pub fn log(&mut self, flags: &[&str], revision: &str, paths: &[&str]) -> String {
        self.git(log(flags, revision, paths)).unwrap().output
    }

    /// What `git show` says.
    pub fn show(&mut self, flags: &[&str], revision: &str, paths: &[&str]) -> String {
        self.git(show(flags, revision, paths)).unwrap().output
    }

    pub fn add(&mut self, paths: &[&str]) -> Result<GitResult, ToolFailure> {
        self.git(Git::Add { paths: self::paths(paths) })
    }

    pub fn commit(&mut self, message: &str) -> Result<GitResult, ToolFailure> {
        self.git(Git::Commit { message: message.to_owned() })
    }

    pub fn write(&mut self, path: &str, content: impl AsRef<[u8]>) -> Result<WriteResult, ToolFailure> {
        match self.call(&write(path, content))? {
            OpResult::Write(result) => Ok(result),
            other => panic!("{other:?}"),
        }
    }

    pub fn edit(&mut self, edit: operations::Edit) -> Result<EditResult, ToolFailure> {
        match self.call(&Operation::Edit(edit))? {
            OpResult::Edit(result) => Ok(result),
            other => panic!("{other:?}"),
        }
    }
}

pub fn write(path: &str, content: impl AsRef<[u8]>) -> Operation {
    Operation::Write(operations::Write::new(path.parse().unwrap(), content.as_ref()))
}

/// As a request has it, validated.
pub fn log(flags: &[&str], revision: &str, paths: &[&str]) -> Git {
    let (flags, paths) = (strings(flags), strings(paths));
    valid(git_request::Command::Log(v1::GitLog {
        flags,
        max_count: None,
        revision: revision.to_owned(),
        paths,
    }))
}

/// As a request has it, validated.
pub fn show(flags: &[&str], revision: &str, paths: &[&str]) -> Git {
    let (flags, paths) = (strings(flags), strings(paths));
    valid(git_request::Command::Show(v1::GitShow { flags, revision: revision.to_owned(), paths }))
}

fn valid(command: git_request::Command) -> Git {
    match Operation::try_from(v1::GitRequest { command: Some(command) }).unwrap() {
        Operation::Git(git) => git,
        other => panic!("{other:?}"),
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

pub fn paths(paths: &[&str]) -> Vec<jail::SandboxPath> {
    paths.iter().map(|path| path.parse().unwrap()).collect()
}

pub fn fifo(path: impl AsRef<OsStr>) {
    run(Command::new("mkfifo").arg(path));
}
