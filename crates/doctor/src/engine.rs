//! Asks the container engine about itself, over its socket, with two bounded requests.
//!
//! The listener is not trusted: an answer is read up to a size and a deadline, and only a few of its fields are used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::commands::Host;
use crate::finding::Finding;
use crate::socket::{group_of, who_may_open};

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// Paths of the socket of an engine that a package installs.
const DEFAULT_SOCKETS: [&str; 2] = [DEFAULT_SOCKET, "/run/docker.sock"];
const DEADLINE: Duration = Duration::from_secs(5);
/// Largest answer that is read, bytes.
const LARGEST: u64 = 1 << 20;
/// Lowest user id that a container may have. Lower ids belong to people and services on most hosts.
const LOWEST_ID: u32 = 65_536;
/// The oldest API version that the driver supports.
const OLDEST_API: (u32, u32) = (1, 41);

pub(super) async fn examine(socket: Option<PathBuf>, host: &Host) -> Vec<Finding> {
    let socket = match socket.map_or_else(configured, Ok) {
        Ok(socket) => socket,
        Err(other) => {
            return vec![Finding::missing(
                "engine",
                format!("DOCKER_HOST is {other}"),
                "cofferd uses an engine on a Unix socket of this host: name it with --engine",
            )];
        }
    };
    let version = match get(&socket, "/version").await {
        Err(NoAnswer::NotPermitted) => return vec![not_permitted(&socket, host)],
        version => version.map_err(|error| error.to_string()),
    };
    let mut findings = vec![engine(&socket, version, host)];
    if let Ok(info) = get(&socket, "/info").await {
        let nowhere = Host::default();
        findings.push(runtimes(&info, if is_default(&socket) { host } else { &nowhere }));
        findings.extend(egress_in_gvisor(&info));
        findings.push(writable_root(&info));
        findings.push(mapped_root(&info));
        findings.push(engine_security(&info));
    }
    findings
}

/// Returns the engine's socket from the environment. The error is a `DOCKER_HOST` that names no Unix socket.
fn configured() -> Result<PathBuf, String> {
    match std::env::var("DOCKER_HOST") {
        Ok(host) if !host.is_empty() => host.strip_prefix("unix://").map(PathBuf::from).ok_or(host),
        _ => Ok(DEFAULT_SOCKET.into()),
    }
}

/// Reason why an engine gave no answer.
#[derive(Debug, PartialEq, Eq)]
enum NoAnswer {
    /// This user may not open the engine's socket.
    NotPermitted,
    Other(String),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            _ => Self::Other(error.to_string()),
        }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPermitted => "permission denied",
            Self::Other(why) => why,
        })
    }
}

/// Sends one GET and returns the answer as JSON, or the reason why there is none.
async fn get(socket: &Path, path: &'static str) -> Result<Value, NoAnswer> {
    let asked = async {
        let mut stream = UnixStream::connect(socket).await?;
        // HTTP/1.0: the answer ends with the connection and is never chunked.
        let request = format!("GET {path} HTTP/1.0\r\nHost: engine\r\nAccept: application/json\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LARGEST).read_to_end(&mut answer).await?;
        body(&answer).map_err(NoAnswer::Other)
    };
    let late = |_| Err(NoAnswer::Other("it does not answer in time".to_owned()));
    tokio::time::timeout(DEADLINE, asked).await.unwrap_or_else(late)
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

fn body(answer: &[u8]) -> Result<Value, String> {
    const NOT_HTTP: &str = "the program that answers there is not a container engine";
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or(NOT_HTTP)?;
    let (head, body) = answer.split_at(end);
    let mut status = head.split(|&b| b == b' ');
    if !status.next().is_some_and(|version| version.starts_with(b"HTTP/1.")) {
        return Err(NOT_HTTP.into());
    }
    if status.next() != Some(b"200") {
        return Err("it does not report its version".into());
    }
    serde_json::from_slice(body).map_err(|_| NOT_HTTP.into())
}

/// Returns true if the engine may be that of a package of this host, which commands here start and configure.
fn is_default(socket: &Path) -> bool {
    DEFAULT_SOCKETS.iter().any(|default| Path::new(default) == socket)
}

fn engine(socket: &Path, version: Result<Value, String>, host: &Host) -> Finding {
    const TOPIC: &str = "engine";
    let version = match version {
        Ok(version) => version,
        Err(why) => {
            return Finding::missing(
                TOPIC,
                format!("no answer on {}: {why}", socket.display()),
                "install and start Docker, or name its socket: docker.endpoint in the daemon's configuration, --engine of coffer doctor",
            )
            .with_remedy(host.start_engine().filter(|_| is_default(socket)));
        }
    };
    let text = |name: &str| version.get(name).and_then(Value::as_str).unwrap_or("?").to_owned();
    let (number, api) = (text("Version"), text("ApiVersion"));
    let found = format!("version {number}, API {api}");
    let api = api.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match api {
        Some(api) if api >= OLDEST_API => Finding::good(TOPIC, found),
        Some(_) => Finding::missing(TOPIC, found, "API 1.41 (Docker 20.10) or later is needed"),
        None => Finding::limited(TOPIC, found, "its API version is unknown; cofferd may refuse it"),
    }
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

/// Returns the names of the engine's security options.
fn security_options(info: &Value) -> Vec<&str> {
    let options = info.get("SecurityOptions").and_then(Value::as_array);
    let options = options.into_iter().flatten().filter_map(Value::as_str);
    options.filter_map(|option| option.split(',').find_map(|part| part.strip_prefix("name="))).collect()
}

fn engine_security(info: &Value) -> Finding {
    const TOPIC: &str = "engine security";
    let names = security_options(info);
    let found = if names.is_empty() { "no options told".to_owned() } else { names.join(", ") };
    if !names.contains(&"seccomp") {
        return Finding::missing(TOPIC, found, "the engine has no seccomp: no run would become ready");
    }
    if names.contains(&"rootless") {
        return Finding::limited(
            TOPIC,
            found,
            "with a rootless engine workspaces cannot be mounted into running containers, and no network of a run can be \
             entered: cold starts only, and runs with `egress` and forwarded ports are refused",
        );
    }
    Finding::good(TOPIC, found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::UnixListener;

    use super::*;
    use crate::commands::{Gvisor, Services};
    use crate::finding::Verdict;

    #[test]
    fn answers_good_and_hostile() {
        assert_eq!(body(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"Version\":\"1\"}"), Ok(json!({"Version": "1"})));
        for hostile in [
            &b""[..],
            b"\xff\xfe\r\n\r\n",
            b"HTTP/1.0\r\n\r\n",
            b"HTTP/1.1 500 No\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\n\r\n\x00\xff",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"SSH-2.0-OpenSSH 200\r\n\r\n{}",
        ] {
            assert!(body(hostile).is_err(), "{hostile:?}");
        }
        let deep = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'['; 100_000]].concat();
        assert!(body(&deep).is_err());
    }

    #[test]
    fn engines_old_and_new() {
        let socket = Path::new("/s");
        let verdict = |value| engine(socket, Ok(value), &Host::default()).verdict;
        assert_eq!(verdict(json!({"Version": "20.10.24", "ApiVersion": "1.41"})), Verdict::Good);
        assert_eq!(verdict(json!({"Version": "29", "ApiVersion": "1.52"})), Verdict::Good);
        assert_eq!(verdict(json!({"Version": "18", "ApiVersion": "1.39"})), Verdict::Missing);
        assert_eq!(verdict(json!({"Version": 3})), Verdict::Limited);
        assert_eq!(verdict(json!([])), Verdict::Limited);
        let systemd = Host { dockerd: true, services: Services::Systemd, is_root: true, ..Host::default() };
        let other = engine(socket, Err("x".into()), &systemd);
        assert!(other.verdict == Verdict::Missing && other.remedy.is_none(), "{other:?}");
        let stopped = engine(Path::new(DEFAULT_SOCKET), Err("x".into()), &systemd);
        assert!(stopped.follows.unwrap().ends_with("run `systemctl enable --now docker`"));
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
        assert_eq!(security(json!(["name=seccomp", "name=rootless"])), Verdict::Limited);
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

    #[tokio::test]
    async fn asks_over_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 256];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"Version\":\"x\"}").await.unwrap();
            String::from_utf8(request[..read].to_vec()).unwrap()
        });
        assert_eq!(get(&socket, "/version").await, Ok(json!({"Version": "x"})));
        assert!(server.await.unwrap().starts_with("GET /version HTTP/1.0\r\n"));
        assert!(get(&dir.path().join("nothing"), "/version").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_wait_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(get(&socket, "/version").await, Err(NoAnswer::Other("it does not answer in time".into())));
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
