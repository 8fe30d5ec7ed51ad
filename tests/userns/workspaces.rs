//! Tests the owner on disk of files that root inside writes.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use harness::{RunHandle, calls, requests, script};

use crate::{daemon, rooted};

const OWNER: u32 = 4321;

fn owner(path: &Path) -> (u32, u32) {
    let found = path.symlink_metadata().unwrap();
    (found.uid(), found.gid())
}

/// Both lanes write, see each other's files and may change them.
async fn both_lanes_write(run: &mut RunHandle) {
    let inside = "mkdir -p d/e && echo inside >d/e/inside && chmod 600 d/e/inside && ln -s inside d/e/link && stat -c %u:%g d/e/inside";
    assert_eq!(script(run, inside).await, "0:0\n");
    run.ok(calls::write("d/outside", "outside\n")).await;
    assert_eq!(script(run, "stat -c %u:%g d/outside && echo more >>d/outside").await, "0:0\n");
    run.ok(calls::replace("d/e/inside", "inside", "changed")).await;
    assert_eq!(script(run, "cat d/e/inside d/outside").await, "changed\noutside\nmore\n");
    // Nobody else can own anything in a workspace or in /state.
    let given = "for p in d/e/inside d /state; do chown 42 $p 2>/dev/null && echo gave $p away; chgrp 42 $p 2>/dev/null && echo gave $p; done; \
                 echo kept >/state/note; stat -c %u:%g /state/note";
    assert_eq!(script(run, given).await, "0:0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn u4_files_belong_to_the_workspace_s_owner_on_disk() {
    let daemon = daemon().await;
    let repository = daemon.repository("repository", &[("a.txt", "a\n")]);
    let bound = daemon.workspace("bound", &[("a.txt", "a\n")]);
    let beneath = daemon.workspace("beneath", &[("a.txt", "a\n"), ("closed.txt", "closed\n")]);
    std::fs::set_permissions(beneath.join("closed.txt"), std::fs::Permissions::from_mode(0o600)).unwrap();

    let mut run = daemon.run_on(rooted(requests::bind("rooted", &bound))).await;
    both_lanes_write(&mut run).await;
    for path in ["d", "d/e", "d/e/inside", "d/e/link", "d/outside", "a.txt"] {
        assert_eq!(owner(&bound.join(path)), (OWNER, OWNER), "{path}");
    }
    run.stop().await;

    for request in [requests::managed("rooted"), requests::clone("rooted", &repository)] {
        let mut run = daemon.run_on(rooted(request)).await;
        both_lanes_write(&mut run).await;
        let workspace = daemon.state_dir().join("workspaces").join(run.id());
        let of = owner(&workspace);
        assert!(of.0 != 0 && of.0 < 65_536, "{of:?}");
        for path in ["d", "d/e/inside", "d/e/link", "d/outside"] {
            assert_eq!(owner(&workspace.join(path)), of, "{path}");
        }
        run.stop().await;
        run.delete().await;
    }

    let mut run = daemon.run_on(rooted(requests::overlay("rooted", &beneath))).await;
    assert_eq!(script(&mut run, "cat closed.txt && echo more >>closed.txt").await, "closed\n");
    both_lanes_write(&mut run).await;
    assert_eq!(std::fs::read_to_string(beneath.join("closed.txt")).unwrap(), "closed\n");
    run.stop().await;
    assert!(run.diff().await.changes.len() >= 3);
    run.accept(false).await.unwrap();
    for path in ["d", "d/e/inside", "d/e/link", "d/outside", "closed.txt"] {
        assert_eq!(owner(&beneath.join(path)), (OWNER, OWNER), "{path}");
    }
    assert_eq!(std::fs::read_to_string(beneath.join("closed.txt")).unwrap(), "closed\nmore\n");
    run.delete().await;
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}
