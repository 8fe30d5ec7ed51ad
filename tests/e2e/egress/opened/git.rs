//! Fetches and pushes of git, to a server that takes a credential that only the rule has.

use harness::{RunHandle, dev_image, requests, v1};

use super::super::{details, shell};
use super::forge::Forge;
use super::{Keys, SECRET};

/// Returns the rule for the repositories of the server.
fn rule(port: u16) -> String {
    format!(
        "{{ host: files.example.org, ports: [{port}], scheme: git, repos: [org/app, org/moved], fetch: allow, \
         push: {{ refs: [\"refs/heads/agent/*\"] }}, \
         inject: {{ basic: {{ user: x, password: \"${{secret:model}}\" }} }}, decision: allow }}"
    )
}

/// A run with a repository of these commits: `agent/x` has the server's `main` as an ancestor, and `agent/orphan` nothing.
pub(super) async fn repository(run: &mut RunHandle, url: &str) {
    let script = format!(
        "set -e; git init -q -b main .; git config user.name A; git config user.email a@example.org; \
         git config advice.graftFileDeprecated false; git config push.default nothing; \
         git remote add origin {url}/org/app.git; git fetch -q origin; git checkout -q -b agent/x origin/main; \
         echo one > one; git add one; git commit -qm one; git tag v1; git tag -m annotated v2; git branch local; \
         git checkout -q --orphan agent/orphan; git commit -qm orphan; git checkout -q agent/x"
    );
    let (code, said) = shell(run, &script).await;
    assert_eq!(code, Some(0), "{said}");
}

/// Ways to push, in this order, and what git says about them: an empty text is a push that arrives, at the named ref.
const PUSHES: &[(&str, &str, &str)] = &[
    // A new branch, a later commit, a branch beneath, several at once, and a pack that comes in chunks after a probe.
    ("git push origin agent/x", "refs/heads/agent/x", ""),
    ("git commit -q --allow-empty -m two; git push origin agent/x", "refs/heads/agent/x", ""),
    ("git push origin agent/x:refs/heads/agent/deep/er", "refs/heads/agent/deep/er", ""),
    (
        "git push --atomic origin agent/x:refs/heads/agent/a agent/x:refs/heads/agent/b",
        "refs/heads/agent/b",
        "",
    ),
    ("git push origin agent/x~1:refs/heads/agent/older", "refs/heads/agent/older", ""),
    (
        "git symbolic-ref refs/heads/agent/sym refs/heads/agent/x; git push origin agent/sym:refs/heads/agent/sym",
        "refs/heads/agent/sym",
        "",
    ),
    (
        "git remote rename origin other >/dev/null; git push other agent/x:refs/heads/agent/renamed; e=$?; \
         git remote rename other origin >/dev/null; exit $e",
        "refs/heads/agent/renamed",
        "",
    ),
    (
        "git checkout -q -b agent/big; head -c 5M /dev/urandom >big; git add big; git commit -qm big; \
         git push origin agent/big; e=$?; git checkout -q agent/x; exit $e",
        "refs/heads/agent/big",
        "",
    ),
    (
        "git clone -q $U/org/app.git /tmp/clone && cd /tmp/clone && git push origin HEAD:refs/heads/agent/cloned",
        "refs/heads/agent/cloned",
        "",
    ),
    // Other refs.
    ("git push origin agent/x:main", "", "no rule allows this ref; push to refs/heads/agent/*"),
    ("git push origin agent/x:refs/heads/main", "", "no rule allows this ref"),
    ("git push -f origin agent/x:refs/heads/main", "", "no rule allows this ref"),
    ("git push origin agent/x:refs/heads/agentx", "", "no rule allows this ref"),
    ("git push origin agent/x:refs/heads/Agent/x", "", "no rule allows this ref"),
    ("git push origin agent/x:refs/heads/x/agent/x", "", "no rule allows this ref"),
    ("git push origin agent/x:refs/agent/x", "", "no rule allows this ref"),
    ("git push origin agent/x:refs/for/main", "", "no rule allows this ref"),
    ("git push origin agent/x:refs/pull/1/head", "", "no rule allows this ref"),
    ("git push origin agent/x:refs/notes/commits", "", "no rule allows this ref"),
    ("git push origin agent/x:refs/replace/agent/x", "", "no rule allows this ref"),
    ("git push origin v1", "", "no rule allows this ref"),
    ("git push origin v2:refs/tags/agent/v2", "", "no rule allows this ref"),
    ("git push --tags origin", "", "no rule allows this ref"),
    ("git push --follow-tags origin agent/x:refs/heads/agent/tagged v2", "", "no rule allows this ref"),
    ("git push --all origin", "", "no rule allows this ref"),
    ("git push --mirror origin", "", "no rule allows"),
    ("git push --prune origin 'refs/heads/*:refs/heads/*'", "", "no rule allows"),
    // One ref of several.
    (
        "git push origin agent/x:refs/heads/agent/two agent/x:refs/heads/main",
        "",
        "not pushed, because another ref of this push is refused",
    ),
    ("git push --atomic origin agent/x:refs/heads/agent/two agent/x:main", "", "no rule allows this ref"),
    // Forced updates, as the client means them and as it does not know.
    ("git push -f origin agent/orphan:agent/x", "", "no rule allows a forced update"),
    ("git push origin +agent/orphan:agent/x", "", "no rule allows a forced update"),
    (
        "git push --force-with-lease=agent/x:$(git rev-parse agent/x) origin agent/orphan:refs/heads/agent/x",
        "",
        "no rule allows a forced update",
    ),
    ("git push -f origin agent/x~1:refs/heads/agent/x", "", "no rule allows a forced update"),
    (
        "echo $(git rev-parse agent/orphan) $(git rev-parse agent/x) > .git/info/grafts; \
         git push origin agent/orphan:agent/x; e=$?; rm .git/info/grafts; exit $e",
        "",
        "no rule allows a forced update",
    ),
    (
        "git replace --graft agent/orphan agent/x; git push origin agent/orphan:agent/x; e=$?; \
         git replace -d $(git rev-parse agent/orphan) >/dev/null; exit $e",
        "",
        "no rule allows a forced update",
    ),
    (
        "cd /tmp/clone && git checkout -q -b new origin/agent/x && git -c user.name=A -c user.email=a@example.org commit -q \
         --allow-empty -m away && git push origin new:refs/heads/agent/x",
        "",
        "it is not known if this update is forced",
    ),
    // Deletions and options.
    ("git push origin :agent/x", "", "no rule allows to delete this ref"),
    ("git push --delete origin agent/x", "", "no rule allows to delete this ref"),
    ("git push --delete origin main", "", "no rule allows this ref"),
    ("git push -o ci.skip origin agent/x:refs/heads/agent/option", "", "no rule allows push options"),
    // Other repositories, and other names of them.
    ("git push $U/org/other.git agent/x", "", "no rule allows this repository"),
    ("git push $U/org/moved.git agent/x", "", "no rule allows this repository"),
    ("git push $U/ORG/app.git agent/x", "", "no rule allows this repository"),
    ("git push $U/org/app.git.git agent/x", "", "403"),
    ("git push $U/org//app.git agent/x", "", "403"),
    ("git push $U/org/%61pp.git agent/x", "", "403"),
];

#[tokio::test(flavor = "multi_thread")]
async fn s20_only_pushes_that_the_rule_allows_arrive() {
    let keys = Keys::make();
    let forge = Forge::start(&keys.certificates).await;
    let daemon = keys.daemon(&[rule(forge.port)], "").await;
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") };
    let mut run = daemon.run_on(request).await;
    let url = format!("https://files.example.org:{}", forge.port);
    repository(&mut run, &url).await;
    let other = forge.refs("other");
    for (script, name, words) in PUSHES {
        let before = forge.refs("app");
        let script = format!("export GIT_TERMINAL_PROMPT=0 U={url}; {script}");
        let (code, said) = shell(&mut run, &script).await;
        let after = forge.refs("app");
        assert!(!said.contains(SECRET), "{script}: {said}");
        if words.is_empty() {
            assert_eq!(code, Some(0), "{script}: {said}");
            assert!(after != before && after.contains(&format!("{name} ")), "{script}: {after}");
        } else {
            assert_ne!(code, Some(0), "{script}: {said}");
            assert!(said.contains(words), "{script}: {said}");
            assert_eq!(after, before, "{script}");
        }
    }
    assert_eq!(forge.refs("other"), other);
    assert!(forge.authenticated.lock().iter().all(|request| !request.contains("/org/other")));

    let arrived = PUSHES.iter().filter(|(_, _, words)| words.is_empty()).count();
    let pushes = details(&mut run, "git_push", arrived).await;
    let first = &pushes[0];
    assert_eq!(first["repository"], "org/app", "{first}");
    assert_eq!(first["refs"][0]["ref"], "refs/heads/agent/x", "{first}");
    assert_eq!(
        (&first["refs"][0]["change"], &first["injected"][0]),
        (&"create".into(), &"model".into()),
        "{first}"
    );
    let refused = details(&mut run, "egress_refused", 1).await;
    let why = |event: &serde_json::Value| event["why"].as_str().unwrap_or_default().to_owned();
    assert!(refused.iter().any(|event| why(event).contains("refs/heads/main: no rule")), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s21_fetches_are_for_the_repositories_of_the_rule_and_nothing_but_git_passes() {
    let keys = Keys::make();
    let forge = Forge::start(&keys.certificates).await;
    let daemon = keys.daemon(&[rule(forge.port)], "").await;
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") };
    let mut run = daemon.run_on(request).await;
    let url = format!("https://files.example.org:{}", forge.port);
    for (script, words) in [
        ("git clone -q $U/org/app.git a && cat a/first", "first"),
        ("git clone -q $U/org/app b && cat b/first", "first"),
        ("git -c protocol.version=0 ls-remote $U/org/app.git", "refs/heads/main"),
        ("git clone -q --depth 1 $U/org/app.git c && cat c/first", "first"),
        ("! git ls-remote $U/org/other.git", "no rule allows this repository"),
        ("! git clone $U/org/moved.git d", "no rule allows this repository"),
        ("! GIT_SMART_HTTP=0 git ls-remote $U/org/app.git", "403"),
        ("curl -sS $U/org/app.git/HEAD", "the dumb protocol of git"),
        ("curl -sS -X POST $U/org/app.git/info/lfs/objects/batch", "Git LFS"),
        ("curl -sS $U/api/v1/user", "allows git alone"),
        ("curl -sS -X POST $U/org/app.git/git-upload-archive", "git-upload-archive"),
        ("curl -sS -X POST --data-binary 0000 $U/org/app.git/git-receive-pack", "another content type"),
        ("! echo url=$U/org/app.git | GIT_TERMINAL_PROMPT=0 git credential fill; env", "HOME="),
    ] {
        let script = format!("export U={url}; {script}");
        let (_, said) = shell(&mut run, &script).await;
        assert!(said.contains(words) && !said.contains(SECRET), "{script}: {said}");
    }
    let seen = forge.authenticated.lock().clone();
    let is_of_git = |request: &String| {
        request.contains("/info/refs?service=git-") || request.contains("/git-upload-pack")
    };
    assert!(!seen.is_empty() && seen.iter().all(is_of_git), "{seen:?}");
}
