//! P1 to P5: paths through the API that lead out of a workspace, or to something that is no file.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::time::Duration;

use harness::v1;
use harness::v1::operation::Kind as Operation;
use harness::{Daemon, calls};

use crate::inside::{Inside, PROFILES, Profile, both, contents, lenient, read, refusal};

const SECRET: &str = "the canary sings";
const VIOLATION: &str = "SANDBOX_VIOLATION";

/// A run of this profile.
fn of(profile: &Profile) -> v1::CreateRunRequest {
    v1::CreateRunRequest { profile: profile.name.to_owned(), ..Default::default() }
}

/// Every operation that takes a path, on this one.
fn all(path: &str) -> Vec<Operation> {
    vec![
        calls::read(path),
        calls::list(path),
        calls::grep(path, SECRET),
        Operation::Glob(v1::GlobRequest {
            path: path.to_owned(),
            pattern: "**".to_owned(),
            ..Default::default()
        }),
        calls::write(path, "overwritten"),
        calls::create(path, "created"),
        calls::replace(path, SECRET, "replaced"),
        calls::git_add(&[path]),
        Operation::Exec(v1::ExecRequest {
            command: "true".to_owned(),
            cwd: path.to_owned(),
            ..Default::default()
        }),
        Operation::Shell(v1::ShellRequest {
            script: "true".to_owned(),
            cwd: path.to_owned(),
            ..Default::default()
        }),
    ]
}

#[tokio::test]
async fn p4_paths_that_no_mount_holds_are_refused() {
    let daemon = Daemon::start().await;
    let workspace = daemon.repository("w", &[("a", "inside\n")]);
    let mut inside = Inside::enter_at(&daemon, workspace, v1::CreateRunRequest::default()).await;
    let host = inside.workspace.display().to_string();
    let long = format!("{}a", "a/".repeat(2_100));
    let component = "a".repeat(256);
    for path in [
        "/etc/passwd",
        "/",
        "/proc/self/environ",
        "/proc/1/root/etc",
        "/workspace/../etc/passwd",
        "/workspace/..",
        "/workspacex/a",
        "..",
        "../outside",
        "a/../../outside",
        "@project/..",
        "@project/../outside",
        "@pkg/a",
        "@nowhere/a",
        "@",
        "@project/\0",
        "a\0b",
        "C:\\Windows",
        "\\\\host\\share",
        &host,
        &long,
        &component,
    ] {
        for operation in all(path) {
            let (reason, message) = refusal(&mut inside.run, operation.clone()).await;
            // Git is only for @project, whichever other mount is named.
            let elsewhere = path.starts_with("@pkg") && matches!(operation, Operation::Git(_));
            let expected = if elsewhere { "INVALID_ARGUMENT" } else { VIOLATION };
            assert_eq!(reason, expected, "{operation:?}: {message}");
            assert!(path == host || !message.contains("/var/tmp"), "a host path: {message}");
        }
    }
    assert_eq!(read(&mut inside.run, "a").await.unwrap(), "inside\n");
}

#[tokio::test]
async fn p4_links_that_lead_out_are_refused() {
    let daemon = lenient().await;
    for profile in PROFILES {
        let workspace = daemon.repository(profile.name, &[("a", "inside\n"), ("deep/b", "")]);
        let outside = daemon.workspace("outside", &[("secret", SECRET), ("deeper/secret", SECRET)]);
        let before = contents(&outside);
        let links = [
            ("absolute", outside.join("secret").display().to_string()),
            ("relative", "../outside/secret".to_owned()),
            ("directory", "../outside".to_owned()),
            ("deep/directory", "../../outside".to_owned()),
            ("chain-1", "chain-2".to_owned()),
            ("chain-2", "deep/chain-3".to_owned()),
            ("deep/chain-3", "../relative".to_owned()),
            ("passwd", "/etc/passwd".to_owned()),
            ("root", "/".to_owned()),
            ("magic", "/proc/self/root".to_owned()),
            ("magic-cwd", "/proc/self/cwd".to_owned()),
            ("magic-fd", "/proc/self/fd/0".to_owned()),
            ("agent", "/.cofferdam/guest".to_owned()),
            ("state", "/state".to_owned()),
            ("loop", "loop".to_owned()),
        ];
        for (name, target) in &links {
            symlink(target, workspace.join(name)).unwrap();
        }
        let mut inside = Inside::enter_at(&daemon, workspace.clone(), of(profile)).await;
        let beneath = [
            "directory/secret",
            "directory/deeper/secret",
            "deep/directory/secret",
            "root/etc/passwd",
            "magic/etc/passwd",
            "directory/new",
            "state/new",
        ];
        for path in links.iter().map(|(name, _)| *name).chain(beneath) {
            for operation in all(path) {
                // Git keeps a link as what it is: its name and target, never what it leads to.
                if matches!(operation, Operation::Git(_)) && links.iter().any(|(name, _)| *name == path) {
                    continue;
                }
                let (reason, message) = refusal(&mut inside.run, operation.clone()).await;
                assert_eq!(reason, VIOLATION, "{operation:?}: {message}");
                assert!(!message.contains("/var/tmp") && !message.contains(SECRET), "{message}");
            }
        }
        assert_eq!(contents(&outside), before);
        for (name, target) in &links {
            assert_eq!(std::fs::read_link(workspace.join(name)).unwrap().to_str(), Some(target.as_str()));
        }

        // What walks a tree passes them by.
        let v1::result::Kind::Grep(grep) = inside.run.ok(calls::grep("@project", SECRET)).await else {
            panic!()
        };
        assert_eq!(grep.matches, []);
        let deep = v1::ListRequest {
            path: "@project".to_owned(),
            depth: Some(16),
            include_symlinks: true,
            ..Default::default()
        };
        let v1::result::Kind::List(list) = inside.run.ok(Operation::List(deep)).await else { panic!() };
        assert!(list.entries.iter().all(|entry| entry.name != "secret"), "{:?}", list.entries);
        inside.run.ok(calls::git_add(&["@project"])).await;
        let blobs = harness::git(
            &workspace,
            &["grep", "--cached", "--fixed-strings", "-I", "--name-only", "-e", "inside"],
        );
        assert_eq!(blobs, "a\n");
        let tracked = harness::git(&workspace, &["ls-files", "--stage", "directory"]);
        assert!(tracked.starts_with("120000 "), "a link is added as a link: {tracked}");
    }
}

#[tokio::test]
async fn p2_special_files_do_not_hang_calls() {
    let (_daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        assert_eq!(inside.probe(&["place", "fifo", "/workspace/fifo"]).await, ["fifo ok"]);
        assert_eq!(inside.probe(&["place", "socket", "/workspace/socket"]).await, ["socket ok"]);
        assert_eq!(inside.probe(&["place", "link", "/dev/zero", "/workspace/zero"]).await, ["link ok"]);
        assert_eq!(inside.probe(&["place", "link", "fifo", "/workspace/to-fifo"]).await, ["link ok"]);
        let calls = async {
            for path in ["fifo", "socket", "to-fifo", "zero"] {
                for operation in [
                    calls::read(path),
                    calls::grep(path, "x"),
                    calls::list(path),
                    calls::replace(path, "x", "y"),
                    calls::create(path, "x"),
                ] {
                    let (reason, message) = refusal(&mut inside.run, operation.clone()).await;
                    let known = ["SANDBOX_VIOLATION", "INVALID_ARGUMENT", "PRECONDITION_FAILED"]
                        .contains(&reason.as_str());
                    assert!(known, "{operation:?}: {reason}: {message}");
                }
            }
            let v1::result::Kind::Grep(grep) = inside.run.ok(calls::grep("@project", "needle")).await else {
                panic!()
            };
            assert_eq!(grep.matches, []);
            let (reason, message) = refusal(&mut inside.run, calls::write("fifo", "x")).await;
            assert_eq!(reason, VIOLATION, "{message}");
            inside.run.ok(calls::write("beside", "x")).await;
        };
        tokio::time::timeout(Duration::from_secs(60), calls).await.expect("a call hangs");
    }
}

#[tokio::test]
async fn p3_files_are_the_owner_s_and_hard_links_keep_their_peers() {
    let daemon = Daemon::start().await;
    let workspace =
        daemon.workspace("w", &[("linked", "as it was\n"), ("private", "x\n"), ("script", "x\n")]);
    let peer = daemon.roots().join("peer");
    std::fs::hard_link(workspace.join("linked"), &peer).unwrap();
    for (name, mode) in [("private", 0o600), ("script", 0o4755)] {
        std::fs::set_permissions(workspace.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut inside = Inside::enter_at(&daemon, workspace.clone(), v1::CreateRunRequest::default()).await;
    for name in ["linked", "private", "script", "new", "made/new"] {
        inside.run.ok(calls::write(name, "written\n")).await;
    }
    for (name, mode) in
        [("linked", 0o644), ("private", 0o600), ("script", 0o755), ("new", 0o644), ("made/new", 0o644)]
    {
        let meta = std::fs::metadata(workspace.join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (4321, 4321, mode), "{name}");
        assert_eq!(std::fs::read_to_string(workspace.join(name)).unwrap(), "written\n");
    }
    assert_eq!(std::fs::read_to_string(peer).unwrap(), "as it was\n");
    // What was written on the host's side is the run's own inside.
    assert_eq!(inside.probe(&["file", "/workspace/new", "3"]).await, ["file ok", "size 3"]);
}

#[tokio::test]
async fn p5_git_s_own_files_and_package_binaries_are_not_written() {
    let daemon = lenient().await;
    for profile in PROFILES {
        let workspace =
            daemon.repository(profile.name, &[("a", "inside\n"), ("node_modules/.bin/tool", "#!/bin/sh\n")]);
        let package = daemon.workspace("package", &[("lib.rs", "read me\n")]);
        let before = contents(&workspace.join(".git"));
        let request = v1::CreateRunRequest { pkg_path: package.display().to_string(), ..of(profile) };
        let mut inside = Inside::enter_at(&daemon, workspace.clone(), request).await;
        for path in [
            ".git/config",
            ".git/hooks/pre-commit",
            ".git/index",
            ".git/HEAD",
            ".git/new",
            ".GIT/config",
            ".git",
            "sub/.git/config",
            "@project/.git/refs/heads/main",
            "/workspace/.git/objects/aa/bb",
            "node_modules/.bin/tool",
            "sub/node_modules/.bin/new",
            "@pkg/lib.rs",
            "@pkg/new",
        ] {
            for operation in
                [calls::write(path, "x"), calls::create(path, "x"), calls::replace(path, "inside", "x")]
            {
                let (reason, message) = refusal(&mut inside.run, operation.clone()).await;
                assert_eq!(reason, VIOLATION, "{operation:?}: {message}");
            }
        }
        assert_eq!(contents(&workspace.join(".git")), before);
        assert_eq!(std::fs::read_to_string(workspace.join("node_modules/.bin/tool")).unwrap(), "#!/bin/sh\n");
        assert_eq!(contents(&package).len(), 1);
        assert_eq!(read(&mut inside.run, "@pkg/lib.rs").await.unwrap(), "read me\n");
        assert_eq!(read(&mut inside.run, ".git/HEAD").await.unwrap(), "ref: refs/heads/main\n");
    }
}
