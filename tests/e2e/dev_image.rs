//! The image of `images/dev`: what is in it, and what must not be.

use std::process::Command;

use harness::v1::CreateRunRequest;
use harness::{Daemon, calls, dev_image, requests};

/// What the image says of itself by `docker inspect`.
fn inspected(image: &str, what: &str) -> String {
    let output = Command::new("docker").args(["image", "inspect", "--format", what, image]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_has_the_tools_that_work_needs() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("hello.c", "int main(void) { return 0; }\n")]);
    let request = CreateRunRequest { image: dev_image(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_on(request).await;
    for (argv, said) in [
        (&["git", "--version"][..], "git version 2."),
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
        (&["id", "-un"], ""),
    ] {
        let result = run.exec(argv).await;
        assert_eq!(result.exit_code, Some(0), "{argv:?}: {}", result.stderr);
        assert!((result.stdout + &result.stderr).starts_with(said), "{argv:?}");
    }
    let Ok(_) = run.call(calls::read("hello.c")).await else { panic!("the workspace is there") };
}

#[test]
fn it_has_an_ordinary_user_and_nothing_that_gives_rights_or_secrets() {
    let image = dev_image();
    assert_eq!(inspected(&image, "{{.Config.User}}"), "1001:1001");
    assert_eq!(inspected(&image, "{{len .Config.Volumes}}"), "0");
    let environment = inspected(&image, "{{json .Config.Env}}");
    assert!(!environment.to_lowercase().contains("proxy"), "{environment}");
    // As root, without anything of the run's container: nothing may be hidden from the search.
    let look = "find / -xdev -perm /6000 \\( -type f -o -type d \\); \
                find / -xdev \\( -name 'id_*' -o -name '*.key' -o -name .netrc -o -name .npmrc -o -name pip.conf \\) \
                -path '/[erhot]*' ! -path '/usr/*'; ls -A /var/lib/apt/lists /root/.cache 2>/dev/null | grep -v ':$'";
    let output = Command::new("docker")
        .args(["run", "--rm", "--network", "none", "--user", "0:0", &image, "sh", "-c", look])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "");
}
