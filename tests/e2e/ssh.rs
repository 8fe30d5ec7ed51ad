//! SSH into a run, with the host's client and the image's server.

mod editor;
mod rsync;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use harness::process::script;
use harness::{Daemon, RunHandle, Setup, binary, calls, dev_image, requests, v1};
use tokio::io::AsyncWriteExt as _;

fn policy() -> String {
    "profiles:\n  in:\n    workspace: read-write\n    operations: { shell: allow, read: allow, process: allow }\n    \
     exec: { default: allow, env: ['*'] }\n    allowed_images: ['*']\n    forward: allow\n    tmp: exec\n  shut:\n    operations: { shell: allow, process: allow }\n    \
     exec: { default: allow }\n    allowed_images: ['*']\nroles: { director: { allow: \"*\" } }\n"
        .to_owned()
}

async fn daemon() -> Daemon {
    Daemon::start_with(Setup { policy: vec![("in.yaml", policy())], ..Default::default() }).await
}

async fn run_of(daemon: &Daemon, profile: &str) -> RunHandle {
    let image = tokio::task::spawn_blocking(dev_image).await.unwrap();
    daemon.run_on(v1::CreateRunRequest { image, ..requests::managed(profile) }).await
}

/// A user of this host, whose state is in a directory.
struct User<'a> {
    home: &'a Path,
    endpoint: String,
}

impl<'a> User<'a> {
    fn new(daemon: &Daemon, home: &'a Path) -> Self {
        Self { home, endpoint: format!("unix:{}", daemon.socket().display()) }
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("HOME", self.home)
            .env("XDG_STATE_HOME", self.home.join("state"))
            .env("COFFERDAM_ENDPOINT", &self.endpoint);
        command
    }

    /// Runs a program of the host as this user.
    async fn runs(&self, program: &Path, arguments: &[&str]) -> Output {
        let mut command = self.command(program, arguments);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs a program of the host as this user, with this standard input.
    async fn feeds(&self, program: &str, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = tokio::process::Command::from(self.command(Path::new(program), arguments));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_owned());
        // A program that ends early says why.
        let writes = tokio::spawn(async move { stdin.write_all(&input).await });
        let output = child.wait_with_output().await.unwrap();
        let _ = writes.await.unwrap();
        output
    }

    async fn coffer(&self, arguments: &[&str]) -> Output {
        self.runs(&binary("coffer"), arguments).await
    }

    /// Saves the configuration with which programs reach a run.
    async fn way_into(&self, run: &RunHandle) -> Way {
        let printed = self.coffer(&["run", "ssh-config", run.id()]).await;
        assert!(printed.status.success(), "{}", text(&printed.stderr));
        let file = self.home.join("run.ssh");
        std::fs::write(&file, &printed.stdout).unwrap();
        let printed = text(&printed.stdout);
        let alias = printed.lines().next().unwrap().strip_prefix("Host ").unwrap().to_owned();
        Way { file, alias }
    }
}

/// The saved output of `coffer run ssh-config`, and the name that it has for the run.
struct Way {
    file: PathBuf,
    alias: String,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn fw13_ssh_and_scp_work_with_the_keys_of_one_run() {
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    let id = run.id().to_owned();
    let home = tempfile::tempdir().unwrap();
    let user = User::new(&daemon, home.path());

    let done = user.coffer(&["run", "ssh", &id, "--", "cat; id -un; exit 7"]).await;
    assert_eq!(
        (text(&done.stdout), done.status.code()),
        ("agent\n".to_owned(), Some(7)),
        "{}",
        text(&done.stderr)
    );
    assert!(text(&done.stderr).contains("started an SSH server in the run"), "{}", text(&done.stderr));

    // The second use finds the server, and the configuration is enough for other programs.
    let config = user.coffer(&["run", "ssh-config", &id]).await;
    assert_eq!(text(&config.stderr), "");
    let Way { file, alias } = user.way_into(&run).await;
    let content: Vec<u8> = (0..3_000_000_u32).map(|byte| (byte % 251) as u8).collect();
    std::fs::write(home.path().join("up"), &content).unwrap();
    for [from, to] in [["{home}/up", "{alias}:/workspace/up"], ["{alias}:/workspace/up", "{home}/down"]] {
        let name =
            |text: &str| text.replace("{home}", home.path().to_str().unwrap()).replace("{alias}", &alias);
        let copied =
            user.runs(Path::new("scp"), &["-q", "-F", file.to_str().unwrap(), &name(from), &name(to)]).await;
        assert!(copied.status.success(), "{}", text(&copied.stderr));
    }
    assert!(std::fs::read(home.path().join("down")).unwrap() == content);
    run.ok(calls::read("up")).await;

    // One process, and the directory with the key is the user's alone.
    let request = v1::ListProcessesRequest { run_id: id.clone(), ..Default::default() };
    let listed = run.clients.processes.list_processes(request).await.unwrap().into_inner().processes;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!(listed[0].request.as_ref().unwrap().tag.starts_with("coffer-ssh."));
    let directory = home.path().join("state/coffer/ssh").join(&id);
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);

    // Another key does not open it, and no password is asked for.
    let other = home.path().join("other");
    let made = user.runs(Path::new("ssh-keygen"), &["-q", "-N", "", "-f", other.to_str().unwrap()]).await;
    assert!(made.status.success());
    let stranger =
        text(&config.stdout).replace(directory.join("key").to_str().unwrap(), other.to_str().unwrap());
    std::fs::write(&file, stranger).unwrap();
    let refused = user.runs(Path::new("ssh"), &["-F", file.to_str().unwrap(), &alias, "id"]).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(text(&refused.stderr).contains("Permission denied (publickey)"), "{}", text(&refused.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn fw14_a_run_without_a_server_or_a_way_in_has_no_ssh() {
    let daemon = daemon().await;
    let home = tempfile::tempdir().unwrap();
    let user = User::new(&daemon, home.path());

    // The default image has no sshd.
    let bare = daemon.run_on(requests::managed("in")).await;
    let refused = user.coffer(&["run", "ssh", bare.id(), "--", "id"]).await;
    assert!(text(&refused.stderr).contains("install OpenSSH's server in it"), "{}", text(&refused.stderr));
    assert!(!refused.status.success());

    // The profile has no `forward`.
    let shut = run_of(&daemon, "shut").await;
    let refused = user.coffer(&["run", "ssh", shut.id(), "--", "id"]).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(text(&refused.stderr).contains("forward"), "{}", text(&refused.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn fw18_sessions_have_the_variables_and_the_umask_of_the_run() {
    let daemon = daemon().await;
    let image = tokio::task::spawn_blocking(dev_image).await.unwrap();
    let env = [
        ("MODE", "a \"b\" $c'd' `e` # \\\"f\\"),
        ("LANG", "C"),
        ("PATH", "/workspace/bin:/usr/bin:/bin"),
        // sshd cannot have it: the others are there nevertheless.
        ("LINES_OF_TEXT", "one\ntwo=2"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let secret_env = [("KEY".to_owned(), "open sesame".to_owned())].into();
    let request = v1::CreateRunRequest { image, env, secret_env, ..requests::managed("in") };
    let mut run = daemon.run_on(request).await;
    let home = tempfile::tempdir().unwrap();
    let user = User::new(&daemon, home.path());
    let Way { file, alias } = user.way_into(&run).await;
    let show = r#"printf '%s\n' "$MODE" "$KEY" "$LANG" "$PATH" "$GIT_AUTHOR_NAME" "$HOME"; umask"#;
    let shown = user.runs(Path::new("ssh"), &["-F", file.to_str().unwrap(), &alias, show]).await;
    let process = run.start(script(show)).await.process_id;
    let expected = run.all_of(&process).await.text();
    assert!(expected.contains("# \\\"f\\\nopen sesame\nC\n"), "{expected}");
    assert_eq!(text(&shown.stdout), expected, "{}", text(&shown.stderr));
}
