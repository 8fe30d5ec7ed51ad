//! Tests the resolution of program names in a run: links, interpreters, multi-call binaries. The deny list applies to the
//! result.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use harness::{Daemon, calls};

use crate::inside::{Inside, refusal};

fn script(workspace: &Path, name: &str, content: &str) {
    let path = workspace.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(&path, Some(4321), Some(4321)).unwrap();
}

#[tokio::test]
async fn the_deny_list_resolves_links() {
    let daemon = Daemon::start().await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let workspace = inside.workspace.clone();
    symlink("/bin/busybox", workspace.join("many")).unwrap();
    symlink("many", workspace.join("more")).unwrap();
    symlink("/bin/busybox", workspace.join("x-rm")).unwrap();
    symlink("/proc/self/exe", workspace.join("self")).unwrap();
    script(&workspace, "first-line", "#!/bin/rm\n");
    script(&workspace, "second-hand", "#!/usr/bin/env -S rm -rf\n");
    script(&workspace, "third-hand", "#!/workspace/first-line\n");
    script(&workspace, "sudo", "#!/bin/sh\n");
    symlink("sudo", workspace.join("harmless")).unwrap();

    for (argv, expected) in [
        (&["/workspace/many", "rm", "probe"][..], "COMMAND_NOT_ALLOWED"),
        (&["/workspace/more", "env", "RM", "probe"], "COMMAND_NOT_ALLOWED"),
        (&["/workspace/x-rm", "probe"], "COMMAND_NOT_ALLOWED"),
        (&["/workspace/first-line"], "COMMAND_NOT_ALLOWED"),
        (&["/workspace/second-hand"], "COMMAND_NOT_ALLOWED"),
        (&["/workspace/third-hand"], "COMMAND_NOT_ALLOWED"),
        (&["/workspace/harmless"], "COMMAND_NOT_ALLOWED"),
        (&["/workspace/self", "ls"], "SANDBOX_VIOLATION"),
        (&["/proc/self/exe", "ls"], "SANDBOX_VIOLATION"),
        (&["/proc/self/exe", "rm"], "COMMAND_NOT_ALLOWED"),
    ] {
        let (reason, message) = refusal(&mut inside.run, calls::exec(argv)).await;
        assert_eq!(reason, expected, "{argv:?}: {message}");
        assert!(!message.contains("/var/tmp"), "{message}");
    }
    assert!(workspace.join("probe").exists());

    // What is as it is called still runs.
    script(&workspace, "good", "#!/bin/sh -e\necho \"$1\"\n");
    symlink("/bin/busybox", workspace.join("echo")).unwrap();
    for (argv, expected) in [
        (&["/workspace/good", "rm"][..], "rm\n"),
        (&["echo", "rm"], "rm\n"),
        (&["/workspace/echo", "a"], "a\n"),
    ] {
        let result = inside.run.exec(argv).await;
        assert_eq!(
            (result.exit_code, result.stdout.as_str()),
            (Some(0), expected),
            "{argv:?}: {}",
            result.stderr
        );
    }
}
