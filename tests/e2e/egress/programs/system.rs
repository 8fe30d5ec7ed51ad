//! The C library's resolver and git over SSH, in the image of `images/dev`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use harness::server::Server;

use crate::egress::world::{Setting, World};

/// Node.js with libraries, which `tests/run.sh` installs for the tests of MCP.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/conformance");

#[tokio::test(flavor = "multi_thread")]
async fn n120_the_c_library_lists_an_address_for_each_way_to_ask() {
    let mut world = World::start(Setting::default()).await;
    for database in ["ahosts", "ahostsv4"] {
        let said = world.says(&format!("getent {database} files.example.org")).await;
        assert!(said.lines().any(|line| line.starts_with("11.200.")), "{database}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n111_libraries_that_guard_against_ssrf_call_the_addresses_of_names_public() {
    let mut world = World::start(Setting::default()).await;
    let said = world.says("getent ahostsv4 files.example.org").await;
    let address = said.split_whitespace().next().unwrap();
    // The last one is private, and no guard may let it pass.
    let addresses = format!("[\"11.200.0.1\", \"{address}\", \"11.200.255.254\", \"10.1.2.3\"]");
    let expected = "true true true false\n";
    let python = format!(
        "import ipaddress; print(*(str(ipaddress.ip_address(one).is_global).lower() for one in {addresses}))"
    );
    assert_eq!(world.says(&format!("python3 -c '{python}'")).await, expected);
    let node = |guard: &str| format!("console.log({addresses}.map(one => {guard}).join(\" \"))");
    let script = node("require(\"ip\").isPublic(one)");
    assert_eq!(world.says(&format!("node -e '{script}'")).await, expected);
    for guard in [
        "require(\"ipaddr.js\").parse(one).range() === \"unicast\"",
        "new (require(\"ip-address\").Address4)(one).isGlobal()",
    ] {
        let output = Command::new("bin/node").args(["-e", &node(guard)]).current_dir(NODE).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n121_git_clones_over_ssh() {
    let keys = tempfile::tempdir().unwrap();
    std::fs::set_permissions(keys.path(), Permissions::from_mode(0o755)).unwrap();
    let host = keys.path().join("host");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&host).status();
    assert!(made.unwrap().success());
    // The server's user reads a copy, which it makes its own.
    std::fs::set_permissions(&host, Permissions::from_mode(0o644)).unwrap();
    let config = "HostKey /tmp/keys/host\nAuthorizedKeysFile /tmp/keys/authorized_keys\nStrictModes no\nUsePAM no\n\
                  PasswordAuthentication no\nKbdInteractiveAuthentication no\n";
    std::fs::write(keys.path().join("sshd_config"), config).unwrap();
    let server = Server::ssh(keys.path().to_owned()).await;
    let mut world = World::start(Setting { tcp: &[server.port], ..Setting::default() }).await;
    let repository = world.repository(&[("hello.txt", "hello\n")]);
    harness::git(keys.path(), &["clone", "-q", "--bare", repository.to_str().unwrap(), "repo.git"]);
    let key = world.says("ssh-keygen -q -t ed25519 -N '' -f key && cat key.pub").await;
    std::fs::write(keys.path().join("authorized_keys"), key).unwrap();
    let port = server.port;
    let public = std::fs::read_to_string(keys.path().join("host.pub")).unwrap();
    let script = format!(
        "echo '[git.example.org]:{port} {}' >known && \
         GIT_SSH_COMMAND=\"ssh -F none -i $PWD/key -o IdentitiesOnly=yes -o UserKnownHostsFile=$PWD/known -o StrictHostKeyChecking=yes\" \
         git clone -q ssh://coder@git.example.org:{port}/tmp/keys/repo.git over-ssh && cat over-ssh/hello.txt",
        public.trim()
    );
    let said = world.says(&script).await;
    assert!(said.starts_with("hello\n"), "{said}");
    assert_eq!(server.connections(), 1);
}
