//! Judges the container engine by what it says about itself.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::ask::{NoAnswer, get};
use crate::commands::Host;
use crate::elsewhere;
use crate::finding::Finding;
use crate::image_store;
use crate::kind::{Kind, security_options};
use crate::socket::{group_of, who_may_open};

const TOPIC: &str = "engine";
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// Paths of the socket of an engine that a package installs.
const DEFAULT_SOCKETS: [&str; 2] = [DEFAULT_SOCKET, "/run/docker.sock"];
/// Lowest user id that a container may have. Lower ids belong to people and services on most hosts.
const LOWEST_ID: u32 = 65_536;
/// The oldest API version that the driver supports.
const OLDEST_API: (u32, u32) = (1, 41);

pub(super) async fn examine(socket: Option<PathBuf>, host: &Host) -> Vec<Finding> {
    let socket = match socket.map_or_else(configured, Ok) {
        Ok(socket) => socket,
        Err(other) => {
            return vec![Finding::missing(
                TOPIC,
                format!("DOCKER_HOST is {other}"),
                "cofferd uses an engine on a Unix socket of this host: name it with --engine",
            )];
        }
    };
    let version = match get(&socket, "/version").await {
        Err(NoAnswer::NotPermitted) => return vec![not_permitted(&socket, host)],
        version => version.map_err(|error| error.to_string()),
    };
    let info = get(&socket, "/info").await.ok();
    let mut findings = vec![engine(&socket, version, info.as_ref(), host)];
    if let Some(info) = info {
        let nowhere = Host::default();
        findings.push(runtimes(&info, if is_default(&socket) { host } else { &nowhere }));
        findings.extend(egress_in_gvisor(&info));
        findings.push(writable_root(&info));
        findings.extend(image_store::examine(&info));
        findings.push(mapped_root(&info));
        findings.push(engine_security(&info));
    }
    findings
}

/// Returns the reason why no run can become ready on the engine at this socket. `None` if there is none, or if the engine
/// does not answer.
///
/// The engine is asked what it is, and not tried.
pub async fn unusable_engine(socket: &Path) -> Option<String> {
    let version = get(socket, "/version").await.ok()?;
    let info = get(socket, "/info").await.ok()?;
    let kind = Kind::of(&version, Some(&info));
    let why = kind.unusable()?;
    Some(format!("the engine is {}: {why}", told(&kind, &version)))
}

/// Returns the engine's socket from the environment. The error is a `DOCKER_HOST` that names no Unix socket.
fn configured() -> Result<PathBuf, String> {
    match std::env::var("DOCKER_HOST") {
        Ok(host) if !host.is_empty() => host.strip_prefix("unix://").map(PathBuf::from).ok_or(host),
        _ => Ok(DEFAULT_SOCKET.into()),
    }
}

/// Makes the finding for a user who may not ask the engine. The engine may still be sufficient.
fn not_permitted(socket: &Path, host: &Host) -> Finding {
    let found = format!("not examined: you may not open {}", socket.display());
    let who = who_may_open(socket);
    let follows = format!(
        "{who}; run this with sudo, or as a member of that group. cofferd, which is root, may open it"
    );
    Finding::limited("engine", found, follows.trim_start_matches("; ")).with_remedy(group_of(socket, host))
}

/// Returns true if the engine may be that of a package of this host, which commands here start and configure.
fn is_default(socket: &Path) -> bool {
    DEFAULT_SOCKETS.iter().any(|default| Path::new(default) == socket)
}

/// Describes an engine by its name, its versions and the way in which it runs.
fn told(kind: &Kind, version: &Value) -> String {
    let [number, api] = ["Version", "ApiVersion"].map(|name| text(version, name));
    format!("{} {number}, API {api}{}", kind.name(), kind.way())
}

fn text<'v>(version: &'v Value, name: &str) -> &'v str {
    version.get(name).and_then(Value::as_str).unwrap_or("?")
}

fn engine(socket: &Path, version: Result<Value, String>, info: Option<&Value>, host: &Host) -> Finding {
    let version = match version {
        Ok(version) => version,
        Err(why) => return no_answer(socket, &why, &elsewhere::sockets(), host),
    };
    let kind = Kind::of(&version, info);
    let found = told(&kind, &version);
    if let Some(why) = kind.unusable() {
        return Finding::missing(TOPIC, found, why);
    }
    let api = text(&version, "ApiVersion");
    let api = api.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match api {
        Some(api) if api >= OLDEST_API => Finding::good(TOPIC, found),
        Some(_) => Finding::missing(TOPIC, found, "API 1.41 (Docker 20.10) or later is needed"),
        None => Finding::limited(TOPIC, found, "its API version is unknown; cofferd may refuse it"),
    }
}

/// Makes the finding for an engine that does not answer. Sockets of others are named, which cofferd cannot use.
fn no_answer(socket: &Path, why: &str, others: &[PathBuf], host: &Host) -> Finding {
    let found = format!("no answer on {}: {why}", socket.display());
    let mut follows = "install and start Docker, or name its socket: docker.endpoint in the daemon's configuration, --engine of coffer doctor".to_owned();
    if let (true, Some(other)) = (is_default(socket), others.first()) {
        let other = other.display();
        follows = format!(
            "{follows}. The socket {other} is there: `coffer doctor --engine {other}` says if cofferd can use its engine"
        );
    }
    let start = host.start_engine().filter(|_| is_default(socket));
    Finding::missing(TOPIC, found, follows).with_remedy(start)
}

/// Returns the names of the engine's runtimes.
fn runtime_names(info: &Value) -> Vec<&str> {
    let runtimes = info.get("Runtimes").and_then(Value::as_object);
    let mut names: Vec<&str> = runtimes.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}

fn is_gvisor(runtime: &str) -> bool {
    runtime.starts_with("runsc")
}

/// Reports the runtimes whose runs can have no connections out. `None` if there are none.
fn egress_in_gvisor(info: &Value) -> Option<Finding> {
    let names: Vec<&str> = runtime_names(info).into_iter().filter(|name| is_gvisor(name)).collect();
    let follows = "gVisor has a separate network stack, which the host cannot steer: runs with `egress` and this runtime \
                   are refused. Leave `runtime` out of a profile with `egress`; other runs are not affected";
    let found = || format!("not with {}", names.join(", "));
    (!names.is_empty()).then(|| Finding::limited("egress in gVisor", found(), follows))
}

fn runtimes(info: &Value, host: &Host) -> Finding {
    const TOPIC: &str = "runtimes";
    let names = runtime_names(info);
    let found = if names.is_empty() { "none told".to_owned() } else { names.join(", ") };
    let unlimited =
        |name: &&str| {
            let arguments = info["Runtimes"][*name]["runtimeArgs"].as_array();
            arguments.into_iter().flatten().filter_map(Value::as_str).any(|argument| {
                argument.trim_start_matches('-').trim_end_matches("=true") == "ignore-cgroups"
            })
        };
    let gvisor: Vec<&str> = names.into_iter().filter(|name| is_gvisor(name)).collect();
    if let Some(name) = gvisor.iter().find(|name| unlimited(name)) {
        let said = format!(
            "{name} ignores cgroups, so that no limit would hold: cofferd refuses its runs. Register it without --ignore-cgroups"
        );
        Finding::limited(TOPIC, found, said)
    } else if !gvisor.is_empty() {
        Finding::good(TOPIC, found)
    } else {
        Finding::limited(
            TOPIC,
            found,
            "without gVisor (runsc) runs share the host's kernel, and no profile can set `runtime: runsc`: \
             to register it see the book, \"gVisor\"",
        )
        .with_remedy(host.add_runsc())
    }
}

fn writable_root(info: &Value) -> Finding {
    const TOPIC: &str = "writable root";
    let driver = info.get("Driver").and_then(Value::as_str).unwrap_or("no driver told").to_owned();
    if matches!(driver.as_str(), "overlay2" | "overlayfs") {
        return Finding::good(TOPIC, format!("storage driver {driver}"));
    }
    let follows = "the layers of its images cannot be mounted again: runs of profiles with `root: writable-layer` are refused";
    Finding::limited(TOPIC, format!("storage driver {driver}"), follows)
}

/// Reports whether runs can be root of a user namespace.
///
/// The last part of the engine's data directory is the first id of its containers.
fn mapped_root(info: &Value) -> Finding {
    const TOPIC: &str = "root in a user namespace";
    if !security_options(info).contains(&"userns") {
        let follows = "the engine maps no users: runs of profiles with `root_in_user_namespace` are refused. To set `userns-remap` see the book, \"Root in a user namespace\"";
        return Finding::limited(TOPIC, "no", follows);
    }
    let directory = info.get("DockerRootDir").and_then(Value::as_str).unwrap_or_default();
    let ids = directory.rsplit('/').next().and_then(|name| name.split_once('.'));
    let first = |id: &str| id.parse::<u32>().ok().filter(|id| *id >= LOWEST_ID);
    let Some((uid, gid)) = ids.and_then(|(uid, gid)| first(uid).zip(first(gid))) else {
        let follows = "the engine maps users to ids that it does not report or that are below 65536, so no run would become ready. Give its user 65536 ids from 65536 on in /etc/subuid and /etc/subgid";
        return Finding::missing(TOPIC, "the ids of containers are unknown", follows);
    };
    Finding::good(TOPIC, format!("root of containers is user {uid}, group {gid}"))
}

fn engine_security(info: &Value) -> Finding {
    const TOPIC: &str = "engine security";
    let names = security_options(info);
    let found = if names.is_empty() { "no options told".to_owned() } else { names.join(", ") };
    if !names.contains(&"seccomp") {
        return Finding::missing(TOPIC, found, "the engine has no seccomp: no run would become ready");
    }
    Finding::good(TOPIC, found)
}

#[cfg(test)]
mod tests {
    use std::io;

    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;
    use crate::commands::{Gvisor, Services};
    use crate::finding::Verdict;

    #[test]
    fn engines_old_and_new() {
        let socket = Path::new("/s");
        let verdict = |value| engine(socket, Ok(value), None, &Host::default()).verdict;
        assert_eq!(verdict(json!({"Version": "20.10.24", "ApiVersion": "1.41"})), Verdict::Good);
        assert_eq!(verdict(json!({"Version": "29", "ApiVersion": "1.52"})), Verdict::Good);
        assert_eq!(verdict(json!({"Version": "18", "ApiVersion": "1.39"})), Verdict::Missing);
        assert_eq!(verdict(json!({"Version": 3})), Verdict::Limited);
        assert_eq!(verdict(json!([])), Verdict::Limited);
        let systemd = Host { dockerd: true, services: Services::Systemd, is_root: true, ..Host::default() };
        let other = no_answer(socket, "x", &[], &systemd);
        assert!(other.verdict == Verdict::Missing && other.remedy.is_none(), "{other:?}");
        let stopped = no_answer(Path::new(DEFAULT_SOCKET), "x", &[], &systemd);
        assert!(stopped.follows.unwrap().ends_with("run `systemctl enable --now docker`"));
    }

    #[test]
    fn an_engine_that_no_run_can_use_is_missing_with_the_reason() {
        let docker =
            || json!({"Version": "26.1.5", "ApiVersion": "1.45", "Components": [{"Name": "Engine"}]});
        let podman =
            json!({"Version": "4.3.1", "ApiVersion": "1.41", "Components": [{"Name": "Podman Engine"}]});
        let options = |names: &[&str]| json!({"SecurityOptions": names});
        for (version, info, verdict, found) in [
            (
                docker(),
                options(&["name=userns"]),
                Verdict::Good,
                "Docker 26.1.5, API 1.45, with userns-remap",
            ),
            (docker(), options(&["name=rootless"]), Verdict::Missing, "Docker 26.1.5, API 1.45, rootless"),
            (podman, options(&[]), Verdict::Missing, "Podman 4.3.1, API 1.41"),
        ] {
            let finding = engine(Path::new("/s"), Ok(version), Some(&info), &Host::default());
            assert_eq!((finding.verdict, &*finding.found), (verdict, found));
            let is_explained =
                finding.follows.is_some_and(|follows| follows.contains("no run would become ready"));
            assert_eq!(is_explained, verdict == Verdict::Missing, "{found}");
        }
    }

    #[test]
    fn without_docker_the_socket_of_another_engine_is_named() {
        let others = [PathBuf::from("/run/podman/podman.sock")];
        let follows = |socket: &str| {
            no_answer(Path::new(socket), "x", &others, &Host::default()).follows.unwrap_or_default()
        };
        let hint = "coffer doctor --engine /run/podman/podman.sock";
        assert!(follows(DEFAULT_SOCKET).contains(hint) && !follows("/s").contains(hint));
    }

    #[tokio::test]
    async fn an_engine_is_unusable_only_by_its_own_words() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine.sock");
        assert_eq!(unusable_engine(&socket).await, None);
        let listener = UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(async move {
            for answer in [
                json!({"Version": "26.1.5", "ApiVersion": "1.45"}),
                json!({"SecurityOptions": ["name=seccomp"]}),
                json!({"Version": "26.1.5", "ApiVersion": "1.45"}),
                json!({"SecurityOptions": ["name=seccomp", "name=rootless"]}),
            ] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _request = stream.read(&mut [0; 256]).await.unwrap();
                stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{answer}").as_bytes()).await.unwrap();
            }
        });
        assert_eq!(unusable_engine(&socket).await, None);
        let why = unusable_engine(&socket).await.unwrap();
        server.await.unwrap();
        assert!(
            why.starts_with("the engine is Docker 26.1.5, API 1.45, rootless: an engine without root"),
            "{why}"
        );
    }

    #[test]
    fn engine_features_become_findings() {
        assert_eq!(
            runtimes(&json!({"Runtimes": {"runsc": {}, "runc": {}}}), &Host::default()),
            Finding::good("runtimes", "runc, runsc")
        );
        let installed = Host { gvisor: Gvisor::Installed, ..Host::default() };
        let without = runtimes(&json!({"Runtimes": {"runc": {}}}), &installed);
        assert!(without.verdict == Verdict::Limited && without.remedy.is_some(), "{without:?}");
        for (argument, verdict) in [("--ignore-cgroups", Verdict::Limited), ("--network=none", Verdict::Good)]
        {
            let registered = json!({"Runtimes": {"runsc": {"runtimeArgs": [argument]}}});
            assert_eq!(runtimes(&registered, &Host::default()).verdict, verdict, "{argument}");
        }
        assert_eq!(runtimes(&json!({"Runtimes": 3}), &Host::default()).found, "none told");
        let security = |options: Value| engine_security(&json!({"SecurityOptions": options})).verdict;
        assert_eq!(security(json!(["name=seccomp,profile=default"])), Verdict::Good);
        assert_eq!(security(json!(["name=seccomp", "name=userns"])), Verdict::Good);
        assert_eq!(security(json!(["name=apparmor", 3])), Verdict::Missing);
        assert_eq!(security(json!(null)), Verdict::Missing);
    }

    #[test]
    fn each_runtime_without_egress_is_named_with_the_alternative() {
        let found = |runtimes: Value| egress_in_gvisor(&json!({"Runtimes": runtimes}));
        let finding = found(json!({"runsc-kvm": {}, "runc": {}, "runsc": {}})).unwrap();
        assert_eq!((finding.verdict, &*finding.found), (Verdict::Limited, "not with runsc, runsc-kvm"));
        assert!(finding.follows.unwrap().contains("Leave `runtime` out"));
        for without in [json!({"runc": {}, "crun": {}}), json!({}), json!(3), json!(null)] {
            assert_eq!(found(without), None);
        }
    }

    #[test]
    fn finding_names_the_root_of_containers() {
        let found = |options: Value, directory: &str| {
            mapped_root(&json!({"SecurityOptions": options, "DockerRootDir": directory}))
        };
        let maps = || json!(["name=seccomp,profile=default", "name=userns"]);
        let good = found(maps(), "/var/lib/docker/165536.231072");
        let said = "root of containers is user 165536, group 231072";
        assert_eq!(good, Finding::good("root in a user namespace", said));
        assert_eq!(found(json!(["name=seccomp"]), "/var/lib/docker/165536.165536").verdict, Verdict::Limited);
        for other in ["", "/var/lib/docker", "/srv/v1.2", "/srv/0.0", "/srv/165536.1000"] {
            assert_eq!(found(maps(), other).verdict, Verdict::Missing, "{other}");
        }
    }

    #[test]
    fn an_engine_that_this_user_may_not_ask_is_not_judged() {
        assert_eq!(NoAnswer::from(io::Error::from(io::ErrorKind::PermissionDenied)), NoAnswer::NotPermitted);
        let finding = not_permitted(Path::new("/nonexistent/docker.sock"), &Host::default());
        assert_eq!(finding.verdict, Verdict::Limited);
        assert!(finding.found.starts_with("not examined: you may not open /nonexistent/docker.sock"));
        assert!(!finding.follows.unwrap().contains("install"));
    }
}
