//! Runs with a way out, whose daemon `deploy/compose.egress.yaml` gives the network and the capabilities for it.

use harness::server::Server;
use harness::{Certificates, dev_image};

use crate::DONE;
use crate::stack::{AGENT, Stack};

#[tokio::test(flavor = "multi_thread")]
async fn runs_reach_the_servers_of_their_rules_and_no_other_name() {
    let certificates = Certificates::for_host("files.example.org");
    let (https, echo) = (Server::https(&certificates).await, Server::echo().await);
    let policy = format!(
        "profiles:\n  out:\n    operations: {{ shell: allow }}\n    exec: {{ default: allow }}\n    allowed_images: ['*']\n    \
         egress: {{ networks: [\"127.0.0.0/8\"], rules: [\
         {{ host: files.example.org, ports: [{}], decision: allow }}, \
         {{ host: git.example.org, ports: [{}], scheme: tcp, decision: allow }}] }}\n\
         roles: {{ director: {{ allow: \"*\" }} }}\n",
        https.port, echo.port
    );
    let mut stack = Stack::up_with_egress(&policy);
    let judged = stack.coffer(AGENT, &["doctor"]);
    assert!(judged.ended(DONE).contains("connections of a run can be steered"), "{judged:?}");

    let authority = std::fs::read_to_string(certificates.authority()).unwrap();
    let workspace = stack.repository("project", &[("ca.pem", authority.as_str())]).display().to_string();
    let (image, role) = (dev_image(), "director");
    let create =
        ["run", "create", "--profile", "out", "--role", role, "--bind", &workspace, "--image", &image];
    let run = stack.coffer(AGENT, &create).ended(DONE).trim().to_owned();
    let says = |script: &str| stack.coffer(AGENT, &["call", "shell", &run, script]).ended(DONE).to_owned();

    let said = says(&format!("curl -fsS --cacert ca.pem https://files.example.org:{}/a", https.port));
    assert_eq!(said, "GET /a HTTP/1.1\n");
    let line = "echo hello >&3; read -r line <&3; echo \"$line\"";
    let said = says(&format!("bash -c 'exec 3<>/dev/tcp/git.example.org/{}; {line}'", echo.port));
    assert_eq!(said, "hello\n");
    // "One or more supplied keys could not be found", and "couldn't resolve host".
    assert_eq!(says("getent hosts other.example.org; echo $?"), "2\n");
    let said = says(&format!("curl -sk https://other.example.org:{}/ || echo $?", https.port));
    assert_eq!(said, "6\n");
    assert_eq!((https.connections(), echo.connections()), (1, 1));

    let receipts = stack.coffer(AGENT, &["run", "connections", &run]);
    let receipts = receipts.ended(DONE);
    for host in ["files.example.org", "git.example.org", "refused other.example.org"] {
        assert!(receipts.contains(host), "{host}: {receipts}");
    }
    assert_eq!(stack.errors(), Vec::<String>::new());
    stack.down();
}
