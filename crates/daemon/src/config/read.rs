//! Turns the document of the configuration into a [`Config`].
//!
//! Each problem is reported with the line of its value. A missing key has its default.

#![expect(
    clippy::disallowed_methods,
    reason = "directories that the configuration names; nothing in them is opened"
)]

use disk_quotas::Thresholds;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use bases::BaseBounds;
use checkpoints::CheckpointBounds;
use containers::Endpoint;
use daemon_log::{Format, Level};
use document::{At, Fields, size_or, time, time_or};
use gateway::limits::concurrency::Whole;
use host_launch::WeakerForm;
use images::ImageBounds;
use mirrors::MirrorBounds;
use runs::{HarnessOnBind, OnStop, RunBounds};
use store::OutcomeBounds;
use terminals::Limits;

use super::values::{number_or, path, path_or};
use super::{
    Config, Text, access, alerts, audit, console, egress, mcp, metrics, model_prices, notices, oidc, pool,
    secrets, tcp, traces,
};

/// Longest path of a Unix socket, bytes: it has to fit into `sockaddr_un`, unix(7).
const MAX_SOCKET_PATH: usize = 107;

/// Seconds of a day.
const DAY: u64 = 86_400;

pub(super) const KEYS: [&str; 36] = [
    "listen",
    "state_dir",
    "workspace_roots",
    "policy_dir",
    "harness_on_bind",
    "docker",
    "default_image",
    "images",
    "host_lane",
    "egress",
    "secrets",
    "model_prices",
    "pool",
    "approvals",
    "alerts",
    "notices",
    "push",
    "access",
    "oidc",
    "limits",
    "runs",
    "spool",
    "outcomes",
    "disk",
    "bases",
    "mirrors",
    "checkpoints",
    "sessions",
    "mcp",
    "metrics",
    "traces",
    "console",
    "node",
    "agent_check",
    "audit",
    "log",
];

/// Reads the whole configuration. A value with a problem is replaced by its default or left out.
pub(super) fn config(top: &At<'_>) -> Config {
    let top = top.fields(&KEYS);
    let listen = top.section("listen", &["unix", "tcp"]);
    let unix = listen.section("unix", &["path", "mode", "group"]);
    let state_dir = state_dir(&top);
    let policy_dir = top.get("policy_dir").and_then(path);
    let docker = top.section("docker", &["endpoint", "strict_engine"]);
    let approvals = top.section("approvals", &["timeout", "allow_self_approval"]);
    let images = top.section("images", &["max_size", "timeout"]);
    let runs = top.section("runs", &["on_stop", "max_ttl"]);
    let limits = top.section("limits", &["runs", "ended_runs", "calls", "calls_waiting", "connections"]);
    let spool = top.section("spool", &["max_total", "min_free"]);
    let log = top.section("log", &["level", "format"]);
    let (access, certified) = access::read(&top);
    let (tcp, issuers) = (tcp::read(&listen), oidc::read(&top));
    Config {
        digest: String::new(),
        text: Text::default(),
        socket: socket(&unix),
        socket_mode: unix.get("mode").and_then(socket_mode).unwrap_or(0o660),
        socket_group: unix.get("group").and_then(socket_group),
        metrics: metrics::read(&top, tcp.as_ref()),
        traces: traces::read(&top),
        console: console::read(&top, tcp.as_ref(), &issuers),
        notices: notices::read(&top),
        tcp,
        workspace_roots: roots(&top, &state_dir, policy_dir.as_deref()),
        state_dir,
        policy_dir,
        harness_on_bind: harness_on_bind(&top),
        engine: docker.get("endpoint").and_then(endpoint).unwrap_or_default(),
        strict_engine: docker.flag_or("strict_engine", false),
        busybox: path_or(&top.section("default_image", &["busybox"]), "busybox", "/bin/busybox"),
        images: ImageBounds {
            max_bytes: size_or(&images, "max_size", 1 << 20, 8 << 30),
            timeout: time_or(&images, "timeout", (1, DAY), 1_800),
        },
        accepted_jail: accepted_jail(&top),
        approval_timeout: approvals.get("timeout").and_then(|at| time(at, 1, 7 * DAY)),
        allow_self_approval: approvals.flag_or("allow_self_approval", false),
        webhooks: alerts::webhooks(&top.section("alerts", &["webhooks"])),
        access,
        certified,
        oidc: issuers,
        runs: RunBounds {
            living: number_or(&limits, "runs", 1..=10_000, 256) as usize,
            ended: number_or(&limits, "ended_runs", 1..=1_000_000, 50_000) as usize,
            max_ttl: runs.get("max_ttl").and_then(|at| time(at, 1, 366 * DAY)),
        },
        calls: Whole {
            running: number_or(&limits, "calls", 1..=65_536, 512),
            waiting: number_or(&limits, "calls_waiting", 0..=65_536, 2_048),
        },
        max_connections: number_or(&limits, "connections", 1..=65_536, 256) as usize,
        on_stop: on_stop(&runs),
        egress: egress::read(&top),
        secrets: secrets::read(&top),
        model_prices: model_prices::read(&top),
        pool: pool::read(&top),
        spool_max_total: size_or(&spool, "max_total", 1 << 20, 4 << 30),
        spool_min_free: size_or(&spool, "min_free", 0, 256 << 20),
        outcomes: outcomes(&top),
        disk: disk(&top),
        bases: bases(&top),
        mirrors: mirrors(&top),
        checkpoints: checkpoints(&top),
        sessions: sessions(&top),
        mcp: mcp::read(&top),
        node: node::Settings::read(&top),
        agent_check: agent_check::Settings::read(&top),
        audit: audit::read(&top),
        log_level: log_level(&log),
        log_format: log.get("format").and_then(|at| at.one_of(&Format::ALL)).unwrap_or(Format::Text),
    }
}

fn state_dir(top: &Fields<'_>) -> PathBuf {
    let state_dir = path_or(top, "state_dir", "/var/lib/cofferdam");
    if state_dir.exists() && !state_dir.is_dir() {
        top.at("state_dir").problem(format!("{} is not a directory", state_dir.display()));
    }
    state_dir
}

fn socket(unix: &Fields<'_>) -> PathBuf {
    let socket = path_or(unix, "path", "/run/cofferdam/cofferd.sock");
    if socket.symlink_metadata().is_ok_and(|found| !found.file_type().is_socket()) {
        unix.at("path").problem(format!("{} exists and is not a socket", socket.display()));
    }
    if socket.as_os_str().len() > MAX_SOCKET_PATH {
        let message = format!("is longer than {MAX_SOCKET_PATH} bytes, the system's limit for sockets");
        unix.at("path").problem(message);
    }
    socket
}

fn socket_mode(at: &At<'_>) -> Option<u32> {
    match u32::from_str_radix(at.text()?, 8) {
        Ok(mode) if mode & 0o002 != 0 => {
            at.problem("must not be writable by everybody: anyone who can connect can request runs");
            None
        }
        Ok(mode) if mode <= 0o777 => Some(mode),
        _ => {
            at.problem("must be an octal mode in quotes, such as \"0660\"");
            None
        }
    }
}

/// Reads a group of this host, by its name or its number.
fn socket_group(at: &At<'_>) -> Option<u32> {
    if at.is_number() {
        return at.number(0..=u64::from(u32::MAX - 1)).and_then(|gid| u32::try_from(gid).ok());
    }
    let name = at.text()?;
    let gid = std::fs::read_to_string("/etc/group").ok().and_then(|groups| group_of(&groups, name));
    if gid.is_none() {
        at.problem(format!(
            "there is no group {name} in /etc/group: `groupadd --system {name}` makes it, or give its number"
        ));
    }
    gid
}

/// Returns the number of a group, in the form of `/etc/group`.
fn group_of(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

fn endpoint(at: &At<'_>) -> Option<Endpoint> {
    let endpoint = Endpoint::parse(at.text()?).ok();
    if endpoint.is_none() {
        at.problem("must be a Unix socket, such as unix:///var/run/docker.sock");
    }
    endpoint
}

fn roots(top: &Fields<'_>, state_dir: &Path, policy_dir: Option<&Path>) -> Vec<PathBuf> {
    let (state_dir, policy_dir) = (real(state_dir), policy_dir.map(real));
    let read = |at: &At<'_>| {
        let root = path(at)?;
        let real = real(&root);
        if root == Path::new("/") {
            at.problem("must not be the whole file system");
        } else if state_dir.starts_with(&real) || real.starts_with(&state_dir) {
            at.problem("must not overlap state_dir: a run could reach the daemon's own files");
        } else if policy_dir.as_ref().is_some_and(|policy_dir| policy_dir.starts_with(&real)) {
            at.problem("must not contain policy_dir: a run could change the policy");
        } else if !root.is_dir() {
            at.problem(format!("{} is not a directory: create it or correct the path", root.display()));
        }
        Some(root)
    };
    top.items("workspace_roots").iter().filter_map(read).collect()
}

/// Returns the path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let resolved =
        |above: &Path| Some(std::fs::canonicalize(above).ok()?.join(path.strip_prefix(above).ok()?));
    path.ancestors().find_map(resolved).unwrap_or_else(|| path.to_owned())
}

fn accepted_jail(top: &Fields<'_>) -> Option<WeakerForm> {
    let form = WeakerForm::LandlockOnly;
    top.section("host_lane", &["accept"]).get("accept")?.one_of(&[(form.name(), form)])
}

fn harness_on_bind(top: &Fields<'_>) -> HarnessOnBind {
    let names = [HarnessOnBind::Deny, HarnessOnBind::Allow].map(|on_bind| (on_bind.name(), on_bind));
    top.get("harness_on_bind").and_then(|at| at.one_of(&names)).unwrap_or_default()
}

fn on_stop(runs: &Fields<'_>) -> OnStop {
    let names = [OnStop::End, OnStop::Leave].map(|on_stop| (on_stop.name(), on_stop));
    let given = runs.get("on_stop").and_then(|at| at.one_of(&names));
    given.unwrap_or(OnStop::End)
}

fn outcomes(top: &Fields<'_>) -> OutcomeBounds {
    let fields = top.section("outcomes", &["max_total", "max_age", "request_ids"]);
    let bounds = OutcomeBounds {
        max_total: size_or(&fields, "max_total", 1 << 20, 512 << 20),
        max_age: time_or(&fields, "max_age", (60, 3_660 * DAY), 30 * DAY),
        request_ids: time_or(&fields, "request_ids", (60, 30 * DAY), 3_600),
    };
    if bounds.request_ids > bounds.max_age {
        fields.at("request_ids").problem("must not be longer than outcomes.max_age");
    }
    bounds
}

fn disk(top: &Fields<'_>) -> Thresholds {
    let fields = top.section("disk", &["warn_free", "min_free"]);
    let disk = Thresholds {
        warn_free: size_or(&fields, "warn_free", 0, 1 << 30),
        min_free: size_or(&fields, "min_free", 0, 128 << 20),
    };
    if disk.warn_free < disk.min_free {
        fields
            .at("warn_free")
            .problem("must be at least disk.min_free: a warning comes before the disk is full");
    }
    disk
}

fn bases(top: &Fields<'_>) -> BaseBounds {
    let fields = top.section("bases", &["max_count", "max_per_principal", "max_bytes", "max_age"]);
    BaseBounds {
        max_count: number_or(&fields, "max_count", 1..=10_000, 64) as usize,
        max_per_principal: number_or(&fields, "max_per_principal", 1..=10_000, 32) as usize,
        max_bytes: size_or(&fields, "max_bytes", 1 << 20, 16 << 30),
        max_age: time_or(&fields, "max_age", (60, 3_660 * DAY), 30 * DAY),
    }
}

fn mirrors(top: &Fields<'_>) -> MirrorBounds {
    let fields = top.section("mirrors", &["max_count", "max_bytes", "max_age"]);
    MirrorBounds {
        max_count: number_or(&fields, "max_count", 1..=10_000, 64) as usize,
        max_bytes: size_or(&fields, "max_bytes", 4 << 20, 16 << 30),
        max_age: time_or(&fields, "max_age", (60, 3_660 * DAY), 30 * DAY),
    }
}

fn checkpoints(top: &Fields<'_>) -> CheckpointBounds {
    let keys = ["max_count", "max_per_run", "max_bytes", "max_bytes_per_principal", "max_age"];
    let fields = top.section("checkpoints", &keys);
    let max_bytes = size_or(&fields, "max_bytes", 1 << 20, 16 << 30);
    let bounds = CheckpointBounds {
        max_count: number_or(&fields, "max_count", 1..=100_000, 1_000) as usize,
        max_per_run: number_or(&fields, "max_per_run", 1..=10_000, 50) as usize,
        max_bytes,
        max_bytes_per_principal: size_or(&fields, "max_bytes_per_principal", 1 << 20, max_bytes / 2),
        max_age: time_or(&fields, "max_age", (60, 3_660 * DAY), 30 * DAY),
    };
    if bounds.max_bytes_per_principal > bounds.max_bytes {
        fields.at("max_bytes_per_principal").problem("must not be more than checkpoints.max_bytes");
    }
    bounds
}

fn sessions(top: &Fields<'_>) -> Limits {
    let keys = ["max_length", "idle_timeout", "max_recording", "per_run"];
    let fields = top.section("sessions", &keys);
    Limits {
        max_length: time_or(&fields, "max_length", (1, DAY), 8 * 3_600),
        idle_timeout: time_or(&fields, "idle_timeout", (1, DAY), 1_800),
        max_recording: size_or(&fields, "max_recording", 64 << 10, 64 << 20),
        // A worker has slots for eight sessions.
        per_run: number_or(&fields, "per_run", 1..=8, 4) as usize,
    }
}

fn log_level(log: &Fields<'_>) -> Level {
    let read = |at: &At<'_>| Level::parse(at.text()?).map_err(|problem| at.problem(problem)).ok();
    log.get("level").and_then(read).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use std::time::Duration;

    use bases::BaseBounds;
    use checkpoints::CheckpointBounds;
    use mirrors::MirrorBounds;
    use runs::{HarnessOnBind, OnStop};
    use store::OutcomeBounds;

    use super::super::testing::{keys, parse};

    #[test]
    fn a_group_is_found_by_its_name_or_is_a_number() {
        let groups = "root:x:0:\ncofferdam:x:990:alice,bob\nbad:x\n";
        let of = |name| super::group_of(groups, name);
        assert_eq!((of("cofferdam"), of("root"), of("bad"), of("coffer")), (Some(990), Some(0), None, None));
        let group =
            |text: &str| parse(&format!("listen: {{ unix: {{ group: {text} }} }}")).unwrap().socket_group;
        assert_eq!((group("root"), group("990")), (Some(0), Some(990)));
        for wrong in ["no-such-group", "-1", "5000000000"] {
            assert_eq!(
                keys(&format!("listen: {{ unix: {{ group: {wrong} }} }}")),
                ["listen.unix.group"],
                "{wrong}"
            );
        }
    }

    #[test]
    fn an_empty_file_means_the_strict_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.socket_mode, 0o660);
        assert!(!config.allow_self_approval);
        assert!(config.workspace_roots.is_empty());
        assert!(config.access.is_empty());
        assert_eq!(config.approval_timeout, None);
        assert_eq!(config.accepted_jail, None);
        assert_eq!(config.busybox, Path::new("/bin/busybox"));
        assert_eq!(config.on_stop, OnStop::End);
        assert_eq!(config.harness_on_bind, HarnessOnBind::Deny);
        assert_eq!((config.calls.running, config.calls.waiting), (512, 2_048));
        assert_eq!((config.spool_max_total, config.spool_min_free), (4 << 30, 256 << 20));
        let (hour, days) = (Duration::from_secs(3_600), Duration::from_secs(30 * 86_400));
        let outcomes = OutcomeBounds { max_total: 512 << 20, max_age: days, request_ids: hour };
        assert_eq!(config.outcomes, outcomes);
        assert_eq!((config.disk.warn_free, config.disk.min_free), (1 << 30, 128 << 20));
        let bases = BaseBounds { max_count: 64, max_per_principal: 32, max_bytes: 16 << 30, max_age: days };
        assert_eq!(config.bases, bases);
        assert_eq!(config.mirrors, MirrorBounds { max_count: 64, max_bytes: 16 << 30, max_age: days });
        let checkpoints = CheckpointBounds {
            max_count: 1_000,
            max_per_run: 50,
            max_bytes: 16 << 30,
            max_bytes_per_principal: 8 << 30,
            max_age: days,
        };
        assert_eq!(config.checkpoints, checkpoints);
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let text = "
listen: { unix: { path: relative.sock, mode: \"0666\" } }
state_dir: /var/lib/../x
workspace_roots: [/, /no/such/directory]
docker: { endpoint: \"tcp://1.2.3.4:2375\" }
default_image: { busybox: bin/busybox }
host_lane: { accept: anything }
pool: { min: 3, max: 2 }
approvals: { timeout: soon }
access: [{ uid: 5, roles: [king] }, { uid: 5, roles: [] }]
limits: { runs: 0, ended_runs: 0, calls: 0, calls_waiting: 65537 }
runs: { on_stop: pause }
harness_on_bind: yes
spool: { max_total: 4, min_free: 1XB }
outcomes: { max_total: 1, max_age: 1s, request_ids: 99d }
disk: { warn_free: 1MiB, min_free: 2MiB }
checkpoints: { max_bytes: 2MiB, max_bytes_per_principal: 3MiB }
sessions: { max_length: 2d, idle_timeout: 0s, max_recording: 1KiB, per_run: 9 }
log: { format: xml }
";
        assert_eq!(
            keys(text),
            [
                "listen.unix.path",
                "listen.unix.mode",
                "state_dir",
                "workspace_roots[0]",
                "workspace_roots[1]",
                "docker.endpoint",
                "default_image.busybox",
                "host_lane.accept",
                "pool.min",
                "approvals.timeout",
                "access[0].roles[0]",
                "access[1].uid",
                "limits.runs",
                "limits.ended_runs",
                "limits.calls",
                "limits.calls_waiting",
                "runs.on_stop",
                "harness_on_bind",
                "spool.max_total",
                "spool.min_free",
                "outcomes.max_total",
                "outcomes.max_age",
                "outcomes.request_ids",
                "disk.warn_free",
                "checkpoints.max_bytes_per_principal",
                "sessions.max_length",
                "sessions.idle_timeout",
                "sessions.max_recording",
                "sessions.per_run",
                "log.format",
            ]
        );
    }

    #[test]
    fn a_root_and_the_state_directory_must_not_overlap() {
        assert_eq!(keys("{state_dir: /tmp/state, workspace_roots: [/tmp]}"), ["workspace_roots[0]"]);
    }

    #[test]
    fn no_root_reaches_the_daemons_directories_by_a_link() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name).to_str().unwrap().to_owned();
        for name in ["real/state", "work"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::os::unix::fs::symlink(path("real"), path("above")).unwrap();
        std::os::unix::fs::symlink(path("real/state"), path("same")).unwrap();
        let of = |state: &str, root: &str| {
            keys(&format!("{{state_dir: {}, workspace_roots: [{}]}}", path(state), path(root)))
        };
        for (state, root) in [
            ("real/state", "above"),
            ("real/state", "same"),
            ("above/state", "real"),
            ("above/to-be-made", "real"),
        ] {
            assert_eq!(of(state, root), ["workspace_roots[0]"], "{state}, {root}");
        }
        let with_policy = |policy: &str| {
            let (state, root, policy) = (path("above/state"), path("work"), path(policy));
            format!("{{state_dir: {state}, policy_dir: {policy}, workspace_roots: [{root}]}}")
        };
        assert!(parse(&with_policy("policy")).is_ok());
        std::os::unix::fs::symlink(path("work"), path("other")).unwrap();
        assert_eq!(keys(&with_policy("other/policy")), ["workspace_roots[0]"]);
    }

    #[test]
    fn a_report_has_every_problem_with_its_line_and_a_suggestion() {
        let text = "\
listen:
  unix: { pth: /run/x.sock, mode: 0o660 }
state_dir: /var/lib/cofferdam
state_dir: /var/lib/other
workspace_roots: [/var/lib]
limits:
  runs: many
  cals: 3
access:
  - { uid: 7, roles: [auditer] }
  - { roles: operator }
audit: { segment_size: 1GB, keep: 64MiB }
sessions: 8h
on_stop: leave
";
        let report = parse(text).unwrap_err().to_string();
        assert_eq!(
            report,
            "13 problems in the configuration:
  cofferd.yaml:2: listen.unix.pth: unknown key (did you mean `path`?)
  cofferd.yaml:2: listen.unix.mode: expected text, found a number
  cofferd.yaml:4: state_dir: given more than once (keep one)
  cofferd.yaml:5: workspace_roots[0]: must not overlap state_dir: a run could reach the daemon's own files
  cofferd.yaml:7: limits.runs: expected a whole number, found text
  cofferd.yaml:8: limits.cals: unknown key (did you mean `calls`?)
  cofferd.yaml:10: access[0].roles[0]: unknown value `auditer` (did you mean `auditor`?)
  cofferd.yaml:11: access[1]: `uid` is missing
  cofferd.yaml:11: access[1].roles: expected a list, found text
  cofferd.yaml:12: audit.segment_size: must be a size from 64KiB to 1024TiB, such as 512MiB or 4GiB (did you mean `1GiB`?)
  cofferd.yaml:12: audit.keep: must be at least twice audit.segment_size, or all
  cofferd.yaml:13: sessions: expected a mapping, found text
  cofferd.yaml:14: on_stop: unknown key (known: listen, state_dir, workspace_roots, policy_dir, harness_on_bind, docker, default_image, images, host_lane, egress, secrets, model_prices, pool, approvals, alerts, notices, push, access, oidc, limits, runs, spool, outcomes, disk, bases, mirrors, checkpoints, sessions, mcp, metrics, traces, console, node, agent_check, audit, log)"
        );
    }

    #[test]
    fn invalid_yaml_is_one_problem() {
        for text in ["[1]", "a: b: c", "just text", "a: !tag b", &"[".repeat(100_000)] {
            assert_eq!(keys(text), [""], "{text}");
        }
    }

    #[test]
    fn printed_configuration_parses_back() {
        let text = "{host_lane: {accept: landlock-only}, default_image: {busybox: /opt/busybox}, approvals: {timeout: 90s}, spool: {max_total: 1536KiB, min_free: 0}, disk: {warn_free: 2GiB}, sessions: {max_length: 2h}, runs: {on_stop: leave}, harness_on_bind: allow, access: [{uid: 7, roles: [auditor]}], log: {format: json}}";
        let printed = parse(text).unwrap().to_string();
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
        assert!(printed.contains("timeout: 90s"), "{printed}");
        assert!(printed.contains("busybox: /opt/busybox"), "{printed}");
        assert!(printed.contains("accept: landlock-only"), "{printed}");
        assert!(printed.contains("max_length: 7200s"), "{printed}");
        assert!(printed.contains("warn_free: 2GiB"), "{printed}");
        assert!(printed.contains("on_stop: leave"), "{printed}");
        assert!(printed.contains("harness_on_bind: allow"), "{printed}");
    }
}
