//! The git of this machine as the server, by `git http-backend`.
#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use git_remote::{
    Bounds, Fetched, Outcome, RefUpdate, Refspec, RemoteError, RemoteUrl, Update, fetch, list, push,
};
use git2::{Oid, Repository};
use tempfile::TempDir;

const ALL: &str = "+refs/heads/*:refs/remotes/origin/*";

/// Returns a command of git without the configuration of the user.
fn command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"), ("LC_ALL", "C")])
        .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@example.org")])
        .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@example.org")])
        .env("HOME", directory)
        .stdin(Stdio::null());
    command
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = command(directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A server's repository, a client's, and a work tree that fills the first.
struct Scene {
    root: PathBuf,
    server: PathBuf,
    work: PathBuf,
    client: Repository,
    dialed: AtomicUsize,
    _directory: TempDir,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        let (server, work, client) = (root.join("app.git"), root.join("work"), root.join("client"));
        for path in [&server, &work, &client] {
            std::fs::create_dir(path).unwrap();
        }
        git(&server, &["init", "-q", "--bare", "-b", "main"]);
        git(&server, &["config", "http.receivepack", "true"]);
        git(&work, &["init", "-q", "-b", "main"]);
        git(&work, &["remote", "add", "origin", "../app.git"]);
        let client = Repository::init(client).unwrap();
        let scene = Self { root, server, work, client, dialed: AtomicUsize::new(0), _directory: directory };
        scene.commit("one");
        scene
    }

    /// Commits a file, and has the server have it.
    fn commit(&self, name: &str) -> Oid {
        std::fs::write(self.work.join(name), format!("{name}\n").repeat(100)).unwrap();
        git(&self.work, &["add", "-A"]);
        git(&self.work, &["commit", "-q", "-m", name]);
        git(&self.work, &["push", "-q", "origin", "main"]);
        Oid::from_str(&git(&self.work, &["rev-parse", "HEAD"])).unwrap()
    }

    fn dial(&self) -> impl Fn(&str, u16) -> io::Result<UnixStream> + '_ {
        |host, port| {
            assert_eq!((host, port), ("git.example.org", 443));
            self.dialed.fetch_add(1, Ordering::Relaxed);
            let (ours, theirs) = UnixStream::pair()?;
            let root = self.root.clone();
            thread::spawn(move || serve(&root, &theirs));
            Ok(ours)
        }
    }

    fn fetch(&self, wanted: &[&str], depth: Option<u32>) -> Result<Fetched, RemoteError> {
        let wanted: Vec<_> = wanted.iter().map(|text| Refspec::parse(text).unwrap()).collect();
        fetch(&self.client, &url(), &wanted, depth, &self.dial(), bounds())
    }

    fn push(&self, updates: &[Update]) -> Vec<Outcome> {
        let ended = push(&self.client, &url(), updates, &self.dial(), bounds()).unwrap();
        ended.into_iter().map(|ended| ended.outcome).collect()
    }

    /// Commits in the client's repository.
    fn commit_here(&self, parent: Option<Oid>, name: &str) -> Oid {
        let signature = git2::Signature::now("a", "a@example.org").unwrap();
        let mut tree = self.client.treebuilder(None).unwrap();
        tree.insert(name, self.client.blob(name.as_bytes()).unwrap(), 0o100_644).unwrap();
        let tree = self.client.find_tree(tree.write().unwrap()).unwrap();
        let parent = parent.map(|id| self.client.find_commit(id).unwrap());
        let parents: Vec<_> = parent.iter().collect();
        self.client.commit(None, &signature, &signature, name, &tree, &parents).unwrap()
    }

    fn check(&self) {
        git(self.client.path(), &["fsck", "--no-dangling"]);
    }
}

fn url() -> RemoteUrl {
    RemoteUrl::parse("https://git.example.org/app.git").unwrap()
}

fn bounds() -> Bounds {
    Bounds { max_bytes: 64 << 20, deadline: Instant::now() + Duration::from_secs(60), max_refs: 1_000 }
}

/// Answers the requests of one stream.
fn serve(root: &Path, stream: &UnixStream) {
    let mut reader = BufReader::new(stream);
    let line = |reader: &mut BufReader<&UnixStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    loop {
        let first = line(&mut reader);
        let Some((method, target)) = first.split_once(' ') else { return };
        let target = target.split_once(' ').unwrap().0;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut fields = Vec::new();
        loop {
            let field = line(&mut reader);
            let Some((name, value)) = field.split_once(": ") else { break };
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let field =
            |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        assert!(field("accept-encoding").is_none() && field("authorization").is_none());
        let mut body = Vec::new();
        if field("transfer-encoding").is_some() {
            loop {
                let length = u64::from_str_radix(&line(&mut reader), 16).unwrap();
                reader.by_ref().take(length).read_to_end(&mut body).unwrap();
                line(&mut reader);
                if length == 0 {
                    break;
                }
            }
        } else if let Some(length) = field("content-length") {
            reader.by_ref().take(length.parse().unwrap()).read_to_end(&mut body).unwrap();
        }
        let mut backend = command(root)
            .arg("http-backend")
            .envs([("GIT_PROJECT_ROOT", root.to_str().unwrap()), ("GIT_HTTP_EXPORT_ALL", "1")])
            .envs([("PATH_INFO", path), ("QUERY_STRING", query), ("REQUEST_METHOD", method)])
            .env("CONTENT_TYPE", field("content-type").unwrap_or_default())
            .env("CONTENT_LENGTH", body.len().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = backend.stdin.take().unwrap();
        let writer = thread::spawn(move || drop(input.write_all(&body)));
        let output = backend.wait_with_output().unwrap().stdout;
        writer.join().unwrap();
        let end = output.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(output[..end].to_vec()).unwrap();
        let body = &output[end + 4..];
        let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
        let answer = format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut stream = stream;
        if stream.write_all(answer.as_bytes()).and_then(|()| stream.write_all(body)).is_err() {
            return;
        }
    }
}

#[test]
fn a_fetch_brings_refs_and_their_history_over_one_stream() {
    let scene = Scene::new();
    let two = scene.commit("two");
    git(&scene.work, &["tag", "-a", "-m", "v1", "v1"]);
    git(&scene.work, &["push", "-q", "origin", "v1", "HEAD:refs/heads/other"]);
    let advertised = list(&url(), &scene.dial(), bounds()).unwrap();
    assert_eq!((advertised.head.as_deref(), advertised.head_id), (Some("refs/heads/main"), Some(two)));
    assert_eq!(advertised.id_of("refs/heads/other"), Some(two));

    let before = scene.dialed.load(Ordering::Relaxed);
    let fetched = scene.fetch(&[ALL, "refs/tags/*:refs/tags/*"], None).unwrap();
    assert_eq!(scene.dialed.load(Ordering::Relaxed) - before, 1);
    let names: Vec<_> = fetched.updates.iter().map(|update| update.name.as_str()).collect();
    assert_eq!(names, ["refs/remotes/origin/main", "refs/remotes/origin/other", "refs/tags/v1"]);
    assert!(fetched.rejected.is_empty() && fetched.bytes > 0);
    scene.check();

    // Nothing new: the list alone.
    assert!(scene.fetch(&[ALL], None).unwrap().updates.is_empty());

    // Only what is new comes, as a thin pack.
    let three = scene.commit("three");
    let more = scene.fetch(&[ALL], None).unwrap();
    let update = RefUpdate { name: "refs/remotes/origin/main".to_owned(), old: Some(two), new: three };
    assert_eq!(more.updates, [update]);
    assert!(more.bytes < fetched.bytes);
    scene.check();
}

#[test]
fn a_ref_is_replaced_only_where_that_is_asked_for() {
    let scene = Scene::new();
    let plain = "refs/heads/*:refs/remotes/origin/*";
    scene.fetch(&[plain], None).unwrap();
    git(&scene.work, &["commit", "-q", "--amend", "-m", "another"]);
    git(&scene.work, &["push", "-q", "-f", "origin", "main"]);
    let kept = scene.fetch(&[plain], None).unwrap();
    assert!(kept.updates.is_empty() && kept.rejected[0].why.contains("not a fast-forward"), "{kept:?}");
    assert_eq!(scene.fetch(&[ALL], None).unwrap().updates.len(), 1);
    // HEAD of the client names this branch, which does not exist yet.
    let head = scene.client.find_reference("HEAD").unwrap();
    let branch = head.symbolic_target().unwrap().unwrap().to_owned();
    let kept = scene.fetch(&[&format!("refs/heads/main:{branch}")], None).unwrap();
    assert!(kept.rejected[0].why.contains("checked out"), "{kept:?}");
}

#[test]
fn a_shallow_fetch_ends_where_it_is_asked_to_and_goes_deeper() {
    let scene = Scene::new();
    for name in ["two", "three", "four"] {
        scene.commit(name);
    }
    scene.fetch(&[ALL], Some(1)).unwrap();
    let count = || git(scene.client.path(), &["rev-list", "--count", "refs/remotes/origin/main"]);
    assert_eq!(count(), "1");
    scene.check();
    scene.commit("five");
    scene.fetch(&[ALL], None).unwrap();
    assert_eq!(count(), "2");
    scene.fetch(&[ALL], Some(4)).unwrap();
    assert_eq!(count(), "4");
    scene.fetch(&[ALL], Some(100)).unwrap();
    assert_eq!(count(), "5");
    assert!(!scene.client.path().join("shallow").exists());
    scene.check();
}

#[test]
fn a_push_creates_updates_and_deletes_refs_and_says_why_not() {
    let scene = Scene::new();
    scene.fetch(&[ALL], None).unwrap();
    let one = scene.client.refname_to_id("refs/remotes/origin/main").unwrap();
    let two = scene.commit_here(Some(one), "here");
    let unrelated = scene.commit_here(None, "unrelated");
    let update = |name: &str, expected_old, new| Update { ref_name: name.to_owned(), expected_old, new };
    let ended = scene.push(&[
        update("refs/heads/main", Some(one), Some(two)),
        update("refs/heads/new", None, Some(two)),
        update("refs/heads/stale", Some(two), Some(one)),
        update("refs/heads/new", None, Some(one)),
    ]);
    assert_eq!(ended[..2], [Outcome::Updated, Outcome::Updated]);
    assert!(matches!(&ended[2], Outcome::Rejected(why) if why.contains("no longer has it")), "{ended:?}");
    assert!(matches!(&ended[3], Outcome::Rejected(why) if why.contains("twice")), "{ended:?}");
    assert_eq!(git(&scene.server, &["rev-parse", "main", "new"]), format!("{two}\n{two}"));
    // Objects that the server has already make an empty pack.
    assert_eq!(scene.push(&[update("refs/heads/same", None, Some(one))]), [Outcome::Updated]);
    assert_eq!(scene.push(&[update("refs/heads/same", None, Some(one))]), [Outcome::UpToDate]);
    assert_eq!(scene.push(&[update("refs/heads/same", Some(one), None)]), [Outcome::Updated]);
    git(&scene.server, &["config", "receive.denyNonFastForwards", "true"]);
    let refused = scene.push(&[update("refs/heads/main", Some(two), Some(unrelated))]);
    assert!(matches!(&refused[0], Outcome::Rejected(why) if why.contains("non-fast-forward")), "{refused:?}");
    git(&scene.server, &["fsck", "--no-dangling"]);
}

#[test]
fn a_push_takes_tags_with_it_and_shows_the_words_of_a_hook() {
    let scene = Scene::new();
    let commit = scene.commit_here(None, "here");
    let object = scene.client.find_object(commit, None).unwrap();
    let signature = git2::Signature::now("a", "a@example.org").unwrap();
    let tag = scene.client.tag("v2", &object, &signature, "v2", false).unwrap();
    let update = |name: &str, new| Update { ref_name: name.to_owned(), expected_old: None, new: Some(new) };
    assert_eq!(scene.push(&[update("refs/tags/v2", tag)]), [Outcome::Updated]);
    assert_eq!(git(&scene.server, &["rev-parse", "v2^{commit}"]), commit.to_string());
    let hook = scene.server.join("hooks/pre-receive");
    std::fs::write(&hook, "#!/bin/sh\necho not on a sunday >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused = scene.push(&[update("refs/heads/late", commit)]);
    assert!(matches!(&refused[0], Outcome::Rejected(why) if why.contains("not on a sunday")), "{refused:?}");
}

/// Writes a commit graph in which a commit without a parent has one.
fn forge_graph(repository: &Repository, child: Oid, parent: Oid) {
    for (name, id) in [("refs/heads/child", child), ("refs/heads/parent", parent)] {
        repository.reference(name, id, true, "test").unwrap();
    }
    // libgit2 reads no graph with a chunk that it does not know.
    let arguments = ["-c", "commitGraph.generationVersion=1", "commit-graph", "write", "--reachable"];
    git(repository.workdir().unwrap(), &arguments);
    let path = repository.path().join("objects/info/commit-graph");
    let mut bytes = std::fs::read(&path).unwrap();
    let chunk = bytes[8..].chunks(12).find(|chunk| chunk.starts_with(b"CDAT")).unwrap();
    let data = usize::try_from(u64::from_be_bytes(chunk[4..].try_into().unwrap())).unwrap();
    let mut ids = [child, parent];
    ids.sort_unstable();
    let place = |id: Oid| ids.iter().position(|known| *known == id).unwrap();
    // After the id of the tree.
    let at = data + 36 * place(child) + 20;
    bytes[at..at + 4].copy_from_slice(&u32::try_from(place(parent)).unwrap().to_be_bytes());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_push_has_no_commit_that_its_ids_do_not_name() {
    let scene = Scene::new();
    let (pushed, other) = (scene.commit_here(None, "pushed"), scene.commit_here(None, "other"));
    let update = Update { ref_name: "refs/heads/pushed".to_owned(), expected_old: None, new: Some(pushed) };
    let directory = scene.client.path();
    for file in ["info/grafts", "shallow", "objects/info/commit-graph"] {
        let path = directory.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if file.ends_with("commit-graph") {
            forge_graph(&scene.client, pushed, other);
        } else {
            std::fs::write(&path, format!("{pushed} {other}\n")).unwrap();
        }
        // It is read when the repository is opened.
        let forged = Repository::open(directory).unwrap();
        let mut walk = forged.revwalk().unwrap();
        walk.push(pushed).unwrap();
        assert_eq!(walk.count(), 2, "{file} has no effect on libgit2");
        let refused = push(&forged, &url(), std::slice::from_ref(&update), &scene.dial(), bounds());
        assert!(matches!(refused, Err(RemoteError::Grafted)), "{file}: {refused:?}");
        assert_eq!(git(&scene.server, &["branch", "--list", "pushed"]), "", "{file}");
        std::fs::remove_file(path).unwrap();
    }
    let honest = Repository::open(directory).unwrap();
    let ended = push(&honest, &url(), &[update], &scene.dial(), bounds()).unwrap();
    assert_eq!(ended[0].outcome, Outcome::Updated);
    let objects = command(&scene.server).args(["cat-file", "-e", &other.to_string()]).output().unwrap();
    assert!(!objects.status.success(), "the server has an object that no ref leads to");
}

#[test]
fn no_configuration_of_the_repository_has_an_effect() {
    let scene = Scene::new();
    let elsewhere = scene.root.join("elsewhere");
    let mut config = scene.client.config().unwrap();
    for key in ["insteadOf", "pushInsteadOf"] {
        config.set_str(&format!("url.{}.{key}", elsewhere.display()), "https://git.example.org").unwrap();
    }
    config.set_str("http.proxy", "http://127.0.0.1:1").unwrap();
    config.set_str("http.extraHeader", "Authorization: Bearer own").unwrap();
    assert_eq!(scene.fetch(&[ALL], None).unwrap().updates.len(), 1);
}

#[test]
fn a_server_without_the_repository_or_the_right_is_named() {
    let scene = Scene::new();
    let none = RemoteUrl::parse("https://git.example.org/none.git").unwrap();
    assert!(matches!(list(&none, &scene.dial(), bounds()), Err(RemoteError::NotFound { .. })));
    git(&scene.server, &["config", "http.receivepack", "false"]);
    let commit = scene.commit_here(None, "here");
    let update = Update { ref_name: "refs/heads/x".to_owned(), expected_old: None, new: Some(commit) };
    let refused = push(&scene.client, &url(), &[update], &scene.dial(), bounds());
    assert!(matches!(refused, Err(RemoteError::Denied { status: 403, .. })), "{refused:?}");
}
