//! A container as Cofferdam makes it, on the real engine, looked at from outside and attacked from inside.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use cofferdam_containers::{
    CgroupError, ContainerCgroup, ContainerState, EngineError, Group, HostProcess, IdMap, LABEL_INSTANCE,
    MountSlot, MountSpec, Propagation, RunUser, report, verify,
};

use jail::MountMode;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::support::TestContainer;

fn no_mounts(_: &Path) -> Vec<MountSpec> {
    Vec::new()
}

/// A directory of the given owner, and its mount.
fn directory(dir: &Path, name: &str, owner: u32) -> MountSpec {
    let path = dir.join(name);
    std::fs::create_dir(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(owner), Some(owner)).unwrap();
    MountSpec::new(&path, &format!("/{name}"), false, Propagation::Private).unwrap()
}

#[tokio::test]
async fn settings_in_force_match_the_request() {
    let test = TestContainer::start(|dir| {
        directory(dir, "pkg", 1001);
        let package = MountSpec::new(&dir.join("pkg"), "/pkg", true, Propagation::Private).unwrap();
        vec![directory(dir, "workspace", 1001), package]
    })
    .await;
    let inspection = test.engine().inspect(test.id()).await.unwrap();
    assert_eq!(verify(&test.spec, &inspection), []);
    assert_eq!(inspection.state, ContainerState::Running);
    assert!(!inspection.oom_killed);
    let report = report(&test.spec, &inspection);
    assert!(report.lines.len() > 30);
    assert!(report.lines.iter().all(|line| line.in_force), "{report:?}");
}

#[tokio::test]
async fn the_layers_of_an_image_agree_with_engine_and_kernel() {
    let test = TestContainer::start(no_mounts).await;
    let said: Vec<_> =
        test.image.image.directories().iter().map(|path| path.canonicalize().unwrap()).collect();
    assert!(!said.is_empty(), "the storage driver of the tests is overlay2");
    let pid = test.engine().inspect(test.id()).await.unwrap().host_pid.unwrap();
    let shown = cofferdam_containers::root_layers(pid).unwrap();
    let shown: Vec<_> = shown.iter().map(|path| path.canonicalize().unwrap()).collect();
    assert_eq!(shown, said);
    assert_eq!(
        cofferdam_containers::root_layers(std::process::id()).unwrap(),
        Vec::<std::path::PathBuf>::new()
    );
}

#[tokio::test]
async fn the_kernel_agrees_about_user_capabilities_and_filters() {
    let test = TestContainer::start(no_mounts).await;
    let status = test.probe(&["read", "/proc/self/status"]).await;
    let value = |name: &str| {
        let line = status.iter().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(value("Uid:"), "1001 1001 1001 1001");
    assert_eq!(value("Gid:"), "1001 1001 1001 1001");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!(value("NoNewPrivs:"), "1");
    assert_eq!(value("Seccomp:"), "2");
    let limits = test.probe(&["read", "/proc/self/limits"]).await.join("\n");
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(limit("Max core file size"), ["0", "0"]);
    assert_eq!(limit("Max open files"), ["1024", "1024"]);
    assert_eq!(limit("Max file size"), ["1073741824", "1073741824"]);
}

#[tokio::test]
async fn only_the_run_s_mounts_and_tmp_are_writable() {
    let test = TestContainer::start(|dir| {
        vec![directory(dir, "workspace", 1001), directory(dir, "state", 1001), directory(dir, "pkg", 0)]
    })
    .await;
    let mut found = test.probe(&["writable"]).await;
    found.sort();
    assert_eq!(found, ["/dev/shm", "/state", "/tmp", "/workspace"]);
    let mounts = test.probe(&["read", "/proc/self/mountinfo"]).await;
    for place in [" /tmp ", " /dev/shm "] {
        let mount = mounts.iter().find(|line| line.contains(place)).unwrap();
        for option in ["nosuid", "nodev", "noexec", "size=65536k"] {
            assert!(mount.contains(option), "{option} is not in {mount}");
        }
    }
}

#[tokio::test]
async fn the_host_s_particulars_are_out_of_sight() {
    let test = TestContainer::start(no_mounts).await;
    for path in ["/proc/keys", "/proc/cmdline", "/proc/interrupts", "/proc/kallsyms", "/proc/modules"] {
        let found = test.probe(&["read", path]).await;
        // Empty, or not in this kernel.
        assert!(found.is_empty() || found == [format!("error {}", libc::ENOENT)], "{path}: {found:?}");
    }
    assert_eq!(test.probe(&["read", "/proc/sys/kernel/hostname"]).await, ["cofferdam"]);
    let missing = format!("error {}", libc::ENOENT);
    for path in
        ["/sys/class/net", "/sys/kernel/notes", "/dev/mqueue/x", "/var/run/docker.sock", "/.dockerenv/x"]
    {
        let found = test.probe(&["read", path]).await;
        let refused = [missing.clone(), format!("error {}", libc::ENOTDIR)];
        assert!(found.len() == 1 && refused.contains(&found[0]), "{path}: {found:?}");
    }
    let unreadable = format!("error {}", libc::EACCES);
    assert_eq!(test.probe(&["read", "/.cofferdam/guest"]).await, [unreadable.as_str()]);
}

#[tokio::test]
async fn container_has_no_network() {
    let test = TestContainer::start(no_mounts).await;
    let devices = test.probe(&["read", "/proc/net/dev"]).await;
    let names: Vec<&str> = devices.iter().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert_eq!(names, ["lo"]);
    let errors = test.probe(&["connect", "1.1.1.1:53", "169.254.169.254:80", "172.17.0.1:22"]).await;
    assert_eq!(errors, vec![libc::ENETUNREACH.to_string(); 3]);
}

#[tokio::test]
async fn an_exec_s_stdout_is_whole_and_unmixed() {
    let test = TestContainer::start(no_mounts).await;
    let mut stream = test.exec(&["echo"]).await;
    let sent: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    let (mut input, to_send) = (stream.input, sent.clone());
    let sender = tokio::spawn(async move {
        input.write_all(&to_send).await.unwrap();
        input.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    stream.output.read_to_end(&mut received).await.unwrap();
    sender.await.unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    assert_eq!(stream.errors.text(), "aside");
}

/// Docker 20.10 puts its own words on stdout, framed as the program's: only a greeting proves that a program runs.
#[tokio::test]
async fn a_program_that_cannot_run_sends_no_valid_greeting() {
    let test = TestContainer::start(no_mounts).await;
    let argv = ["/no/such/program".to_owned()];
    match test.engine().attach_exec(test.id(), &argv, RunUser::DEFAULT).await {
        Ok(mut stream) => {
            let mut output = Vec::new();
            stream.output.read_to_end(&mut output).await.unwrap();
            let said = String::from_utf8(output).unwrap() + &stream.errors.text();
            assert!(said.starts_with("OCI runtime exec failed"), "{said}");
            assert!(matches!(test.engine().exec_pid(&stream.exec).await, Err(EngineError::NotFound { .. })));
        }
        // Newer engines say it at once.
        Err(error) => assert!(matches!(error, EngineError::Api { .. }), "{error:?}"),
    }
}

#[tokio::test]
async fn a_workspace_belongs_to_its_owner_on_disk_and_to_the_run_inside() {
    let mut slots = Vec::new();
    let test = TestContainer::start(|dir| {
        let map = IdMap { disk_uid: 4242, disk_gid: 4343, seen_uid: 1001, seen_gid: 1001 };
        [("workspace", MountMode::ReadWrite), ("pkg", MountMode::ReadOnly)]
            .map(|(name, access)| {
                let source = dir.join(name);
                std::fs::create_dir(&source).unwrap();
                std::fs::write(source.join("from-host"), "made outside").unwrap();
                std::os::unix::fs::chown(&source, Some(4242), Some(4343)).unwrap();
                let source = std::fs::File::open(source).unwrap();
                let slot = dir.join(format!("slot-{name}"));
                let slot = MountSlot::prepare(source.as_fd(), &slot, Some(map), access).unwrap();
                let read_only = access == MountMode::ReadOnly;
                let target = format!("/{name}");
                let mount = MountSpec::new(slot.path(), &target, read_only, Propagation::Private).unwrap();
                slots.push(slot);
                mount
            })
            .into()
    })
    .await;
    assert_eq!(test.probe(&["owner", "/workspace", "/pkg"]).await, ["1001 1001", "1001 1001"]);
    assert_eq!(test.probe(&["read", "/workspace/from-host"]).await, ["made outside"]);
    let made = test.probe(&["create", "/workspace/new", "/pkg/new"]).await;
    assert_eq!(made, ["0".to_owned(), libc::EROFS.to_string()]);
    let on_disk = std::fs::metadata(test.dir.path().join("workspace/new")).unwrap();
    assert_eq!((on_disk.uid(), on_disk.gid()), (4242, 4343));

    let table = test.probe(&["read", "/proc/self/mountinfo"]).await;
    let workspace = table.iter().find(|line| line.contains(" /workspace ")).unwrap();
    assert!(workspace.contains("nosuid") && workspace.contains("nodev"), "{workspace}");
    // runc before 1.2 loses nosuid and nodev where it makes a mount read-only; new privileges and devices are denied by
    // other means there.
    assert!(table.iter().any(|line| line.contains(" /pkg ro")), "{table:?}");

    // The container keeps its mounts when the host's slots go.
    for slot in slots {
        slot.release().unwrap();
    }
    assert_eq!(test.probe(&["read", "/workspace/new"]).await, ["made inside"]);
}

#[tokio::test]
async fn a_leaf_cgroup_ends_a_tree_that_hides() {
    let test = TestContainer::start(no_mounts).await;
    let first = test.engine().inspect(test.id()).await.unwrap().host_pid.unwrap();
    let cgroup = ContainerCgroup::of_pid(first, test.id()).unwrap();
    let mut stream = test.exec(&["tree"]).await;
    let mut lines = BufReader::new(stream.output).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("waiting"));
    let exec_pid = test.engine().exec_pid(&stream.exec).await.unwrap();
    let mut leaf = cgroup.leaf(Group::Ordinary, "call-1").unwrap();
    leaf.add(&HostProcess::of_engine(exec_pid).unwrap()).unwrap();

    stream.input.write_all(b"x").await.unwrap();
    let ready = lines.next_line().await.unwrap().unwrap();
    let pid_inside: u32 = ready.strip_prefix("ready ").unwrap().parse().unwrap();
    assert_eq!(leaf.pids().unwrap().iter().filter(|&&pid| pid == exec_pid).count(), 1);

    // A claim from inside is checked against the container's cgroup and the first process's namespace.
    assert_eq!(cgroup.process(first, pid_inside).unwrap().pid(), exec_pid);
    assert!(matches!(cgroup.process(first, 4_000_000), Err(CgroupError::NoSuchProcess)));
    assert!(matches!(cgroup.process(std::process::id(), pid_inside), Err(CgroupError::NoSuchProcess)));
    assert!(matches!(
        ContainerCgroup::of_pid(std::process::id(), test.id()),
        Err(CgroupError::Unavailable(_))
    ));

    // TERM leaves the deaf ones.
    assert!(leaf.terminate_all().unwrap().len() >= 9);
    let (evidence, leaf) = tokio::task::spawn_blocking(move || {
        let evidence = leaf.kill_all(Duration::from_secs(30)).unwrap();
        (evidence, leaf)
    })
    .await
    .unwrap();
    assert_eq!(evidence.left, 0, "{evidence:?}");
    assert!(evidence.ended >= 8, "{evidence:?}");
    assert_eq!(leaf.pids().unwrap(), Vec::<u32>::new());
    assert_eq!(lines.next_line().await.unwrap(), None, "its stream is closed with it");
    assert!(matches!(test.engine().exec_pid(&stream.exec).await, Err(EngineError::NotFound { .. })));

    // The container lives on, and the name is free again.
    drop(leaf);
    cgroup.leaf(Group::Ordinary, "call-1").unwrap();
    assert!(matches!(cgroup.leaf(Group::Ordinary, "../x"), Err(CgroupError::BadName)));
    assert_eq!(test.engine().inspect(test.id()).await.unwrap().state, ContainerState::Running);
}

#[tokio::test]
async fn states_and_listings_follow_pause_and_unpause() {
    let test = TestContainer::start(no_mounts).await;
    let engine = test.engine();
    engine.pause(test.id()).await.unwrap();
    assert_eq!(engine.inspect(test.id()).await.unwrap().state, ContainerState::Paused);
    assert!(matches!(
        engine.pause(test.id()).await,
        Err(EngineError::Conflict { .. } | EngineError::Api { .. })
    ));
    engine.unpause(test.id()).await.unwrap();
    assert_eq!(engine.inspect(test.id()).await.unwrap().state, ContainerState::Running);

    let instance = &test.spec.labels()[LABEL_INSTANCE];
    let rows = engine.list(LABEL_INSTANCE, instance).await.unwrap();
    assert_eq!(rows.iter().map(|row| &row.id).collect::<Vec<_>>(), [test.id()]);
    assert!(rows[0].name.starts_with("cofferdam-test-"));
    let own = test.spec.labels();
    assert!(own.iter().all(|(key, value)| rows[0].labels.get(key) == Some(value)), "{:?}", rows[0].labels);

    engine.remove(test.id()).await.unwrap();
    engine.remove(test.id()).await.unwrap();
    assert_eq!(engine.list(LABEL_INSTANCE, instance).await.unwrap(), []);
    assert!(matches!(engine.inspect(test.id()).await, Err(EngineError::NotFound { .. })));
}

/// The way of a daemon whose state directory is a shared mount: what it mounts after the start appears inside.
#[tokio::test]
async fn a_slot_made_later_appears_in_a_container_that_follows_its_mount() {
    let mut place = None;
    let test = TestContainer::start(|dir| {
        let shared = SharedDirectory::new(dir.join("pkg"));
        let mount = MountSpec::new(&shared.path, "/pkg", true, Propagation::Slave).unwrap();
        place = Some(shared);
        vec![mount]
    })
    .await;
    let shared = place.unwrap();
    let inspection = test.engine().inspect(test.id()).await.unwrap();
    assert_eq!(verify(&test.spec, &inspection), []);

    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("file"), "mounted later").unwrap();
    std::os::unix::fs::chown(source.path(), Some(4242), Some(4242)).unwrap();
    let map = IdMap { disk_uid: 4242, disk_gid: 4242, seen_uid: 1001, seen_gid: 1001 };
    let opened = std::fs::File::open(source.path()).unwrap();
    let slot = MountSlot::prepare(opened.as_fd(), &shared.path.join("late"), Some(map), MountMode::ReadWrite)
        .unwrap();
    assert_eq!(test.probe(&["read", "/pkg/late/file"]).await, ["mounted later"]);
    assert_eq!(test.probe(&["owner", "/pkg/late"]).await, ["1001 1001"]);
    slot.release().unwrap();
    let missing = format!("error {}", libc::ENOENT);
    assert_eq!(test.probe(&["read", "/pkg/late/file"]).await, [missing]);
}

/// A directory that is a shared mount of itself.
struct SharedDirectory {
    path: std::path::PathBuf,
}

impl SharedDirectory {
    fn new(path: std::path::PathBuf) -> Self {
        std::fs::create_dir(&path).unwrap();
        rustix::mount::mount_bind(&path, &path).unwrap();
        let this = Self { path };
        rustix::mount::mount_change(&this.path, rustix::mount::MountPropagationFlags::SHARED).unwrap();
        this
    }
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }
}
