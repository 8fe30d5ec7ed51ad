//! The git of this machine against rules: it pushes what they allow, and shows the reason of each refusal.

mod git;
mod server;

use std::path::{Path, PathBuf};

use cofferdam_git_wire::{Change, CommandList, Decision, RefName, RepositoryPattern, Rules};
use tempfile::TempDir;

use git::{fail, git, run};
use server::{Server, Site, WORDS};

const STRICT: &str = r#"{"refs": ["refs/heads/agent/*", "refs/tags/agent/*"]}"#;
const REF: &str = "(no rule allows this ref; push to refs/heads/agent/* or refs/tags/agent/*)";

/// A bare repository, a client's with one commit, and a server.
struct Scene {
    server: Server,
    bare: PathBuf,
    work: PathBuf,
    _directory: TempDir,
}

impl Scene {
    fn new(push: &str) -> Self {
        Self::with(push, Decision::Allow, "sha1")
    }

    fn with(push: &str, fetch: Decision, format: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (bare, work) = (directory.path().join("bare"), directory.path().join("work"));
        for path in [&bare, &work] {
            std::fs::create_dir(path).unwrap();
        }
        let format = format!("--object-format={format}");
        run(&bare, &["init", "-q", "--bare", "-b", "main", &format]);
        run(&bare, &["config", "receive.advertisePushOptions", "true"]);
        run(&bare, &["config", "receive.certNonceSeed", "seed"]);
        run(&work, &["init", "-q", "-b", "main", &format]);
        run(&work, &["commit", "-q", "--allow-empty", "-m", "first"]);
        run(&work, &["push", "-q", bare.to_str().unwrap(), "main", "main:agent/old"]);
        let rules = Rules::new(
            [RepositoryPattern::parse("org/app").unwrap()].into(),
            fetch,
            serde_json::from_str(push).unwrap(),
        );
        let (repository, is_late) = (bare.clone(), fetch == Decision::Deny);
        let site = Site { repository, work: work.clone(), rules: rules.unwrap(), is_late };
        Self { server: Server::start(site), bare, work, _directory: directory }
    }

    fn commit(&self, message: &str) -> String {
        run(&self.work, &["commit", "-q", "--allow-empty", "-m", message]);
        run(&self.work, &["rev-parse", "HEAD"])
    }

    fn push(&self, arguments: &[&str]) -> CommandList {
        run(&self.work, &[&["push", self.server.url.as_str()][..], arguments].concat());
        self.last()
    }

    /// Pushes in vain, and returns the words of git.
    fn refused(&self, arguments: &[&str]) -> String {
        let before = self.refs();
        let words = fail(&self.work, &[&["push", self.server.url.as_str()][..], arguments].concat());
        assert_eq!(self.refs(), before);
        words
    }

    fn refs(&self) -> String {
        run(&self.bare, &["for-each-ref"])
    }

    fn last(&self) -> CommandList {
        self.server.pushes.try_iter().last().unwrap()
    }
}

#[track_caller]
fn has(words: &str, expected: &[&str]) {
    for part in expected {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn pushes_that_a_rule_allows_arrive_as_they_were_read() {
    let scene = Scene::new(STRICT);
    let first = run(&scene.work, &["rev-parse", "HEAD"]);
    let list = scene.push(&["HEAD:refs/heads/agent/x"]);
    assert_eq!((list.commands[0].change(), list.commands[0].new_id().as_str()), (Change::Create, &*first));
    assert!(list.capabilities.has_side_band && list.capabilities.agent.unwrap().starts_with("git/"));
    let second = scene.commit("second");
    run(&scene.work, &["tag", "-a", "-m", "tag", "agent/v1"]);
    let list = scene.push(&["HEAD:agent/x", "agent/v1"]);
    let update = &list.commands[0];
    assert_eq!(
        (update.change(), update.old().as_str(), update.new_id().as_str()),
        (Change::Update, &*first, &*second)
    );
    assert_eq!(run(&scene.bare, &["rev-parse", "agent/x", "agent/v1^{}"]), format!("{second}\n{second}"));
}

#[test]
fn git_shows_the_reason_for_each_refused_ref() {
    let scene = Scene::new(STRICT);
    scene.commit("second");
    let words = scene.refused(&["HEAD:main"]);
    has(&words, &["! [remote rejected] HEAD -> main", REF, "remote: ", WORDS]);
    let words = scene.refused(&["HEAD:main", "HEAD:agent/x", ":agent/old"]);
    has(&words, &["HEAD -> agent/x (not pushed, because another ref of this push is refused)"]);
    has(&words, &[REF, "agent/old (no rule allows to delete this ref)"]);
    let words = scene.refused(&["--atomic", "HEAD:main", "HEAD:agent/x"]);
    has(&words, &[REF]);
    assert!(scene.last().capabilities.is_atomic);
    let words = scene.refused(&["-q", "HEAD:main"]);
    has(&words, &[REF, WORDS]);
}

#[test]
fn git_shows_why_a_forced_update_is_refused() {
    let scene = Scene::new(STRICT);
    scene.push(&["HEAD:agent/x"]);
    run(&scene.work, &["commit", "-q", "--allow-empty", "--amend", "-m", "another"]);
    let words = scene.refused(&["-f", "HEAD:agent/x"]);
    has(&words, &["(no rule allows a forced update; push to a new ref, or merge the old commit first)"]);
    let lax = Scene::new(r#"{"refs": ["refs/heads/*"], "force": "allow", "delete": "allow"}"#);
    run(&lax.work, &["commit", "-q", "--allow-empty", "--amend", "-m", "another"]);
    lax.push(&["-f", "HEAD:main"]);
    let list = lax.push(&[":agent/old"]);
    assert_eq!((list.commands[0].change(), list.has_pack()), (Change::Delete, false));
    assert!(!lax.refs().contains("agent/old"));
}

#[test]
fn git_shows_why_options_are_refused() {
    let scene = Scene::new(STRICT);
    let words = scene.refused(&["-o", "merge_request.create", "-o", "title=ü", "HEAD:agent/x"]);
    has(&words, &["(no rule allows push options; push without `-o`)"]);
    assert_eq!(scene.last().options, ["merge_request.create", "title=ü"]);
    let lax = Scene::new(r#"{"refs": ["refs/heads/*"], "options": "allow"}"#);
    assert_eq!(lax.push(&["-o", "ci.skip", "HEAD:agent/x"]).options, ["ci.skip"]);
}

#[test]
fn a_large_push_begins_with_a_probe_and_is_refused_in_words() {
    let scene = Scene::new(STRICT);
    let noise: Vec<u8> =
        (0..200_000_u64).flat_map(|n| n.wrapping_mul(n).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(scene.work.join("noise"), noise).unwrap();
    run(&scene.work, &["add", "noise"]);
    scene.commit("large");
    run(&scene.work, &["config", "http.postBuffer", "65536"]);
    let words = scene.refused(&["HEAD:main"]);
    has(&words, &[REF]);
    run(&scene.work, &["push", "-q", &scene.server.url, "HEAD:agent/x"]);
    let probes: Vec<_> = scene.server.pushes.try_iter().map(|list| list.is_probe()).collect();
    assert_eq!(probes, [true, false, true, false]);
}

#[test]
fn repositories_of_sha256_and_shallow_ones_are_pushed_from() {
    let scene = Scene::with(STRICT, Decision::Allow, "sha256");
    assert_eq!(scene.push(&["HEAD:agent/x"]).commands[0].new_id().as_str().len(), 64);
    has(&scene.refused(&["HEAD:refs/heads/y"]), &[REF]);
    let scene = Scene::new(STRICT);
    scene.commit("second");
    run(&scene.work, &["push", "-q", scene.bare.to_str().unwrap(), "main"]);
    run(&scene.bare, &["config", "receive.shallowUpdate", "true"]);
    run(&scene.work, &["clone", "-q", "--depth", "1", &scene.server.url, "shallow"]);
    let shallow = scene.work.join("shallow");
    run(&shallow, &["commit", "-q", "--allow-empty", "-m", "third"]);
    run(&shallow, &["push", "-q", "origin", "HEAD:agent/x"]);
    assert_eq!(scene.last().shallow.len(), 1);
}

#[test]
fn git_shows_why_a_signed_push_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::new(STRICT);
    let signer = scene.work.join("signer");
    let script = "#!/bin/sh\ncat >/dev/null\necho SIGNATURE\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\n";
    std::fs::write(&signer, script).unwrap();
    std::fs::set_permissions(&signer, std::fs::Permissions::from_mode(0o755)).unwrap();
    run(&scene.work, &["config", "gpg.program", signer.to_str().unwrap()]);
    let words = scene.refused(&["--signed", "HEAD:agent/x"]);
    has(&words, &["remote unpack failed: a push with a certificate is not taken", "push without `--signed`"]);
}

#[test]
fn git_shows_why_another_repository_is_refused_in_every_version() {
    let scene = Scene::new(STRICT);
    let other = scene.server.url.replace("org/app", "org/other");
    for version in ["protocol.version=0", "protocol.version=1", "protocol.version=2"] {
        for arguments in [["ls-remote", other.as_str(), "main"], ["push", other.as_str(), "main"]] {
            let words = fail(&scene.work, &[&["-c", version][..], &arguments].concat());
            has(&words, &["fatal: remote error: no rule allows this repository"]);
        }
        run(&scene.work, &["-c", version, "ls-remote", &scene.server.url]);
    }
}

#[test]
fn git_shows_why_a_fetch_is_refused_once_it_has_begun() {
    let scene = Scene::with(STRICT, Decision::Deny, "sha1");
    for version in ["protocol.version=0", "protocol.version=1", "protocol.version=2"] {
        let words = fail(&scene.work, &["-c", version, "clone", "-q", &scene.server.url, "clone"]);
        has(&words, &["fatal: remote error: no rule allows a fetch from this repository"]);
    }
}

#[test]
fn the_dumb_protocol_is_refused_in_words() {
    let scene = Scene::new(STRICT);
    let output =
        git(&scene.work).env("GIT_SMART_HTTP", "0").args(["ls-remote", &scene.server.url]).output().unwrap();
    has(
        &String::from_utf8_lossy(&output.stderr),
        &["remote: this is the dumb protocol of git, which no rule allows"],
    );
}

#[test]
fn a_name_is_taken_only_if_git_takes_it() {
    let parts = [
        "a", ".", "..", "/", "@", "{", "@{", "-", "~", "^", ":", "?", "*", "[", "\\", " ", ".lock", "ü",
        "\t", "\u{7f}",
    ];
    let mut names = Vec::new();
    for one in parts {
        names.push(format!("refs/heads/{one}"));
        names.extend(parts.iter().map(|two| format!("refs/heads/x{one}{two}")));
    }
    let git_takes =
        |name: &str| git(Path::new("/")).args(["check-ref-format", name]).status().unwrap().success();
    let taken = names.iter().filter(|name| {
        let is_taken = RefName::parse(name.as_bytes()).is_ok();
        assert_eq!(is_taken, git_takes(name), "{name:?}");
        is_taken
    });
    assert!(taken.count() > 20);
}
