//! A Compose project of our own: images, directories, containers. Nothing of it is left when it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use harness::{binary, git, mounts_beneath};
use tempfile::TempDir;

/// The user that asks for runs and makes calls.
pub(crate) const AGENT: u32 = 4321;
/// The user that decides on approvals, and may do nothing else.
pub(crate) const REVIEWER: u32 = 4322;

/// What a command of the client said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    command: String,
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Said {
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap_or_else(|error| {
            let program = command.get_program().display();
            panic!("{program} cannot be started ({error}); tests/run.sh installs what the tests need")
        });
        Self {
            command: format!("{command:?}"),
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Its data, if it ended like this.
    pub(crate) fn ended(&self, status: i32) -> &str {
        let Self { command, stdout, stderr, .. } = self;
        assert_eq!(self.status, Some(status), "{command}\n{stdout}\n{stderr}");
        stdout
    }

    /// Its talk, if it ended like this.
    pub(crate) fn failed(&self, status: i32) -> &str {
        self.ended(status);
        &self.stderr
    }
}

/// cofferd and its client, up and healthy.
pub(crate) struct Stack {
    /// Name of the project, and tag of its images.
    name: String,
    directory: TempDir,
    /// True if its runs have a way out.
    egress: bool,
    down: bool,
}

impl Stack {
    /// Makes the images, the directories and the configuration, and starts both containers.
    pub(crate) fn up() -> Self {
        Self::start(None)
    }

    /// The same for runs with a way out, under this policy. `files.example.org` and `git.example.org` are the host's loopback.
    pub(crate) fn up_with_egress(policy: &str) -> Self {
        Self::start(Some(policy))
    }

    fn start(policy: Option<&str>) -> Self {
        static STACKS: AtomicU32 = AtomicU32::new(0);
        // Asked before anything is made.
        Said::of(Command::new("docker-compose").arg("version")).ended(0);
        let number = STACKS.fetch_add(1, Ordering::Relaxed);
        let stack = Self {
            name: format!("cofferdam-test-{}-{number}", std::process::id()),
            directory: tempfile::Builder::new().prefix("cofferdam-compose-").tempdir_in("/var/tmp").unwrap(),
            egress: policy.is_some(),
            down: false,
        };
        stack.make_directories();
        if let Some(policy) = policy {
            fs::create_dir(stack.path("policy")).unwrap();
            fs::write(stack.path("policy").join("out.yaml"), policy).unwrap();
        }
        fs::write(stack.path("cofferd.yaml"), stack.config()).unwrap();
        let programs = binary("cofferd").parent().unwrap().to_owned();
        let mut images = Command::new(deploy("compose-images.sh"));
        Said::of(images.args(["--tag", &stack.name]).arg(programs)).ended(0);
        stack.no_image_is_nameless();
        // Returns when cofferd says that it is healthy, for the client waits for that.
        stack.compose(&["up", "--detach"]).ended(0);
        stack
    }

    fn make_directories(&self) {
        // Others must find their way to the agent's binary.
        fs::set_permissions(self.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["state", "roots"] {
            fs::create_dir(self.path(name)).unwrap();
        }
        // What an operator does where the state directory does not lie on a shared mount.
        let state = self.path("state");
        Said::of(Command::new("mount").arg("--bind").args([&state, &state])).ended(0);
        Said::of(Command::new("mount").arg("--make-shared").arg(&state)).ended(0);
    }

    fn config(&self) -> String {
        let egress = if self.egress {
            "policy_dir: /etc/cofferdam/policy\n\
             egress: { hosts: { files.example.org: 127.0.0.1, git.example.org: 127.0.0.1 } }\n"
        } else {
            ""
        };
        format!(
            "state_dir: {}\n\
             workspace_roots: [{}]\n\
             access:\n\
             - {{ uid: {AGENT}, roles: [orchestrator, auditor] }}\n\
             - {{ uid: {REVIEWER}, roles: [approver] }}\n{egress}",
            self.path("state").display(),
            self.path("roots").display(),
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn compose(&self, arguments: &[&str]) -> Said {
        Said::of(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut compose = Command::new("docker-compose");
        compose.arg("--file").arg(deploy("compose.yaml"));
        if self.egress {
            compose.arg("--file").arg(deploy("compose.egress.yaml"));
        }
        compose
            .args(["--project-name", &self.name])
            .args(arguments)
            .env_remove("COMPOSE_FILE")
            .env("COFFERDAM_CONFIG", self.path("cofferd.yaml"))
            .env("COFFERDAM_STATE", self.path("state"))
            .env("COFFERDAM_POLICY", self.path("policy"))
            .env("COFFERDAM_WORKSPACES", self.path("roots"))
            .env("COFFERDAM_CLIENT_USER", format!("{AGENT}:{AGENT}"))
            .env("COFFERDAM_TAG", &self.name);
        compose
    }

    /// Runs `coffer` in the client's container.
    pub(crate) fn coffer(&self, uid: u32, arguments: &[&str]) -> Said {
        self.client(uid, &[&["coffer"], arguments].concat())
    }

    /// Runs a program in the client's container.
    pub(crate) fn client(&self, uid: u32, command: &[&str]) -> Said {
        self.compose(&[&["exec", "-T", "--user", &uid.to_string(), "client"], command].concat())
    }

    /// A directory under the workspace root with a file in it, both this user's.
    pub(crate) fn directory(&self, name: &str, owner: u32) -> PathBuf {
        let directory = self.path("roots").join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), "").unwrap();
        own(&directory, owner);
        directory
    }

    /// A git repository under the workspace root with one commit of these files; the agent's own.
    pub(crate) fn repository(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let repository = self.path("roots").join(name);
        for (path, content) in files {
            let path = repository.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        for arguments in [&["init", "-q", "-b", "main"][..], &["add", "-A"], &["commit", "-q", "-m", "first"]]
        {
            git(&repository, arguments);
        }
        own(&repository, AGENT);
        repository
    }

    /// Where cofferd keeps the workspace that it made for a run, on the host.
    pub(crate) fn workspace_of(&self, run: &str) -> PathBuf {
        self.path("state").join("workspaces").join(run)
    }

    /// What the host has mounted for runs.
    pub(crate) fn mounts(&self) -> Vec<String> {
        mounts_beneath(&self.path("state"))
    }

    /// What cofferd has logged as an error.
    pub(crate) fn errors(&self) -> Vec<String> {
        let logs = self.compose(&["logs", "--no-color", "cofferd"]);
        logs.ended(0).lines().filter(|line| line.contains(" ERROR ")).map(str::to_owned).collect()
    }

    /// Waits until no image of cofferd is without a name since its own was made. Other tests give theirs a name meanwhile.
    fn no_image_is_nameless(&self) {
        let since = format!("since=cofferdam/cofferd:{}", self.name);
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let nameless = docker(&["images", "--quiet", "--filter", "dangling=true", "--filter", &since]);
            // An image that has gone is reported beside the others.
            let inspect = ["image", "inspect", "--format", "{{.Id}} {{.Config.Entrypoint}}"];
            let shown = Command::new("docker").args(inspect).args(&nameless).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            let left: Vec<_> = shown.lines().filter(|line| line.contains("[cofferd ")).collect();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "{left:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it, and finds nothing of it on the host.
    pub(crate) fn down(&mut self) {
        self.compose(&["down", "--volumes", "--rmi", "all"]).ended(0);
        self.down = true;
        let project = format!("label=com.docker.compose.project={}", self.name);
        for kind in [&["ps", "--all"][..], &["volume", "ls"], &["network", "ls"]] {
            let left = docker(&[kind, &["--quiet", "--filter", &project]].concat());
            assert_eq!(left, Vec::<String>::new(), "{kind:?}");
        }
        let images = docker(&["images", "--format", "{{.Repository}}:{{.Tag}}"]);
        assert!(!images.iter().any(|image| image.ends_with(&self.name)), "{images:?}");
        assert_eq!(self.mounts(), Vec::<String>::new());
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if !self.down {
            // Whatever fails here comes after another failure.
            if let Ok(logs) = self.command(&["logs", "--no-color", "cofferd"]).output() {
                eprintln!("{}", String::from_utf8_lossy(&logs.stdout));
            }
            let _ = self.command(&["down", "--volumes", "--rmi", "all"]).output();
        }
        // Deepest last in the table; the state directory's own mount is not among them.
        let state = self.path("state").display().to_string();
        for point in self.mounts().iter().rev().chain([&state]) {
            let _ = Command::new("umount").args(["--lazy", point]).status();
        }
    }
}

fn own(path: &Path, uid: u32) {
    let owner = format!("{uid}:{uid}");
    Said::of(Command::new("chown").args(["-R", &owner]).arg(path)).ended(0);
}

/// The containers of a run on the host's engine, running or not.
pub(crate) fn containers_of(run: &str) -> Vec<String> {
    docker(&["ps", "--all", "--quiet", "--filter", &format!("name=cofferdam-{run}")])
}

/// What a command of the engine's own command line lists.
fn docker(arguments: &[&str]) -> Vec<String> {
    let said = Said::of(Command::new("docker").args(arguments));
    said.ended(0).lines().map(str::to_owned).collect()
}

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}
