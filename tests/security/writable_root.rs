//! C6: a root that commands can write to: planted files deceive only the commands themselves.

use std::collections::BTreeSet;
use std::path::Path;

use harness::v1::CreateRunRequest;
use harness::v1::exec_result::EndedBy;
use harness::{Image, calls, debian};

use crate::inside::{Inside, lenient, outcomes, read};

/// A run of the profile `harness` in this image, with the host's static busybox in its workspace.
async fn enter(daemon: &harness::Daemon, name: &str, image: &str) -> Inside {
    let request = CreateRunRequest { image: image.to_owned(), ..CreateRunRequest::default() };
    let inside = Inside::harness(daemon, name, request).await;
    std::fs::copy("/bin/busybox", inside.workspace.join("busybox")).unwrap();
    inside
}

/// What a script printed that the workspace's own shell ran, whatever became of the image's.
async fn script(inside: &mut Inside, script: &str) -> String {
    let result = inside.run.exec(&["/workspace/busybox", "sh", "-c", script]).await;
    assert!(result.exit_code == Some(0) || !result.stderr.is_empty(), "it failed without a word: {result:?}");
    result.stdout + &result.stderr
}

#[tokio::test]
async fn c6_only_the_layer_and_places_of_the_run_are_writable() {
    let daemon = lenient().await;
    let mut inside = enter(&daemon, "w", "").await;
    let writable = inside.probe(&["writable"]).await;
    let own =
        ["/", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/state/logs"];
    assert!(!writable.iter().any(|path| own.contains(&path.as_str())), "{writable:?}");
    let tops: BTreeSet<&str> = writable.iter().filter_map(|path| path.split('/').nth(1)).collect();
    // The probe itself cannot be opened for writing while it runs.
    assert_eq!(
        tops.into_iter().collect::<Vec<_>>(),
        ["bin", "dev", "etc", "home", "state", "tmp", "usr", "workspace"]
    );

    let mut inside = enter(&daemon, "debian", &debian()).await;
    // No set-id file works and no device opens, whichever of them the image or a command has there.
    let mounts = script(&mut inside, "cat /proc/self/mountinfo").await;
    let layer: Vec<&str> = mounts.lines().filter(|line| line.contains(" - overlay cofferdam ")).collect();
    assert!(layer.len() >= 10, "{mounts}");
    assert!(layer.iter().all(|line| line.contains(" rw,nosuid,nodev,")), "{layer:?}");
    assert!(
        !layer.iter().any(|line| line.contains("/overlay2/")),
        "where the image lies is not told: {layer:?}"
    );
}

#[tokio::test]
async fn c6_layer_allows_no_devices_whiteouts_mounts_or_set_id_files() {
    let daemon = lenient().await;
    let mut inside = enter(&daemon, "w", &debian()).await;
    let tried = script(
        &mut inside,
        "cd /srv; B=/workspace/busybox
         $B mknod zero c 1 5 2>/dev/null && echo made a device
         $B mknod white c 0 0 2>/dev/null && echo made a whiteout
         $B chmod u+s /usr/bin/env 2>/dev/null && echo made a set-uid file
         $B mount -t tmpfs none /srv 2>/dev/null && echo mounted
         $B mount --bind /workspace /usr 2>/dev/null && echo bound
         $B mount -o remount,suid /usr 2>/dev/null && echo remounted
         $B umount /usr 2>/dev/null && echo unmounted
         $B umount /etc/passwd 2>/dev/null && echo unmounted the users
         $B chroot / true 2>/dev/null && echo changed its root
         $B chown 0:0 /usr/bin/env 2>/dev/null && echo gave a file away
         /usr/bin/su -c id 2>/dev/null; /workspace/busybox id -u",
    )
    .await;
    assert_eq!(tried, "1001\n");
    // A name that is given another is a copy of the image's from then on.
    let linked = "ln /usr/bin/env /usr/bin/peer && echo changed >/usr/bin/peer && /workspace/busybox head -c7 /usr/bin/env";
    assert_eq!(script(&mut inside, linked).await, "changed");
    let mut other = enter(&daemon, "other", &debian()).await;
    assert_eq!(script(&mut other, "/usr/bin/env true && echo as it was").await, "as it was\n");
}

/// The engine reads users and groups of the container for each program that it starts there. A line `1001:x:0:` makes it give the
/// group 0, and one that is a FIFO would let it wait.
const FORGED: &str = "
    B=/workspace/busybox
    for f in passwd group; do
        $B printf '1001:x:0:0::/:/bin/sh\\n' >/srv/$f
        $B rm -f /etc/$f; $B mv /srv/$f /etc/$f; $B cp /srv/$f /etc/$f; $B ln -sf /srv/$f /etc/$f
        $B mv /etc/$f /etc/$f.old; $B mkfifo /etc/$f
    done 2>/dev/null
    $B mv /etc /etc.old 2>/dev/null; $B mkdir /etc.new 2>/dev/null
    $B printf /srv/evil.so >/etc/ld.so.preload; $B cp /workspace/busybox /srv/evil.so
    for p in /bin/sh /bin/bash /usr/bin/sh /usr/bin/env /usr/bin/cat; do
        $B rm -f $p; $B printf '#!/workspace/busybox sh\\necho forged; exit 0\\n' >$p; $B chmod 755 $p
    done";

async fn cannot_be_fooled(daemon: &harness::Daemon, image: &str) {
    let mut inside = enter(daemon, "w", image).await;
    let mut bystander = enter(daemon, "bystander", &debian()).await;
    inside.run.ok(calls::write("a.txt", "true\n")).await;
    script(&mut inside, FORGED).await;
    // The next worker is started by the engine, in what the command has left.
    let killed = inside.run.call(calls::exec(&["/workspace/probe", "signal-agent", "9"])).await.unwrap();
    assert_eq!(killed.error.map(|error| error.reason).as_deref(), Some("CANCELLED"));
    inside.run.ok(calls::read("a.txt")).await;

    let status = inside.probe(&["read", "/proc/self/status"]).await.join("");
    for fact in [
        "Uid:\\t1001\\t1001\\t1001\\t1001",
        "Gid:\\t1001\\t1001\\t1001\\t1001",
        "Groups:\\t1001 ",
        "CapEff:\\t0000000000000000",
        "CapBnd:\\t0000000000000000",
        "NoNewPrivs:\\t1",
        "Seccomp:\\t2",
    ] {
        assert!(status.contains(fact), "{fact} is not in {status}");
    }
    let users = inside.probe(&["read", "/etc/passwd", "/etc/group"]).await.join("");
    assert!(users.contains("agent:x:1001:1001:agent:/home/agent") && !users.contains("x:0:0::"), "{users}");
    // The lanes read and write as before; only the run's own commands get what it has planted.
    assert_eq!(read(&mut inside.run, "a.txt").await.as_deref(), Ok("true\n"));
    inside.run.ok(calls::replace("a.txt", "true", "still true")).await;
    assert_eq!(std::fs::read_to_string(inside.workspace.join("a.txt")).unwrap(), "still true\n");
    let found = outcomes(&inside.probe(&["peers"]).await);
    assert!(found.iter().all(|(_, errno)| *errno != 0), "{found:?}");
    assert_eq!(bystander.run.exec(&["cat", "/etc/debian_version"]).await.exit_code, Some(0));
    inside.run.stop().await;
    assert!(daemon.root_is_gone(inside.run.id()));
}

#[tokio::test]
async fn c6_replaced_programs_and_users_fool_neither_guest_nor_engine() {
    let daemon = lenient().await;
    cannot_be_fooled(&daemon, &debian()).await;
}

/// An image may have links in place of the files, which the engine follows.
#[tokio::test]
async fn c6_links_of_an_image_to_its_users_are_replaced() {
    let daemon = lenient().await;
    let image = Image::of_links(
        "users",
        &[("etc/passwd", "/srv/passwd"), ("etc/group", "../srv/group"), ("srv/x/y", "z")],
    );
    cannot_be_fooled(&daemon, &image.0).await;
    let away = Image::of_links("etc-away", &[("etc", "srv"), ("srv/x/y", "z")]);
    let request = CreateRunRequest { image: away.0.clone(), ..harness::requests::managed("harness") };
    let refused = daemon.run_with(request).await.map(|_| ()).unwrap_err();
    assert!(
        refused.message().contains("/etc: the image has a file or a symbolic link"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn c6_a_layer_that_is_hard_to_remove_is_removed_with_its_run() {
    let daemon = lenient().await;
    let mut inside = enter(&daemon, "w", &debian()).await;
    let plant = "cd /opt; B=/workspace/busybox; $B mkdir closed; echo x >closed/file; $B chmod 0 closed
        $B mkfifo fifo; $B ln -s / root; $B ln -s /proc/self/root/etc/shadow shadow; $B touch \"$($B printf 'a\\nb\\033[2J')\"
        $B rm -rf /usr/share/doc /var/lib/dpkg; $B mkdir /var/lib/dpkg; echo planted";
    assert_eq!(script(&mut inside, plant).await, "planted\n");
    // More levels than are measured: a look at the disk that comes in time ends the command which has made them.
    let dig = "cd /srv; B=/workspace/busybox; exec $B mkdir -p $($B seq -s / 1 400)";
    let dug = inside.run.exec(&["/workspace/busybox", "sh", "-c", dig]).await;
    assert!(dug.exit_code == Some(0) || dug.ended_by() == EndedBy::DiskQuota, "{dug:?}");
    let canary = std::fs::metadata("/etc/passwd").unwrap().len();
    let id = inside.run.id().to_owned();
    inside.run.stop().await;
    assert!(daemon.root_is_gone(&id));
    assert_eq!(std::fs::metadata("/etc/passwd").unwrap().len(), canary);
    assert!(Path::new("/proc/self/root/etc").exists());
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

#[tokio::test]
async fn c6_planted_files_are_read_only_in_the_container() {
    let daemon = lenient().await;
    let canary = daemon.outside().join("canary");
    std::fs::write(&canary, "it sings").unwrap();
    let workspace = daemon.repository("w", &[("a.txt", "a\n")]);
    let request =
        CreateRunRequest { profile: "harness".to_owned(), image: debian(), ..CreateRunRequest::default() };
    let mut inside = Inside::enter_at(&daemon, workspace, request).await;
    let plant = format!(
        "ln -s {} /etc/told; printf '[core]\\n\\tfsmonitor = touch /workspace/ran\\n\\thooksPath = /srv\\n' | tee /etc/gitconfig >~/.gitconfig;
         mkdir -p /run/x; ln -s / /run/x/root; echo 127.0.0.1 evil >/etc/hosts; echo x",
        canary.display()
    );
    assert!(inside.run.ran(calls::shell(&plant)).await.stdout.ends_with("x\n"));
    assert_eq!(inside.probe(&["read", "/etc/told"]).await, [format!("/etc/told {}", libc::ENOENT)]);
    // Git of the host lane goes by what is in the workspace, and runs nothing.
    let status = harness::v1::git_request::Command::Status(harness::v1::GitStatus {});
    inside.run.ok(calls::git(status)).await;
    inside.run.ok(calls::git_add(&["."])).await;
    inside.run.ok(calls::git_commit("second")).await;
    assert!(!inside.workspace.join("ran").exists());
    assert!(inside.run.clients.verify().await.intact);
}
