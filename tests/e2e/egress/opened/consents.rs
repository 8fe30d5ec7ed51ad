//! Pushes of git that a reviewer decides about.

use std::time::Duration;

use harness::v1::approval::{Remember, State};
use harness::v1::decide_approval_request::Decision;
use harness::{Daemon, RunHandle, calls, dev_image, requests, v1};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::super::{details, shell};
use super::forge::Forge;
use super::git::repository;
use super::{Keys, SECRET};

/// A run with a repository, and a server whose pushes a reviewer decides about.
struct Scene {
    forge: Forge,
    daemon: Daemon,
    run: RunHandle,
    url: String,
    _keys: Keys,
}

type Waits = JoinHandle<Result<v1::CallResponse, tonic::Status>>;

impl Scene {
    async fn start() -> Self {
        let keys = Keys::make();
        let forge = Forge::start(&keys.certificates).await;
        let rule = format!(
            "{{ host: files.example.org, ports: [{}], scheme: git, repos: [org/app], fetch: allow, \
             push: {{ refs: [\"refs/heads/agent/*\"], decision: ask, force: ask, delete: ask, options: ask }}, \
             inject: {{ basic: {{ user: x, password: \"${{secret:model}}\" }} }}, decision: allow }}",
            forge.port
        );
        let daemon = keys.daemon(&[rule], "").await;
        let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") };
        let mut run = daemon.run_on(request).await;
        let url = format!("https://files.example.org:{}", forge.port);
        repository(&mut run, &url).await;
        Self { forge, daemon, run, url, _keys: keys }
    }

    fn script(&self, script: &str) -> String {
        format!("export GIT_TERMINAL_PROMPT=0 U={}; {script}", self.url)
    }

    /// Begins a command that pushes.
    fn pushes(&self, script: &str) -> Waits {
        self.run.waits(calls::shell(&self.script(script)))
    }

    /// Runs a command that has to succeed, and returns its output without the line end.
    async fn says(&mut self, script: &str) -> String {
        let script = self.script(script);
        let (code, said) = shell(&mut self.run, &script).await;
        assert_eq!(code, Some(0), "{script}: {said}");
        said.trim().to_owned()
    }

    async fn pending(&mut self) -> v1::Approval {
        let id = self.run.id().to_owned();
        let pending = self.run.clients.pending_approval(&id);
        tokio::time::timeout(Duration::from_secs(60), pending).await.expect("no reviewer is asked")
    }

    /// Returns the number of all approvals of the run.
    async fn count(&mut self) -> usize {
        let request = v1::ListApprovalsRequest { run_id: self.run.id().to_owned(), ..Default::default() };
        let listed = self.run.clients.approvals.list_approvals(request).await;
        listed.unwrap().into_inner().approvals.len()
    }

    async fn until(&mut self, approval: &v1::Approval, state: State) {
        for _ in 0..2_400 {
            if self.run.clients.approval(&approval.approval_id).await.state() == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the approval is not {state:?}");
    }

    /// Returns the id of a ref of the server; empty if it has none.
    fn id(&self, name: &str) -> String {
        let refs = self.forge.refs("app");
        let line = refs.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_default().to_owned()
    }
}

/// Waits for a command. Returns its exit code, and its output.
async fn ended(waits: Waits) -> (Option<i32>, String) {
    let Some(v1::result::Kind::Shell(ran)) = waits.await.unwrap().unwrap().into_kind() else {
        panic!("no shell")
    };
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!said.contains(SECRET), "{said}");
    (ran.exit_code, said)
}

/// Returns the updates that an approval is for.
fn updates(approval: &v1::Approval) -> Vec<Value> {
    let operation: Value = serde_json::from_str(&approval.operation_json).unwrap();
    operation["push"]["updates"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn s22_the_diff_that_a_reviewer_sees_is_the_one_that_lands() {
    let mut scene = Scene::start().await;
    let name = "refs/heads/agent/x";
    let waits = scene.pushes("git push origin agent/x");
    let approval = scene.pending().await;
    let first = scene.says("git rev-parse agent/x").await;
    assert_eq!((approval.operation.as_str(), approval.call_id.as_str()), ("push", ""));
    assert_eq!(approval.remember_options, [i32::from(Remember::Once)]);
    assert!(approval.justification.contains("pushes to org/app"), "{}", approval.justification);
    for part in
        ["create refs/heads/agent/x\n", first.as_str(), "Commits that it gains", ": one\n", "\n+one\n"]
    {
        assert!(approval.preview.contains(part), "{part}: {}", approval.preview);
    }
    assert!(!approval.preview.contains(SECRET));
    assert_eq!(updates(&approval)[0]["new"], first.as_str());
    assert_eq!(scene.id(name), "", "nothing goes out before the decision");
    assert!(scene.forge.authenticated.lock().iter().all(|request| !request.contains("/git-receive-pack ")));
    scene.run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(ended(waits).await.0, Some(0));
    assert_eq!(scene.id(name), first);

    // The branch moves on while the reviewer reads. What was seen lands.
    scene.says("printf '1\\n2\\n' >one; git commit -qam two").await;
    let waits = scene.pushes("git push origin agent/x");
    let approval = scene.pending().await;
    let second = scene.says("git rev-parse agent/x").await;
    scene.says("echo later >later; git add later; git commit -qm later").await;
    scene.run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(ended(waits).await.0, Some(0));
    assert_eq!(scene.id(name), second);
    assert!(!approval.preview.contains("later"), "{}", approval.preview);
    let landed = scene.forge.diff("app", &first, &second);
    for line in landed.lines().filter(|line| line.starts_with(['+', '-'])) {
        assert!(approval.preview.contains(&format!("\n{line}\n")), "{line}: {}", approval.preview);
    }
    let pushes = details(&mut scene.run, "git_push", 2).await;
    assert_eq!(pushes[1]["refs"][0]["new"], second.as_str());
    let run = scene.run.id().to_owned();
    for event in scene.run.clients.events(&run, "git_push").await {
        assert!(super::super::record(&event)["approval_id"].is_string());
    }
    let requested = details(&mut scene.run, "approval_requested", 2).await;
    assert_eq!(requested[1]["push"]["updates"][0]["old"], first.as_str(), "{}", requested[1]);
    assert_eq!(scene.count().await, 2);
    assert!(scene.run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn s23_a_denial_is_in_the_report_of_git_and_holds_for_the_same_push() {
    let mut scene = Scene::start().await;
    let before = scene.forge.refs("app");
    let push = "git push origin agent/x:refs/heads/agent/a agent/x:refs/heads/agent/b";
    let waits = scene.pushes(push);
    let approval = scene.pending().await;
    let names: Vec<_> = updates(&approval).iter().map(|update| update["ref"].clone()).collect();
    assert_eq!(names, ["refs/heads/agent/a", "refs/heads/agent/b"], "one question for both");
    scene.run.clients.decide(&approval.approval_id, Decision::Deny).await.unwrap();
    let denied = format!("a reviewer denied this push (approval {})", approval.approval_id);
    let (code, said) = ended(waits).await;
    assert_eq!(code, Some(1), "{said}");
    for part in
        ["agent/x -> agent/a (", "agent/x -> agent/b (", "[remote rejected]", &denied, "decided by a test"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said) = ended(scene.pushes(push)).await;
    assert!(code == Some(1) && said.contains(&denied), "{said}");
    assert_eq!((scene.count().await, scene.forge.refs("app")), (1, before));
    // Another push is another question.
    let waits =
        scene.pushes("git push --atomic origin agent/x:refs/heads/agent/a agent/x:refs/heads/agent/c");
    let approval = scene.pending().await;
    assert!(approval.preview.contains("Either all refs change or none."), "{}", approval.preview);
    scene.run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(ended(waits).await.0, Some(0));
    let pushed = scene.says("git rev-parse agent/x").await;
    assert_eq!((scene.id("refs/heads/agent/a"), scene.id("refs/heads/agent/c")), (pushed.clone(), pushed));
    assert_eq!(scene.id("refs/heads/agent/b"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_consent_is_for_the_ids_that_were_seen() {
    let mut scene = Scene::start().await;
    let name = "refs/heads/agent/x";
    scene.forge.set("app", name, "main");
    let main = scene.id("refs/heads/main");
    scene.says("git fetch -q origin").await;
    // Somebody else moves the ref while the reviewer reads: the server makes no update from another id.
    let waits = scene.pushes("git push origin agent/x");
    let approval = scene.pending().await;
    assert_eq!(updates(&approval)[0]["old"], main.as_str());
    let other = scene.forge.loose_commit("app", "somebody else");
    scene.forge.set("app", name, &other);
    scene.run.clients.approve(&approval.approval_id).await.unwrap();
    let (code, said) = ended(waits).await;
    assert!(code == Some(1) && said.contains("[remote rejected]"), "{said}");
    assert_eq!(scene.id(name), other);
    // Commits that the run's repository lacks are lost by a forced push, which is said.
    let waits = scene.pushes("git fetch -q origin; git push -f origin agent/orphan:agent/x");
    let approval = scene.pending().await;
    assert_eq!(updates(&approval)[0]["forced"], true);
    for part in ["FORCED UPDATE refs/heads/agent/x", "Commits that it loses", "somebody else"] {
        assert!(approval.preview.contains(part), "{part}: {}", approval.preview);
    }
    scene.run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(ended(waits).await.0, Some(0));
    let orphan = scene.says("git rev-parse agent/orphan").await;
    assert_eq!(scene.id(name), orphan);
    // The rules come first: no reviewer is asked about a ref that they lack.
    let count = scene.count().await;
    let (_, said) = ended(scene.pushes("git push origin agent/x:refs/heads/main")).await;
    assert!(said.contains("no rule allows this ref"), "{said}");
    assert_eq!(scene.count().await, count);
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_program_that_leaves_withdraws_its_question() {
    let mut scene = Scene::start().await;
    let waits = scene.pushes("timeout -s KILL 10 git push origin agent/x >/dev/null 2>&1; echo left");
    let approval = scene.pending().await;
    ended(waits).await;
    scene.until(&approval, State::Cancelled).await;
    assert!(scene.run.clients.approve(&approval.approval_id).await.is_err());
    assert_eq!(scene.id("refs/heads/agent/x"), "");
    let waits = scene.pushes("git push origin agent/x");
    let again = scene.pending().await;
    assert_ne!(again.approval_id, approval.approval_id);
    scene.run.clients.approve(&again.approval_id).await.unwrap();
    assert_eq!(ended(waits).await.0, Some(0));
    assert_ne!(scene.id("refs/heads/agent/x"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_a_question_ends_with_its_daemon_and_the_push_asks_again() {
    let mut scene = Scene::start().await;
    let waits = scene.pushes("git push origin agent/x");
    let approval = scene.pending().await;
    scene.daemon.kill().await;
    let _ = waits.await;
    scene.daemon.launch().await;
    scene.run.clients = scene.daemon.connect().await;
    scene.until(&approval, State::Cancelled).await;
    assert!(scene.run.clients.approve(&approval.approval_id).await.is_err());
    assert_eq!(scene.id("refs/heads/agent/x"), "");
    let waits = scene.pushes("git push origin agent/x");
    let again = scene.pending().await;
    scene.run.clients.approve(&again.approval_id).await.unwrap();
    assert_eq!(ended(waits).await.0, Some(0));
    assert_ne!(scene.id("refs/heads/agent/x"), "");
}

/// Pushes of an agent that does not want its reviewer to see what they do, and parts of what the reviewer sees.
const HOSTILE: &[(&str, &[&str])] = &[
    (
        "git -c user.name=\"$(printf 'A\\342\\200\\256')\" commit -q --allow-empty \
         -m \"$(printf 'fix\\342\\200\\256 \\033[2Kall\\r!! forged')\"; git push origin agent/x:refs/heads/agent/bidi",
        &["fix\\u{202e} \\u{1b}[2Kall"],
    ),
    (
        "git clone -q $U/org/app.git /tmp/clone; cd /tmp/clone; git -c user.name=A -c user.email=a@example.org commit -q \
         --allow-empty -m away; git push origin HEAD:refs/heads/agent/away",
        &["!! UNKNOWN TO THE RUN'S REPOSITORY"],
    ),
    (
        "echo '* -diff' >.gitattributes; echo hidden >one; git add -A; git commit -qm attributes; \
         git push origin agent/x:refs/heads/agent/attributes",
        &["\n+hidden\n"],
    ),
    (
        "seq 100000 >many; git add many; git commit -qm many; git push origin agent/x:refs/heads/agent/many",
        &["!! THE DIFF IS NOT WHOLE", "many |"],
    ),
    ("git push origin \"agent/x:refs/heads/agent/'a\\\"\\$(x)\"", &["create refs/heads/agent/'a\"$(x)\n"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn s27_a_hostile_push_is_shown_as_it_is_or_said_not_to_be() {
    let mut scene = Scene::start().await;
    let before = scene.forge.refs("app");
    for (script, parts) in HOSTILE {
        let waits = scene.pushes(script);
        let approval = scene.pending().await;
        assert!(approval.preview.len() < 600 * 1024, "{}", approval.preview.len());
        for part in *parts {
            assert!(approval.preview.contains(part), "{script}: {part}: {}", approval.preview);
        }
        assert!(!approval.preview.contains(['\u{202e}', '\x1b', '\r']), "{script}");
        assert!(!approval.preview.contains("\n!! forged"), "{script}");
        scene.run.clients.decide(&approval.approval_id, Decision::Deny).await.unwrap();
        assert_ne!(ended(waits).await.0, Some(0), "{script}");
    }
    let count = scene.count().await;
    let many = "for n in $(seq 1000); do echo create refs/heads/agent/m$n HEAD; done | git update-ref --stdin; \
                git push origin 'refs/heads/agent/m*:refs/heads/agent/m*'";
    let (code, said) = ended(scene.pushes(many)).await;
    assert!(code == Some(1) && said.contains("a reviewer is asked about 64 at most"), "{said}");
    assert_eq!((scene.count().await, scene.forge.refs("app")), (count, before));
}
