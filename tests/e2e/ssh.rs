//! SSH into a run, with the host's client and the image's server.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use harness::{Daemon, RunHandle, Setup, binary, calls, dev_image, requests, v1};

fn policy() -> String {
    "profiles:\n  in:\n    workspace: read-write\n    operations: { shell: allow, read: allow, process: allow }\n    exec: { default: allow }\n    \
     allowed_images: ['*']\n    forward: allow\n  shut:\n    operations: { shell: allow, process: allow }\n    \
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

    /// Runs a program of the host as this user.
    async fn runs(&self, program: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("HOME", self.home)
            .env("XDG_STATE_HOME", self.home.join("state"))
            .env("COFFERDAM_ENDPOINT", &self.endpoint);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    async fn coffer(&self, arguments: &[&str]) -> Output {
        self.runs(&binary("coffer"), arguments).await
    }
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
    let file = home.path().join("run.ssh");
    std::fs::write(&file, &config.stdout).unwrap();
    let alias = text(&config.stdout).lines().next().unwrap().strip_prefix("Host ").unwrap().to_owned();
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
