//! Tests a root that commands can write to: installations, its visible parts, and its removal.

use harness::v1::CreateRunRequest;
use harness::v1::call_response::Status;
use harness::{
    Daemon, Image, RunHandle, Setup, calls, debian, dev_image, inspect, reason, record, requests, script,
};

/// A run of the profile `harness` with these directories beside those of its image.
async fn harness_run(daemon: &Daemon, image: &str, writable_paths: &[&str]) -> RunHandle {
    let writable_paths = writable_paths.iter().map(ToString::to_string).collect();
    let request =
        CreateRunRequest { image: image.to_owned(), writable_paths, ..requests::managed("harness") };
    daemon.run_on(request).await
}

/// Writes a wheel of one module, as a build would.
const WHEEL: &str = r#"
import zipfile
info = "greeting-1.0.dist-info/"
with zipfile.ZipFile("greeting-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greeting.py", "def main():\n    print('hello')\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "entry_points.txt", "[console_scripts]\ngreet = greeting:main\n")
    wheel.writestr(info + "RECORD", "")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn pip_npm_and_venv_install_where_they_like() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon, &dev_image(), &[]).await;
    run.ok(calls::write("wheel.py", WHEEL)).await;
    script(&mut run, "python3 wheel.py").await;
    // Into the system's own directories, without `--user`.
    let install =
        "python3 -m pip install --no-index --break-system-packages --disable-pip-version-check -q ./*.whl";
    script(&mut run, install).await;
    assert_eq!(script(&mut run, "cd / && greet && command -v greet").await, "hello\n/usr/local/bin/greet\n");
    let site = script(&mut run, "python3 -c 'import greeting; print(greeting.__file__)'").await;
    assert!(site.starts_with("/usr/local/lib/python3"), "{site}");
    // Into the home, and into an environment of its own there.
    script(
        &mut run,
        "python3 -m venv ~/env && ~/env/bin/pip install --no-index -q ./*.whl && ~/env/bin/greet",
    )
    .await;
    let user = install.replace("-q", "-q --user --force-reinstall");
    assert_eq!(script(&mut run, &format!("{user} && ~/.local/bin/greet")).await, "hello\n");
    // npm's global directory is the image's, too.
    run.ok(calls::write(
        "tool/package.json",
        r#"{"name":"tool","version":"1.0.0","bin":{"tool":"./tool.sh"}}"#,
    ))
    .await;
    run.ok(calls::write("tool/tool.sh", "#!/bin/sh\necho a tool\n")).await;
    let npm =
        "chmod 755 tool/tool.sh && npm install -g --offline --no-audit --no-fund --silent ./tool && tool";
    assert_eq!(script(&mut run, npm).await, "a tool\n");
    // What the image has can be changed and removed.
    script(&mut run, "echo changed >>/etc/bash.bashrc && rm /usr/bin/gcc && ! command -v gcc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run_in_every_directory_that_was_asked_for() {
    let daemon = Daemon::start().await;
    let asked = ["/logs/agent", "/logs/verifier", "/tests", "/solution", "/opt/tools/bin"];
    let mut run = harness_run(&daemon, &dev_image(), &asked).await;
    for place in
        ["/logs/agent", "/tests", "/solution", "/opt/tools/bin", "/var/tmp", "/tmp", "$HOME", "/root", "/srv"]
    {
        let script_of = format!(
            "mkdir -p {place}/.deep && cd {place}/.deep && printf '#!/bin/sh\\necho ran\\n' >test.sh && \
             chmod 755 test.sh && ./test.sh && cp /bin/true program && ./program"
        );
        assert_eq!(script(&mut run, &script_of).await, "ran\n", "{place}");
    }
    assert_eq!(script(&mut run, "echo $HOME; cd; pwd; id -un; getent passwd agent").await, {
        "/home/agent\n/home/agent\nagent\nagent:x:1001:1001:agent:/home/agent:/bin/sh\n"
    });
    // The top belongs to the engine, so that nothing that is mounted there can be moved away.
    let top = run
        .ran(calls::shell("mkdir /made || mv /usr /old || rmdir /solution || mv /etc/passwd /etc/x"))
        .await;
    assert_ne!(top.exit_code, Some(0), "{top:?}");
    let shown = run.show().await;
    assert_eq!(shown.writable_paths, asked);
    let facts = shown.hardening.iter().find(|fact| fact.name == "read_only_root").unwrap();
    assert_eq!(facts.value, "true");
    let id = run.id().to_owned();
    let created = record(&run.clients.events(&id, "run_created").await[0]);
    assert_eq!(created["details"]["root"], "writable-layer");
    assert_eq!(created["details"]["writable_paths"][2], "/tests");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layer_belongs_to_one_run_and_is_removed_with_it() {
    let daemon = Daemon::start().await;
    let mut one = harness_run(&daemon, &debian(), &["/logs"]).await;
    let mut other = harness_run(&daemon, &debian(), &["/logs"]).await;
    script(&mut one, "echo mine >/etc/mine; echo mine >/logs/mine; rm /etc/debian_version").await;
    assert_eq!(
        script(&mut other, "ls /logs; ls /etc/mine 2>/dev/null || cat /etc/debian_version | wc -l").await,
        "1\n"
    );
    let layer = daemon.state_dir().join("roots").join(one.id());
    assert!(layer.join("upper/etc/mine").exists());
    one.stop().await;
    assert!(daemon.root_is_gone(one.id()), "the layer is removed when its run ends");
    assert_eq!(script(&mut other, "cat /etc/debian_version | wc -l").await, "1\n", "the image is as it was");
    other.stop().await;
    for run in [&mut one, &mut other] {
        run.delete().await;
    }
    let kept: Vec<String> =
        daemon.leftovers().into_iter().filter(|left| !left.contains("/workspaces/")).collect();
    assert_eq!(kept, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_image_has_a_writable_root_too() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon, "", &["/logs"]).await;
    assert_eq!(
        script(
            &mut run,
            "cp /bin/busybox /bin/busybox-mine && /bin/busybox-mine echo ran >/logs/a && cat /logs/a"
        )
        .await,
        "ran\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_profile_is_as_before() {
    let daemon = Daemon::start().await;
    for profile in ["open", "build", "review", "strict"] {
        let run = daemon.run_on(requests::managed(profile)).await;
        let found = inspect(&run.run.container_id);
        let env: Vec<&str> =
            found["Config"]["Env"].as_array().unwrap().iter().filter_map(|v| v.as_str()).collect();
        assert!(env.contains(&"HOME=/tmp"), "{profile}: {env:?}");
        let tmp = found["HostConfig"]["Tmpfs"]["/tmp"].as_str().unwrap();
        assert!(tmp.starts_with("rw,noexec,nosuid,nodev,mode=1777,size="), "{profile}: {tmp}");
        assert_eq!(found["Mounts"].as_array().unwrap().len(), 9, "{profile}");
        let request =
            CreateRunRequest { writable_paths: vec!["/logs".to_owned()], ..requests::managed(profile) };
        let refused = daemon.run_with(request).await.map(|_| ()).unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT");
        assert!(
            refused.message().contains("needs a profile with `root: writable-layer`"),
            "{}",
            refused.message()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_that_lead_elsewhere_are_refused_and_leave_nothing() {
    let daemon = Daemon::start().await;
    let outside = daemon.outside().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let outside = outside.display().to_string();
    let links = [
        ("logs", outside.as_str()),
        ("srv/up", "../../../.."),
        ("srv/in", "deep"),
        ("srv/deep/a", "b"),
        ("home", "/srv"),
    ];
    let image = Image::of_links("links", &links[..4]);
    let homeless = Image::of_links("homeless", &links[4..]);
    let create = async |image: &str, path: &str| {
        let image = image.to_owned();
        let request =
            CreateRunRequest { image, writable_paths: vec![path.to_owned()], ..requests::managed("harness") };
        daemon.run_with(request).await.map(|_| ()).unwrap_err()
    };
    for path in ["/logs", "/logs/agent", "/srv/up/x", "/srv/in", "/srv/deep/a", "/motd", "/motd/x"] {
        let refused = create(&image.0, path).await;
        assert_eq!(reason(&refused), "INVALID_ARGUMENT", "{path}");
        assert!(refused.message().contains(path), "{}", refused.message());
        assert!(!refused.message().contains(&outside), "{}", refused.message());
    }
    for path in [
        "",
        "/",
        "logs",
        "/a/../b",
        "/a/./b",
        "/a//b",
        "/a/",
        "/proc",
        "/proc/x",
        "/sys/a",
        "/dev/shm",
        "/tmp/a",
        "/workspace/a",
        "/state",
        "/pkg",
        "/.cofferdam",
        "/a b",
        "/a/\u{7}",
        "/a\0",
    ] {
        let refused = create("", path).await;
        assert_eq!(reason(&refused), "INVALID_ARGUMENT", "{path:?}");
        assert!(refused.message().contains("writable_paths"), "{}", refused.message());
    }
    let long = format!("/{}", "a/".repeat(127) + "bc");
    assert_eq!(reason(&create("", &long).await), "INVALID_ARGUMENT");
    let many = (0..33).map(|n| format!("/p{n}")).collect();
    let request = CreateRunRequest { writable_paths: many, ..requests::managed("harness") };
    assert_eq!(reason(&daemon.run_with(request).await.map(|_| ()).unwrap_err()), "INVALID_ARGUMENT");
    // Nor is the home anywhere else than it says.
    let refused = create(&homeless.0, "/logs").await;
    assert!(
        refused.message().contains("/home/agent: the image has a file or a symbolic link"),
        "{}",
        refused.message()
    );
    assert_eq!(std::fs::read_dir(daemon.outside().join("outside")).unwrap().count(), 0);
    assert_eq!(daemon.leftovers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_is_bound_to_the_image_s_files_where_they_can_be_written() {
    let profile = "profiles: {p: {workspace: read-write, root: writable-layer, unattended: true, allowed_images: ['*'], \
                   operations: {exec: ask, shell: allow}, exec: {deny_list: off, default: allow}, approvals: {freeze: false}}}\n\
                   roles: {director: {allow: '*'}}\n";
    let setup = Setup {
        policy: vec![("p.yaml", profile.to_owned())],
        config: "harness_on_bind: allow\n".to_owned(),
        ..Default::default()
    };
    let daemon = Daemon::start_with(setup).await;
    let request = CreateRunRequest { image: debian(), role: "director".to_owned(), ..requests::managed("p") };
    let mut run = daemon.run_on(request).await;
    script(&mut run, "printf '#!/bin/sh\\necho good\\n' >/usr/local/bin/tool; chmod 755 /usr/local/bin/tool")
        .await;
    let (approval, done) = run.consented(calls::exec(&["tool"])).await;
    assert_eq!(done.status(), Status::Succeeded, "{:?}", done.error);
    assert!(format!("{approval:?}").contains("bound to all"), "{approval:?}");

    for swap in [
        "sed -i s/good/evil/ /usr/local/bin/tool",
        "cp /bin/true /bin/sh.new && mv /bin/sh.new /bin/dash",
        "echo x >/etc/ld.so.preload",
    ] {
        let asked = run.asks(calls::exec(&["tool"])).await;
        script(&mut run, swap).await;
        run.clients.approve(&asked.approval_id).await.unwrap();
        let call = run.outcome(&asked.call_id).await;
        let reason = call.error.map(|error| error.reason);
        assert_eq!(reason.as_deref(), Some("PRECONDITION_FAILED"), "{swap}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn u2_an_engine_that_maps_no_users_refuses_such_a_run_and_nothing_is_left() {
    let profile = "profiles: {rooted: {root: writable-layer, root_in_user_namespace: true, operations: {shell: allow}, \
                   exec: {deny_list: off, default: allow}, approvals: {freeze: false}}}\n";
    let shipped = |name, text: &str| (name, text.to_owned());
    let policy = vec![
        shipped("p.yaml", profile),
        shipped("harness.yaml", include_str!("../../crates/policy/policies/harness.yaml")),
        shipped("roles.yaml", include_str!("../../crates/policy/policies/roles.yaml")),
    ];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let refused = daemon.run_with(requests::managed("rooted")).await.map(|_| ()).unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    for word in ["root_in_user_namespace", "userns-remap", "see the book, \"Root in a user namespace\""] {
        assert!(refused.message().contains(word), "{}", refused.message());
    }
    assert_eq!(daemon.leftovers(), [""; 0]);
    let mut run = daemon.run_on(requests::managed("harness")).await;
    assert_eq!(script(&mut run, "id -u").await, "1001\n", "other profiles are as before");
}
