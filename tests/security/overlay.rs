//! Attacks through overlays: changes that an agent makes to harm whoever shows or accepts them.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use harness::v1::exec_result::EndedBy;
use harness::{Daemon, calls, reason, requests};

use crate::inside::{PROBE, PROFILES};

#[tokio::test(flavor = "multi_thread")]
async fn c5_files_planted_in_an_overlay_have_no_effect_outside() {
    let daemon = Daemon::start().await;
    for profile in PROFILES {
        let canary = daemon.outside().join("canary");
        std::fs::write(&canary, "it sings").unwrap();
        let files = [("file", "old\n"), ("dir/inner", "inner\n"), ("peer", "peer\n"), ("probe", "")];
        let beneath = daemon.workspace(profile.name, &files);
        std::fs::copy(harness::probe(), beneath.join("probe")).unwrap();
        std::fs::set_permissions(beneath.join("probe"), std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(beneath.join("probe"), Some(4321), Some(4321)).unwrap();
        let mut run = daemon.run_on(requests::overlay(profile.name, &beneath)).await;
        let done = run.exec(&[PROBE, "layer-attack", &canary.display().to_string()]).await;
        assert_eq!((done.exit_code, done.stderr.as_str()), (Some(0), ""));
        let of = |what: &str| {
            let prefix = format!("{what} ");
            done.stdout.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
        };
        for refused in ["whiteout", "device", "mark trusted.overlay.opaque"] {
            assert_ne!(of(refused).as_deref(), Some("ok"), "{refused}");
        }
        for done in ["fifo", "out", "dir", "within", "peer", "closed", "hooks", "name"] {
            assert_eq!(of(done).as_deref(), Some("ok"), "{done}");
        }
        // A tree that cannot be counted uses the quota up, so that the command may be ended while it makes that.
        let deep = run.exec(&[PROBE, "layer-deep"]).await;
        assert!(deep.stdout == "deep ok\n" || deep.ended_by() == EndedBy::DiskQuota, "{deep:?}");
        run.stop().await;

        let diff = run.diff().await;
        let find = |path: &str| diff.changes.iter().find(|change| change.path == path);
        for obstacle in ["fifo", "socket", "secret", "closed"] {
            assert!(find(obstacle).is_some_and(|change| !change.obstacle.is_empty()), "{obstacle}");
        }
        for obeyed in [".git/hooks", ".git/hooks/post-checkout", "sub/.GIT/config", "other-sub/.git"] {
            assert!(find(obeyed).is_some_and(|change| change.objection.contains("git")), "{obeyed}");
        }
        assert!(diff.changes.iter().any(|change| change.obstacle.contains("128 levels")));
        assert!(!diff.unified_diff.contains("it sings") && !diff.unified_diff.contains('\x1b'));
        assert!(diff.changes.iter().all(|change| change.path != "probe"));

        let refused = run.accept(false).await.unwrap_err();
        assert_eq!(reason(&refused), "PRECONDITION_FAILED");
        assert!(!refused.message().contains(&*daemon.state_dir().to_string_lossy()), "{refused}");
        assert!(beneath.join("file").is_file(), "nothing was applied");

        // Who forces it has what is in the layer, and nothing beyond the directory.
        let accepted = run.accept(true).await.unwrap();
        for left_out in ["fifo", "socket", "secret", "closed"] {
            assert!(accepted.left_out.iter().any(|path| path == left_out), "{left_out}");
            assert!(std::fs::symlink_metadata(beneath.join(left_out)).is_err(), "{left_out}");
        }
        assert_eq!(std::fs::metadata(beneath.join("set-uid")).unwrap().mode() & 0o6000, 0);
        assert_eq!(std::fs::read_link(beneath.join("out")).unwrap(), canary);
        assert_eq!(std::fs::read_link(beneath.join("dir")).unwrap(), daemon.outside());
        assert_eq!(std::fs::read_to_string(beneath.join("file/inner")).unwrap(), "x");
        assert_eq!(std::fs::read_to_string(beneath.join("other")).unwrap(), "changed");
        assert_eq!(std::fs::read_to_string(&canary).unwrap(), "it sings");
        let mut outside: Vec<_> =
            std::fs::read_dir(daemon.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        outside.retain(|name| name != "canary");
        assert!(outside.iter().all(|name| name != "inner" && name != "post-checkout"), "{outside:?}");
        assert_eq!(std::fs::read_dir(daemon.state_dir().join("overlays")).unwrap().count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c5_an_overlay_is_visible_to_its_run_alone_and_settled_by_permitted_users() {
    let daemon = Daemon::start().await;
    let beneath = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut one = daemon.run_on(requests::overlay("open", &beneath)).await;
    let mut other = daemon.run_on(requests::overlay("open", &beneath)).await;
    one.ok(calls::write("mine.txt", "x")).await;
    assert!(other.diff().await.changes.is_empty());
    assert_eq!(other.fails(calls::read("mine.txt")).await.reason, "NOT_FOUND");
    // Both began before either was accepted: the second sees what the first has done.
    other.ok(calls::write("mine.txt", "y")).await;
    one.stop().await;
    other.stop().await;
    one.accept(false).await.unwrap();
    assert_eq!(reason(&other.accept(false).await.unwrap_err()), "PRECONDITION_FAILED");
    assert_eq!(std::fs::read_to_string(beneath.join("mine.txt")).unwrap(), "x");

    // Another directory in the old one's place is not what the run was made on.
    std::fs::rename(&beneath, beneath.with_file_name("elsewhere")).unwrap();
    daemon.workspace("w", &[("a.txt", "one\n")]);
    let refused = other.accept(true).await.unwrap_err();
    assert!(refused.message().contains("was replaced"), "{refused}");
    // Nor is one that a link leads to.
    std::fs::rename(&beneath, beneath.with_file_name("decoy")).unwrap();
    std::os::unix::fs::symlink(daemon.outside(), &beneath).unwrap();
    assert!(other.accept(true).await.is_err());
    assert!(!daemon.outside().join("mine.txt").exists());
    other.discard().await.unwrap();
}
