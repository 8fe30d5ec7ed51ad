//! G3, G9: programs that a repository plants, and redirections. The attacks on libgit2 itself have their tests beside the host
//! worker.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::v1::operation::Kind as Operation;
use harness::v1::{self, git_request};
use harness::{Daemon, calls, git};

use crate::inside::{Inside, contents, refusal};

fn status() -> Operation {
    calls::git(git_request::Command::Status(v1::GitStatus {}))
}

fn diff(flags: &[&str]) -> Operation {
    let flags = flags.iter().map(ToString::to_string).collect();
    calls::git(git_request::Command::Diff(v1::GitDiff { flags, paths: Vec::new() }))
}

fn own(path: &Path) {
    let owned = Command::new("chown").args(["-R", "4321:4321"]).arg(path).status().unwrap();
    assert!(owned.success());
}

/// A script that leaves a file behind when it is run, by whomever.
struct Canaries {
    workspace: PathBuf,
    nest: PathBuf,
}

impl Canaries {
    fn new(daemon: &Daemon, workspace: &Path) -> Self {
        let nest = daemon.outside().join("canaries");
        std::fs::create_dir(&nest).unwrap();
        std::fs::set_permissions(&nest, std::fs::Permissions::from_mode(0o777)).unwrap();
        for directory in [daemon.outside(), &daemon.roots()] {
            // Nothing but the jail is to be in a script's way.
            std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { workspace: workspace.to_owned(), nest }
    }

    /// Writes one at this path of the workspace. It sings on the host and, where that is out of reach, beside itself.
    fn hatch(&self, path: &str) -> String {
        let script = self.workspace.join(path);
        std::fs::create_dir_all(script.parent().unwrap()).unwrap();
        let name = path.replace('/', "-");
        let text = format!(
            "#!/bin/sh\necho sung >{}/{name} 2>/dev/null\necho sung >{}/SUNG-{name}\ncat\n",
            self.nest.display(),
            self.workspace.display()
        );
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(&script, Some(4321), Some(4321)).unwrap();
        script.display().to_string()
    }

    fn sung(&self) -> Vec<String> {
        let names = |directory: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(directory).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let beside = names(&self.workspace).into_iter().filter(|name| name.starts_with("SUNG-"));
        let mut all: Vec<String> = names(&self.nest).into_iter().chain(beside).collect();
        all.sort();
        all
    }
}

const HOOKS: [&str; 24] = [
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "update",
];

/// A repository in which everything that git can be told to run is planted.
fn planted(daemon: &Daemon) -> (PathBuf, Canaries) {
    let workspace = daemon.repository("w", &[("a.txt", "one\n"), ("b.bin", "two\n")]);
    let canaries = Canaries::new(daemon, &workspace);
    for hook in HOOKS {
        canaries.hatch(&format!(".git/hooks/{hook}"));
        canaries.hatch(&format!("other-hooks/{hook}"));
    }
    for (key, script) in [
        ("filter.evil.clean", "bin/clean"),
        ("filter.evil.smudge", "bin/smudge"),
        ("filter.evil.process", "bin/process"),
        ("diff.evil.textconv", "bin/textconv"),
        ("diff.evil.command", "bin/diff-driver"),
        ("diff.external", "bin/external-diff"),
        ("merge.evil.driver", "bin/merge"),
        ("core.fsmonitor", "bin/fsmonitor"),
        ("core.editor", "bin/editor"),
        ("sequence.editor", "bin/sequence-editor"),
        ("core.pager", "bin/pager"),
        ("core.askPass", "bin/askpass"),
        ("core.sshCommand", "bin/ssh"),
        ("core.alternateRefsCommand", "bin/alternate-refs"),
        ("gpg.program", "bin/gpg"),
        ("gpg.ssh.program", "bin/gpg-ssh"),
        ("credential.helper", "bin/credential"),
        ("trailer.evil.command", "bin/trailer"),
        ("interactive.diffFilter", "bin/diff-filter"),
        ("uploadpack.packObjectsHook", "bin/pack-objects"),
    ] {
        let script = canaries.hatch(script);
        git(&workspace, &["config", key, &script]);
    }
    for (key, value) in [
        ("commit.gpgSign", "true"),
        ("filter.evil.required", "true"),
        ("core.hooksPath", "other-hooks"),
        ("alias.status", "!touch aliased"),
        ("core.preloadIndex", "true"),
    ] {
        git(&workspace, &["config", key, value]);
    }
    std::fs::write(
        workspace.join(".gitattributes"),
        "*.txt filter=evil diff=evil merge=evil\n*.bin diff=evil\n",
    )
    .unwrap();
    std::fs::write(workspace.join("a.txt"), "changed\n").unwrap();
    std::fs::write(workspace.join("b.bin"), "changed\n").unwrap();
    std::fs::write(workspace.join("new.txt"), "new\n").unwrap();
    own(&workspace);
    (workspace, canaries)
}

#[tokio::test]
async fn g9_programs_planted_in_a_repository_are_not_run() {
    let daemon = Daemon::start().await;
    let (workspace, canaries) = planted(&daemon);
    assert_eq!(canaries.sung(), Vec::<String>::new());
    let mut inside = Inside::enter_at(&daemon, workspace.clone(), v1::CreateRunRequest::default()).await;
    let run = &mut inside.run;
    run.ok(status()).await;
    run.ok(diff(&[])).await;
    let refused = run.call(calls::git_add(&["a.txt", "new.txt"])).await;
    assert!(format!("{refused:?}").contains("a.txt (filter=evil)"), "{refused:?}");
    run.ok(calls::git_add(&["b.bin", ".gitattributes"])).await;
    run.ok(diff(&["--cached"])).await;
    run.ok(diff(&["--cached", "--stat"])).await;
    let v1::result::Kind::Git(committed) = run.ok(calls::git_commit("made through the API")).await else {
        panic!()
    };
    run.ok(status()).await;
    run.ok(calls::write("a.txt", "written\n")).await;
    run.ok(diff(&[])).await;
    assert_eq!(canaries.sung(), Vec::<String>::new());

    // The real git runs some of them: the canaries can sing.
    let look = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(&workspace)
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    look(&["-c", "alias.status=", "diff"]);
    let sung = canaries.sung();
    assert!(sung.iter().any(|name| name.contains("fsmonitor") || name.contains("diff")), "{sung:?}");

    // And it sees the commit.
    assert_eq!(look(&["rev-parse", "HEAD"]).trim(), committed.commit);
    assert_eq!(look(&["log", "--format=%s"]), "made through the API\nfirst\n");
    let files = look(&["show", "--format=", "--name-only", "--no-ext-diff", "--no-textconv", "HEAD"]);
    assert_eq!(files, ".gitattributes\nb.bin\n");
    assert_eq!(look(&["cat-file", "-p", "HEAD:b.bin"]), "changed\n");
}

/// Given the repository's own `.git` and another one.
type Redirect = fn(&Path, &Path);

#[tokio::test]
async fn g3_a_redirected_repository_is_refused() {
    let daemon = Daemon::start().await;
    let elsewhere = daemon.repository("elsewhere", &[("canary", "the canary sings\n")]);
    let git_directory = elsewhere.join(".git");
    let before = contents(&elsewhere);
    let redirects: [(&str, Redirect); 4] = [
        ("file", |here, there| {
            std::fs::remove_dir_all(here).unwrap();
            std::fs::write(here, format!("gitdir: {}\n", there.display())).unwrap();
        }),
        ("link", |here, there| {
            std::fs::remove_dir_all(here).unwrap();
            std::os::unix::fs::symlink(there, here).unwrap();
        }),
        ("commondir", |here, there| {
            std::fs::write(here.join("commondir"), format!("{}\n", there.display())).unwrap();
        }),
        ("worktree", |here, there| {
            let config = here.join("config").display().to_string();
            git(
                there,
                &["config", "-f", &config, "core.worktree", &there.parent().unwrap().display().to_string()],
            );
        }),
    ];
    for (name, redirect) in redirects {
        let workspace = daemon.repository(name, &[("a", "inside\n")]);
        redirect(&workspace.join(".git"), &git_directory);
        std::fs::write(workspace.join("a"), "changed\n").unwrap();
        own(&workspace);
        let mut inside = Inside::enter_at(&daemon, workspace, v1::CreateRunRequest::default()).await;
        for operation in [status(), diff(&[]), calls::git_add(&["a"]), calls::git_commit("redirected")] {
            let (reason, message) = refusal(&mut inside.run, operation).await;
            assert_eq!(reason, "SANDBOX_VIOLATION", "{name}: {message}");
            assert!(!message.contains("/var/tmp"), "{name}: a host path: {message}");
        }
        inside.run.ok(calls::write("still", "works\n")).await;
        inside.run.stop().await;
    }
    assert_eq!(contents(&elsewhere), before);
}

#[tokio::test]
async fn g6_a_fifo_in_the_repository_hangs_nothing() {
    let daemon = Daemon::start().await;
    let workspace = daemon.repository("w", &[("a", "inside\n")]);
    let mut inside = Inside::enter_at(&daemon, workspace.clone(), v1::CreateRunRequest::default()).await;
    std::fs::remove_file(workspace.join(".git/index")).unwrap();
    assert_eq!(inside.probe(&["place", "fifo", "/workspace/.git/index"]).await, ["fifo ok"]);
    for operation in [status(), calls::git_add(&["a"])] {
        let (reason, message) = refusal(&mut inside.run, operation).await;
        assert_eq!(reason, "SANDBOX_VIOLATION", "{message}");
    }
    std::fs::remove_file(workspace.join(".git/index")).unwrap();
    inside.run.ok(status()).await;
}
