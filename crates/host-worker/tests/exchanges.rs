//! Fetches, pulls and pushes in the real jail, with the git of this machine as the server (`git http-backend`).
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use host_launch::dialing::{Wish, answer, pair};
use host_launch::numbered;
use operations::{
    Git, GitFetch, GitPull, GitPullMode, GitPush, GitPushed, GitRefName, GitRemote, GitResult, GitRevision,
    PathPattern, PathRule, Reason, RuledAccess, RuledPaths, ToolFailure,
};
use support::{Hand, Scratch, git_in, run};

/// A workspace with a remote, the remote's repository, and a clone that fills the latter.
struct World {
    scratch: Scratch,
    hand: Hand,
    calls: u64,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.init();
        scratch.write("a", "one\n");
        scratch.commit_all("one");
        scratch.git(&["remote", "add", "origin", "https://git.example.org/app.git"]);
        let root = scratch.dir.path();
        run(&mut git_in(root, &["init", "-q", "--bare", "-b", "main", "app.git"]));
        // A clone would be refused: git serves no repository of another user, whatever the environment says.
        scratch.git(&["push", "-q", "../app.git", "main"]);
        run(&mut git_in(&root.join("app.git"), &["config", "http.receivepack", "true"]));
        run(&mut git_in(root, &["clone", "-q", "app.git", "work"]));
        scratch.own();
        let hand = scratch.host_worker();
        Self { scratch, hand, calls: 0 }
    }

    fn work(&self) -> PathBuf {
        self.scratch.dir.path().join("work")
    }

    /// Runs git in the clone that fills the remote.
    fn remote(&self, args: &[&str]) -> String {
        String::from_utf8(run(&mut git_in(&self.work(), args))).unwrap().trim().to_owned()
    }

    /// Commits a file at the remote. Returns the id.
    fn commit(&self, file: &str, content: &str) -> String {
        fs::write(self.work().join(file), content).unwrap();
        self.remote(&["add", "-A"]);
        self.remote(&["commit", "-q", "-m", &format!("remote {file}")]);
        self.remote(&["push", "-q", "origin", "HEAD:main"]);
        self.remote(&["rev-parse", "HEAD"])
    }

    fn git(&self, args: &[&str]) -> String {
        self.scratch.git(args).trim().to_owned()
    }

    /// Returns the content of a file of the workspace, empty if there is none.
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.scratch.workspace().join(file)).unwrap_or_default()
    }

    /// Gives the next call a way to the server.
    fn give_way(&mut self) {
        self.calls += 1;
        let (ours, theirs) = pair().unwrap();
        numbered::send(self.hand.process.handles.as_ref().unwrap(), self.calls, theirs.as_fd()).unwrap();
        self.hand.way_out = self.calls;
        let root = self.scratch.dir.path().to_owned();
        thread::spawn(move || {
            loop {
                match Wish::receive(&ours) {
                    Ok(Some(wish)) => {
                        assert_eq!(wish, Wish { host: "git.example.org".to_owned(), port: 443 });
                        let (server, client) = UnixStream::pair().unwrap();
                        let root = root.clone();
                        thread::spawn(move || serve(&root, &server));
                        answer(&ours, Ok(client.as_fd())).unwrap();
                    }
                    Ok(None) => return,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        });
    }

    fn call(&mut self, command: Git) -> Result<GitResult, ToolFailure> {
        self.give_way();
        self.hand.git(command)
    }

    fn preview(&mut self, command: Git) -> Result<GitResult, ToolFailure> {
        self.give_way();
        self.hand.preview(command)
    }

    /// Makes a call that fails and changes neither files nor branch.
    fn fails(&mut self, command: Git) -> ToolFailure {
        let state = |world: &Self| (world.git(&["rev-parse", "HEAD"]), world.git(&["status", "--porcelain"]));
        let before = state(self);
        let failure = self.call(command).unwrap_err();
        assert_eq!(state(self), before, "{failure:?}");
        failure
    }
}

/// Answers the requests of one stream by `git http-backend`.
fn serve(root: &Path, stream: &UnixStream) {
    let mut reader = BufReader::new(stream);
    let line = |reader: &mut BufReader<&UnixStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap_or_default();
        line.trim_end().to_owned()
    };
    loop {
        let request = line(&mut reader);
        let mut words = request.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (mut content_type, mut length, mut is_chunked) = (String::new(), 0, false);
        loop {
            let field = line(&mut reader).to_ascii_lowercase();
            let Some((name, value)) = field.split_once(": ") else { break };
            match name {
                "content-type" => value.clone_into(&mut content_type),
                "content-length" => length = value.parse().unwrap(),
                "transfer-encoding" => is_chunked = true,
                _ => {}
            }
        }
        let mut body = Vec::new();
        let mut piece =
            if is_chunked { u64::from_str_radix(&line(&mut reader), 16).unwrap() } else { length };
        while piece > 0 {
            reader.by_ref().take(piece).read_to_end(&mut body).unwrap();
            piece = 0;
            if is_chunked {
                line(&mut reader);
                piece = u64::from_str_radix(&line(&mut reader), 16).unwrap();
            }
        }
        if is_chunked {
            line(&mut reader);
        }
        let mut backend = git_in(root, &["http-backend"])
            .env("GIT_PROJECT_ROOT", root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .envs([("PATH_INFO", path), ("QUERY_STRING", query), ("REQUEST_METHOD", method)])
            .envs([("CONTENT_TYPE", content_type), ("CONTENT_LENGTH", body.len().to_string())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = backend.stdin.take().unwrap();
        let writing = thread::spawn(move || drop(input.write_all(&body)));
        let output = backend.wait_with_output().unwrap().stdout;
        writing.join().unwrap();
        let end = output.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        let fields = String::from_utf8_lossy(&output[..end - 2]).into_owned();
        let status = fields.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
        let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", output.len() - end);
        let mut stream = stream;
        // The client may have read enough.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&output[end..]));
    }
}

fn origin() -> GitRemote {
    GitRemote::Name("origin".to_owned())
}

fn fetch() -> Git {
    Git::Fetch(GitFetch { remote: origin(), refs: Vec::new(), tags: false, depth: None })
}

fn pull(mode: GitPullMode) -> Git {
    Git::Pull(GitPull { remote: origin(), branch: None, mode })
}

fn push(branch: &str) -> Git {
    let reference = Some(GitRefName::parse(branch).unwrap());
    let to = GitPushed { local: Some(GitRevision::default()), reference, expected: None };
    Git::Push(GitPush { remote: origin(), refs: vec![to], force: false })
}

#[test]
fn commits_come_and_go_and_the_files_belong_to_the_owner() {
    let mut world = World::new();
    let old = world.git(&["rev-parse", "HEAD"]);
    let new = world.commit("b", "two\n");
    let fetched = world.call(fetch()).unwrap();
    assert_eq!(fetched.updates.len(), 1);
    assert_eq!((fetched.updates[0].name.as_str(), fetched.commits), ("refs/remotes/origin/main", 1));
    assert_eq!((world.git(&["rev-parse", "HEAD"]), world.read("b")), (old, String::new()));

    let pulled = world.call(pull(GitPullMode::FastForward)).unwrap();
    assert_eq!((pulled.commit.as_str(), world.read("b").as_str()), (new.as_str(), "two\n"));
    let metadata = fs::metadata(world.scratch.workspace().join("b")).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o111), (world.scratch.uid, 0));
    assert_eq!(world.git(&["status", "--porcelain"]), "");

    world.hand.write("c", "three\n").unwrap();
    world.hand.add(&["c"]).unwrap();
    let made = world.hand.commit("three").unwrap().commit;
    let pushed = world.call(push("agent/x")).unwrap();
    assert_eq!((pushed.updates[0].new_id.as_str(), pushed.commits), (made.as_str(), 1));
    assert_eq!(
        world.remote(&["ls-remote", "origin", "refs/heads/agent/x"]).split('\t').next(),
        Some(made.as_str())
    );
    let again = world.call(push("agent/x")).unwrap();
    assert!(again.updates.is_empty() && again.output.contains("up to date"), "{again:?}");
    world.git(&["fsck", "--strict"]);
}

#[test]
fn a_preview_of_a_pull_shows_the_merge_and_changes_neither_files_nor_references() {
    let mut world = World::new();
    world.commit("b", "theirs\n");
    world.scratch.write("c", "ours\n");
    world.scratch.commit_all("ours");
    let references = world.git(&["for-each-ref"]);
    let shown = world.preview(pull(GitPullMode::Merge)).unwrap().output;
    for part in ["merge, 1 commit", "remote b", "+theirs"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!((world.git(&["for-each-ref"]), world.read("b")), (references, String::new()));
    let refused = world.preview(pull(GitPullMode::FastForward)).unwrap_err();
    assert!(refused.message.contains("diverged"), "{refused:?}");

    let merged = world.call(pull(GitPullMode::Merge)).unwrap();
    assert_eq!(world.git(&["rev-parse", "HEAD"]), merged.commit);
    assert_eq!(world.git(&["log", "-1", "--format=%an %P"]).split(' ').count(), 4);
    assert_eq!((world.read("b"), world.read("c")), ("theirs\n".into(), "ours\n".into()));
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    let shown = world.preview(push("agent/y")).unwrap().output;
    assert!(shown.contains("create refs/heads/agent/y") && shown.contains("+ours"), "{shown}");
    assert_eq!(world.remote(&["ls-remote", "origin", "refs/heads/agent/y"]), "");
}

#[test]
fn a_pull_names_no_path_that_may_not_be_read() {
    let mut world = World::new();
    world.commit("hidden", "two\n");
    world.commit("shown", "two\n");
    let path = vec![PathPattern::parse("hidden").unwrap()];
    let paths = RuledPaths { path, except: Vec::new(), access: RuledAccess::Read };
    world.hand.bounds.path_rules.rules = vec![PathRule { paths, asks: false }];
    let output = world.call(pull(GitPullMode::FastForward)).unwrap().output;
    assert!(
        output.contains("create mode 100644 shown") && output.contains("* 1 kept from this call"),
        "{output}"
    );
    assert!(!output.contains("hidden"), "{output}");
    assert_eq!(world.read("hidden"), "two\n");
}

#[test]
fn conflicts_and_files_in_the_way_change_nothing() {
    let mut world = World::new();
    world.commit("a", "theirs\n");
    world.scratch.write("a", "not committed\n");
    let failure = world.fails(pull(GitPullMode::FastForward));
    assert!(failure.message.ends_with("\na\nCommit them first."), "{failure:?}");
    world.scratch.commit_all("ours");
    let failure = world.fails(pull(GitPullMode::Merge));
    assert!(
        failure.message.contains("conflicts in these files") && failure.message.contains("\na\n"),
        "{failure:?}"
    );
    assert_eq!((failure.reason, world.read("a").as_str()), (Reason::PreconditionFailed, "not committed\n"));
    let failure = world.fails(push("main"));
    assert!(failure.message.contains("would lose commits"), "{failure:?}");
}

#[test]
fn links_and_programs_of_a_commit_are_files_and_no_path_leads_elsewhere() {
    let mut world = World::new();
    std::os::unix::fs::symlink("/outside/canary", world.work().join("link")).unwrap();
    fs::create_dir(world.work().join("d")).unwrap();
    std::os::unix::fs::symlink("../..", world.work().join("d/up")).unwrap();
    world.commit("b", "two\n");
    world.call(pull(GitPullMode::FastForward)).unwrap();
    let link = fs::read_link(world.scratch.workspace().join("link")).unwrap();
    assert_eq!(link, Path::new("/outside/canary"));

    // A directory takes the place of the link, so that the files would be written through it.
    world.remote(&["rm", "-q", "-r", "d", "link"]);
    fs::create_dir_all(world.work().join("link")).unwrap();
    world.commit("link/x", "three\n");
    world.call(pull(GitPullMode::FastForward)).unwrap();
    assert_eq!(world.read("link/x"), "three\n");

    // Trees that git itself does not make.
    let blob = world.remote(&["rev-parse", "HEAD:a"]);
    for name in [".git", ".GIT", "git~1", ".."] {
        let head = world.remote(&["rev-parse", "HEAD"]);
        let inner = world.tree(&format!("100644 blob {blob}\thook\n"));
        let tree = world.tree(&format!("100644 blob {blob}\ta\n040000 tree {inner}\t{name}\n"));
        let commit = world.remote(&["commit-tree", &tree, "-p", &head, "-m", "odd"]);
        world.remote(&["push", "-q", "-f", "origin", &format!("{commit}:main")]);
        let failure = world.fails(pull(GitPullMode::FastForward));
        assert!(!failure.message.contains("/workspace"), "{failure:?}");
        assert!(!world.scratch.workspace().join(".git/hook").exists(), "{name}");
        world.remote(&["push", "-q", "-f", "origin", &format!("{head}:main")]);
    }
    assert_eq!(fs::read_to_string(world.scratch.outside().join("canary")).unwrap(), "the canary sings\n");
}

impl World {
    /// Makes a tree of these lines, in the clone that fills the remote.
    fn tree(&self, lines: &str) -> String {
        let mut command = git_in(&self.work(), &["mktree"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{lines}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}
