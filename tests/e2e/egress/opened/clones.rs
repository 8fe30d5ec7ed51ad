//! Runs that begin on a clone of a repository on a server, whose credential only the rule has.

use harness::{Daemon, dev_image, reason, requests, v1};

use super::super::{details, shell};
use super::forge::Forge;
use super::{Keys, SECRET};

/// Returns the rule for the repositories of the server.
fn rule(port: u16, fetch: &str) -> String {
    format!(
        "{{ host: files.example.org, ports: [{port}], scheme: git, repos: [org/app, org/none], fetch: {fetch}, \
         push: {{ refs: [\"refs/heads/agent/*\"] }}, \
         inject: {{ basic: {{ user: x, password: \"${{secret:model}}\" }} }}, decision: allow }}"
    )
}

/// A daemon whose profile `out` may fetch from a server.
struct World {
    forge: Forge,
    daemon: Daemon,
    url: String,
    _keys: Keys,
}

impl World {
    async fn new(config: &str) -> Self {
        let keys = Keys::make();
        let forge = Forge::start(&keys.certificates).await;
        let daemon = keys.daemon_with(config, &[rule(forge.port, "allow")], "").await;
        let url = format!("https://files.example.org:{}/org/app", forge.port);
        Self { forge, daemon, url, _keys: keys }
    }

    fn request(&self, revision: &str, depth: u32) -> v1::CreateRunRequest {
        let request = requests::clone_of_url("out", &self.url, revision, depth);
        v1::CreateRunRequest { image: dev_image(), ..request }
    }

    /// Returns the reason and the text of a refused request.
    async fn refused(&self, request: v1::CreateRunRequest) -> (String, String) {
        let status = self.daemon.run_with(request).await.err().expect("it is refused");
        (reason(&status), status.message().to_owned())
    }

    fn mirrors(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.daemon.state_dir().join("mirrors")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w16_a_run_begins_on_a_clone_of_a_server_and_the_next_one_takes_it_from_the_mirror() {
    let world = World::new("").await;
    let mut run = world.daemon.run_on(world.request("", 0)).await;
    let script = "cat first; git status --porcelain; git remote get-url origin; git branch --show-current; \
                  git rev-parse --abbrev-ref '@{upstream}'; git fsck --strict; grep -r canary .git; env";
    let (_, said) = shell(&mut run, script).await;
    let begin = format!("first\n{}\nmain\norigin/main\n", world.url);
    assert!(said.starts_with(&begin), "{said}");
    assert!(!said.contains(SECRET) && !said.contains("missing") && !said.contains("dangling"), "{said}");
    assert_eq!((world.forge.lists() > 0, world.forge.packs()), (true, 1));

    // On the record of the run, before it was ready.
    let intent = details(&mut run, "egress_intent", 1).await.remove(0);
    assert_eq!(
        (&intent["host"], &intent["calls"]),
        (&"files.example.org".into(), &serde_json::json!(["clone"]))
    );
    let receipts = details(&mut run, "egress_receipt", 1).await;
    assert!(!serde_json::to_string(&receipts).unwrap().contains(SECRET));

    // The server is asked again, and sends no further pack.
    let lists = world.forge.lists();
    let mut second = world.daemon.run_on(world.request("main", 0)).await;
    assert_eq!(shell(&mut second, "cat first").await.1, "first\n");
    assert_eq!((world.forge.lists() > lists, world.forge.packs()), (true, 1));
    let commit = world.forge.commit("main", "second", "second\n");
    let mut third = world.daemon.run_on(world.request("", 0)).await;
    assert_eq!(shell(&mut third, "git rev-parse HEAD; cat second").await.1, format!("{commit}\nsecond\n"));
    assert_eq!(world.forge.packs(), 2);
    assert_eq!(world.mirrors().len(), 1);

    // The run itself can push, by its own rules.
    let push = "git config user.name A; git config user.email a@example.org; git commit -q --allow-empty -m three; \
                git push -q origin HEAD:refs/heads/agent/x";
    let (code, said) = shell(&mut third, push).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(world.forge.refs("app").contains("refs/heads/agent/x "));
}

#[tokio::test(flavor = "multi_thread")]
async fn w16_a_clone_is_at_a_branch_a_tag_or_a_commit_that_the_server_shows() {
    let world = World::new("").await;
    let first = world.forge.in_app(&["rev-parse", "main"]).trim().to_owned();
    let second = world.forge.commit("topic", "second", "second\n");
    world.forge.in_app(&["tag", "v1", &first]);
    let hidden = world.forge.commit("hidden", "third", "third\n");
    for (revision, depth, head, branch) in [
        ("topic", 0, &second, "topic"),
        ("v1", 0, &first, ""),
        (first.as_str(), 0, &first, ""),
        (second.as_str(), 0, &second, ""),
        ("topic", 1, &second, "topic"),
    ] {
        let mut run = world.daemon.run_on(world.request(revision, depth)).await;
        let script = "git rev-parse HEAD; git branch --show-current; git rev-list --count HEAD; git status --porcelain";
        let (_, said) = shell(&mut run, script).await;
        let count = if head == &second && depth == 0 { 2 } else { 1 };
        // A detached HEAD has no branch, and no line.
        let wanted = if branch.is_empty() { String::new() } else { format!("{branch}\n") };
        assert_eq!(said, format!("{head}\n{wanted}{count}\n"), "{revision}");
        run.stop().await;
    }
    // What the server no longer shows stays in the mirror, and in no clone.
    world.forge.in_app(&["update-ref", "-d", "refs/heads/hidden"]);
    let (_, why) = world.refused(world.request(&hidden, 0)).await;
    assert!(why.contains("is not in the history of a branch or tag of the server"), "{why}");
    let mut run = world.daemon.run_on(world.request("topic", 0)).await;
    let (code, said) = shell(&mut run, &format!("git cat-file -t {hidden}")).await;
    assert_ne!(code, Some(0), "{said}");
    for revision in ["none", "v1~0", &first[..10]] {
        let (_, why) = world.refused(world.request(revision, 0)).await;
        assert!(why.contains("has no branch, tag or commit"), "{revision}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w16_rules_that_do_not_allow_a_clone_refuse_the_run_before_it_exists() {
    let world = World::new("").await;
    let of = |profile: &str, url: &str| requests::clone_of_url(profile, url, "", 0);
    let base = world.url.trim_end_matches("/org/app").to_owned();
    for (request, words) in [
        (of("none", &world.url), "nothing is open to the run"),
        (of("out", &format!("{base}/org/other")), "does not allow a fetch from org/other"),
        (of("out", "https://git.example.org/org/app"), "does not allow git.example.org:443"),
        (of("out", &world.url.replace("https", "http")), "must begin with https://"),
        (of("out", "ssh://files.example.org/org/app"), "must begin with https://"),
        (of("out", &world.url.replace("files", "user:password@files")), "looks like a password"),
    ] {
        let (_, why) = world.refused(request).await;
        assert!(why.contains(words) && !why.contains("password@"), "{words}: {why}");
    }
    let narrowed = v1::CreateRunRequest {
        egress_json: "{\"only\":[\"git.example.org\"]}".to_owned(),
        ..world.request("", 0)
    };
    assert!(world.daemon.run_with(narrowed).await.is_err());
    assert!(world.forge.authenticated.lock().is_empty(), "nothing has reached the server");
    assert!(world.mirrors().is_empty());

    let keys = Keys::make();
    let daemon = keys.daemon(&[rule(world.forge.port, "deny")], "").await;
    let status = daemon.run_with(world.request("", 0)).await.err().expect("it is refused");
    assert_eq!(reason(&status), "PERMISSION_DENIED", "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn w16_a_server_that_is_gone_or_refuses_is_named_and_leaves_the_mirror() {
    let mut world = World::new("").await;
    let (_, why) =
        world.refused(requests::clone_of_url("out", &world.url.replace("/app", "/none"), "", 0)).await;
    assert!(why.contains("404"), "{why}");
    assert!(world.mirrors().is_empty(), "{:?}", world.mirrors());
    world.daemon.run_on(world.request("", 0)).await.stop().await;
    world.forge.stop().await;
    let (_, why) = world.refused(world.request("", 0)).await;
    assert!(why.contains("workspace.clone") && !why.contains(SECRET), "{why}");
    let mirrors = world.mirrors();
    assert!(mirrors.len() == 1 && !mirrors[0].contains(".part"), "{mirrors:?}");
    assert_eq!(std::fs::read_dir(world.daemon.state_dir().join("workspaces")).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn w16_an_unfinished_mirror_is_removed_and_mirrors_stay_within_their_limits() {
    let mut world = World::new("mirrors: { max_bytes: 8MiB, max_age: 1h }\n").await;
    world.daemon.run_on(world.request("", 0)).await.stop().await;
    let mirrors = world.daemon.state_dir().join("mirrors");
    let name = world.mirrors().remove(0);
    // As a daemon leaves it that is killed during a refresh.
    world.daemon.kill().await;
    std::fs::rename(mirrors.join(&name), mirrors.join(format!("{name}.part"))).unwrap();
    world.daemon.launch().await;
    assert!(world.mirrors().is_empty());
    world.daemon.run_on(world.request("", 0)).await.stop().await;
    assert_eq!((world.mirrors(), world.forge.packs()), (vec![name], 2));

    // More than half of the bound is refused, and nothing of it is left.
    world.forge.commit_random(6 << 20);
    let (code, why) = world.refused(world.request("", 0)).await;
    assert_eq!(code, "WRITE_LIMIT", "{why}");
    assert!(why.contains("mirrors.max_bytes"), "{why}");
    assert!(world.mirrors().iter().all(|name| !name.contains(".part")));
}

#[tokio::test(flavor = "multi_thread")]
async fn w16_clones_at_the_same_time_share_one_fetch() {
    let world = World::new("").await;
    let run = || world.daemon.run_on(world.request("", 0));
    let (one, two, three) = tokio::join!(run(), run(), run());
    for mut run in [one, two, three] {
        assert_eq!(shell(&mut run, "cat first").await.1, "first\n");
    }
    assert_eq!((world.forge.packs(), world.mirrors().len()), (1, 1));
}
