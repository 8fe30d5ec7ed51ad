//! Tests the contents of the image of `images/dev`.

use std::process::Command;

use harness::v1::CreateRunRequest;
use harness::{Daemon, calls, debian, dev_image, requests};

#[tokio::test(flavor = "multi_thread")]
async fn dev_image_has_the_needed_tools() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("hello.c", "int main(void) { return 0; }\n")]);
    let request = CreateRunRequest { image: dev_image(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_on(request).await;
    for (argv, said) in [
        (&["git", "--version"][..], "git version 2."),
        (&["python", "--version"], "Python 3."),
        (&["python3", "--version"], "Python 3."),
        (&["python3", "-m", "pip", "--version"], "pip "),
        (&["python3", "-m", "pytest", "--version"], "pytest "),
        (&["python3", "-m", "venv", "venv"], ""),
        (&["node", "--version"], "v"),
        (&["npm", "--version"], ""),
        (&["gcc", "-o", "hello", "hello.c"], ""),
        (&["/workspace/hello"], ""),
        (&["make", "--version"], "GNU Make"),
        (&["rg", "--version"], "ripgrep "),
        (&["curl", "--version"], "curl "),
        (&["id", "-un"], "agent\n"),
        (
            &[
                "python3",
                "-c",
                "import getpass, os, pwd; print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir)",
            ],
            "agent /tmp",
        ),
        (&["git", "init", "-q", "repo"], ""),
        (&["git", "-C", "repo", "commit", "-q", "--allow-empty", "-m", "x"], ""),
        (
            &["git", "-C", "repo", "log", "--format=%an <%ae>, %cn <%ce>"],
            "Cofferdam agent <agent@cofferdam.invalid>, Cofferdam agent <agent@cofferdam.invalid>\n",
        ),
    ] {
        let result = run.exec(argv).await;
        assert_eq!(result.exit_code, Some(0), "{argv:?}: {}", result.stderr);
        assert!((result.stdout + &result.stderr).starts_with(said), "{argv:?}");
    }
    let Ok(_) = run.call(calls::read("hello.c")).await else { panic!("the workspace is there") };
}

#[test]
fn dev_image_gives_neither_rights_nor_secrets() {
    gives_neither_rights_nor_secrets(&dev_image());
}

#[test]
fn planted_rights_and_secrets_are_found() {
    let plant = "mkdir /home/a; touch /etc/id_rsa /home/a/.netrc /root/.npmrc /var/lib/apt/lists/a";
    let found = given_away(&debian(), plant);
    for path in ["/usr/bin/su", "/etc/id_rsa", "/home/a/.netrc", "/root/.npmrc", "/var/lib/apt/lists/a"] {
        assert!(found.lines().any(|line| line == path), "{path} is not in {found}");
    }
    assert_eq!(given("|1 APT_MIRROR=http://a:b@mirror.example.org /bin/sh -c set -eu").len(), 1);
}

/// Asserts that the image has an ordinary user, and neither set-id files nor what its making must not leave.
pub(crate) fn gives_neither_rights_nor_secrets(image: &str) {
    assert_eq!(inspected(image, "{{.Config.User}}"), "1001:1001");
    assert_eq!(inspected(image, "{{len .Config.Volumes}}"), "0");
    let environment = inspected(image, "{{json .Config.Env}}");
    assert!(!environment.contains("://"), "{environment}");
    let history = docker(&["history", "--no-trunc", "--format", "{{.CreatedBy}}", image]);
    assert!(history.contains("apt-get"), "{history}");
    assert_eq!(given(&history), Vec::<&str>::new());
    assert_eq!(given_away(image, ""), "");
}

/// Arguments of steps of a build that are addresses: one of a proxy or a mirror may hold a password.
fn given(history: &str) -> Vec<&str> {
    let arguments = history.lines().filter_map(|line| line.split("/bin/sh -c").next());
    arguments.filter(|words| words.contains("://")).collect()
}

/// What the image's files give away, after `plant`. As root, with nothing of a run's container: no file may be hidden.
fn given_away(image: &str, plant: &str) -> String {
    let look = r"
        find / -xdev -perm /6000 \( -type f -o -type d \)
        find /etc /home /opt /root /srv /tmp /usr/local -xdev \
            \( -name 'id_*' -o -name '*.key' -o -name .netrc -o -name .npmrc -o -name pip.conf \)
        find /var/lib/apt/lists /root/.cache -mindepth 1 2>/dev/null || true";
    let script = format!("{plant}\n{look}");
    docker(&["run", "--rm", "--network", "none", "--user", "0:0", image, "sh", "-c", &script])
}

/// What the image says of itself by `docker inspect`.
fn inspected(image: &str, what: &str) -> String {
    docker(&["image", "inspect", "--format", what, image])
}

/// What a command of the engine's client says, which must succeed.
fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
