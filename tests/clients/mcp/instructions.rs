//! The text for models at the beginning of a session.

use harness::{Daemon, Setup};

use super::http::{INITIALIZE, bearer, post};
use super::python::{Client, stdio};
use super::run_with_token;

#[tokio::test(flavor = "multi_thread")]
async fn n60_instructions_say_which_hosts_commands_can_reach() {
    let policy = "profiles:\n  out:\n    operations: { shell: allow }\n    exec: { default: allow }\n    egress:\n      rules:\n        \
                  - { host: files.example.org, ports: [443], decision: allow }\n  none:\n    operations: { shell: allow }\n    \
                  exec: { default: allow }\nroles: { director: { allow: \"*\" } }\n";
    let config = "mcp: { http: { listen: '127.0.0.1:0' } }\n".to_owned();
    let policy = vec![("out.yaml", policy.to_owned())];
    let daemon = Daemon::start_with(Setup { config, policy, ..Setup::default() }).await;
    let place = daemon.told("MCP over HTTP: http://127.0.0.1:");
    let port: u16 = place.strip_suffix("/mcp").unwrap().parse().unwrap();
    for (profile, words) in [
        (
            "out",
            "Network of commands: You can reach: files.example.org over HTTPS. Everything else does not resolve.",
        ),
        ("none", "Network of commands: There is no network: no host name resolves,"),
    ] {
        let (run, token) = run_with_token(&daemon, profile, &daemon.workspace(profile, &[])).await;
        let answer = post(port, &[("Authorization", &bearer(&token))], INITIALIZE).await;
        assert!(answer.body.contains(words), "{}", answer.body);
        let client = Client::connect(stdio(&daemon, &token, &["--run", run.id()])).await;
        let said = client.hello["instructions"].as_str().unwrap();
        assert!(said.contains(words) && said.contains("PENDING_APPROVAL"), "{said}");
        client.leave().await;
    }
}
