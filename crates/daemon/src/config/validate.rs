//! Raw → [`Config`], collecting every problem on the way.

#![expect(
    clippy::disallowed_methods,
    reason = "directories that the configuration names; nothing in them is opened"
)]

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use gateway::limits::concurrency::Whole;
use hand::WeakerForm;

use super::units::{duration, show_size, size};
use super::{Config, Problem, Problems, raw};
use crate::rpc::{Role, Roles};
use crate::runs::OnStop;
use crate::terminal::Limits;

/// A Unix socket's path has to fit into `sockaddr_un`, unix(7).
const MAX_SOCKET_PATH: usize = 107;

/// Larger sizes are not meant.
const MAX_SIZE: u64 = 1 << 50;

pub(super) struct Found(Vec<Problem>);

impl Found {
    pub(super) fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { key: key.into(), message: message.into() });
    }
}

pub(super) fn validate(raw: raw::Config) -> Result<Config, Problems> {
    let mut found = Found(Vec::new());

    let socket = absolute(&mut found, "listen.unix.path", raw.listen.unix.path);
    if socket.as_os_str().len() > MAX_SOCKET_PATH {
        found.add(
            "listen.unix.path",
            format!("is longer than {MAX_SOCKET_PATH} bytes, the system's limit for sockets"),
        );
    }
    let socket_mode = socket_mode(&mut found, &raw.listen.unix.mode);
    let state_dir = absolute(&mut found, "state_dir", raw.state_dir);
    let workspace_roots = roots(&mut found, raw.workspace_roots, &state_dir);
    let policy_dir = raw.policy_dir.map(|path| absolute(&mut found, "policy_dir", path));

    if !raw.docker.endpoint.strip_prefix("unix://").is_some_and(|path| path.starts_with('/')) {
        found.add("docker.endpoint", "must be a Unix socket, such as unix:///var/run/docker.sock");
    }
    let busybox = absolute(&mut found, "default_image.busybox", raw.default_image.busybox);
    let accepted_jail = raw.host_lane.accept.and_then(|name| {
        let form = WeakerForm::parse(&name);
        if form.is_none() {
            found.add(
                "host_lane.accept",
                "must be landlock-only; leave it out to have the whole jail or none",
            );
        }
        form
    });
    if raw.pool.min > 0 || raw.pool.max > 0 {
        found.add(
            "pool",
            "warm containers are not there yet: set min and max to 0, every start is a cold one",
        );
    }
    let approval_timeout = raw.approvals.timeout.and_then(|timeout| {
        let sensible = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);
        let timeout = duration(&timeout).filter(|timeout| sensible.contains(timeout));
        if timeout.is_none() {
            found.add("approvals.timeout", "must be from 1s to 7d, such as 30s, 5m or 1h");
        }
        timeout
    });
    let webhooks = super::alerts::webhooks(&mut |key, message| found.add(key, message), raw.alerts.webhooks);
    let access = access(&mut found, raw.access);
    let max_runs = within(&mut found, "limits.runs", raw.limits.runs, 1, 10_000);
    let calls = calls(&mut found, &raw.limits);
    let max_connections = within(&mut found, "limits.connections", raw.limits.connections, 1, 65_536);
    let on_stop = OnStop::parse(&raw.runs.on_stop).unwrap_or_else(|| {
        found.add("runs.on_stop", "must be end or leave");
        OnStop::End
    });
    let spool_max_total = bytes(&mut found, "spool.max_total", &raw.spool.max_total, 1 << 20);
    let spool_min_free = bytes(&mut found, "spool.min_free", &raw.spool.min_free, 0);
    let sessions = sessions(&mut found, &raw.sessions);
    let mcp = super::mcp::validate(&mut found, raw.mcp);
    let audit = super::audit::validate(&mut found, raw.audit);
    if raw.log.level.parse::<tracing_subscriber::filter::Targets>().is_err() {
        found
            .add("log.level", "must be error, warn, info, debug, trace or a list such as info,cofferd=debug");
    }
    if !["text", "json"].contains(&raw.log.format.as_str()) {
        found.add("log.format", "must be text or json");
    }

    let config = Config {
        socket,
        socket_mode,
        state_dir,
        workspace_roots,
        policy_dir,
        docker_endpoint: raw.docker.endpoint,
        strict_engine: raw.docker.strict_engine,
        busybox,
        accepted_jail,
        approval_timeout,
        allow_self_approval: raw.approvals.allow_self_approval,
        webhooks,
        access,
        max_runs,
        calls,
        max_connections,
        on_stop,
        spool_max_total,
        spool_min_free,
        sessions,
        mcp,
        audit,
        log_level: raw.log.level,
        log_json: raw.log.format == "json",
    };
    if found.0.is_empty() { Ok(config) } else { Err(Problems(found.0)) }
}

pub(super) fn absolute(found: &mut Found, key: &str, path: PathBuf) -> PathBuf {
    let plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    if !plain {
        found.add(key, "must be an absolute path without `..`");
    }
    path
}

fn socket_mode(found: &mut Found, mode: &str) -> u32 {
    match u32::from_str_radix(mode, 8) {
        Ok(mode) if mode & 0o002 != 0 => {
            found.add("listen.unix.mode", "must not let everybody write: who may connect may ask for runs");
            mode
        }
        Ok(mode) if mode <= 0o777 => mode,
        _ => {
            found.add("listen.unix.mode", "must be an octal mode in quotes, such as \"0660\"");
            0
        }
    }
}

fn roots(found: &mut Found, roots: Vec<PathBuf>, state_dir: &Path) -> Vec<PathBuf> {
    let mut valid = Vec::new();
    for (i, root) in roots.into_iter().enumerate() {
        let key = format!("workspace_roots[{i}]");
        let root = absolute(found, &key, root);
        if root == Path::new("/") {
            found.add(&key, "must not be the whole file system");
        } else if state_dir.starts_with(&root) || root.starts_with(state_dir) {
            found.add(&key, "must not overlap state_dir: a run could reach the daemon's own files");
        } else if !root.is_dir() {
            found.add(&key, format!("{} is not a directory: create it or correct the path", root.display()));
        }
        valid.push(root);
    }
    valid
}

fn access(found: &mut Found, access: Vec<raw::Access>) -> Vec<(u32, Roles)> {
    let mut granted: Vec<(u32, Roles)> = Vec::new();
    for (i, entry) in access.into_iter().enumerate() {
        if granted.iter().any(|(uid, _)| *uid == entry.uid) {
            found.add(format!("access[{i}].uid"), format!("{} is listed twice", entry.uid));
        }
        let mut roles = Roles::none();
        for name in &entry.roles {
            match Role::parse(name) {
                Some(role) => roles = roles.with(role),
                None => found.add(
                    format!("access[{i}].roles"),
                    format!("{name:?} is not one of operator, approver, director, orchestrator, auditor"),
                ),
            }
        }
        granted.push((entry.uid, roles));
    }
    granted
}

fn calls(found: &mut Found, raw: &raw::Limits) -> Whole {
    let mut number = |key: &str, value: u32, least: u32| {
        within(found, key, value, least, 65_536);
        value
    };
    Whole {
        running: number("limits.calls", raw.calls, 1),
        waiting: number("limits.calls_waiting", raw.calls_waiting, 0),
    }
}

pub(super) fn within(found: &mut Found, key: &str, value: u32, least: u32, most: u32) -> usize {
    if !(least..=most).contains(&value) {
        found.add(key, format!("must be from {least} to {most}"));
    }
    value as usize
}

fn sessions(found: &mut Found, raw: &raw::Sessions) -> Limits {
    let mut time = |key: &str, written: &str| {
        let sensible = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
        duration(written).filter(|time| sensible.contains(time)).unwrap_or_else(|| {
            found.add(key, "must be from 1s to 1d, such as 30m or 8h");
            Duration::ZERO
        })
    };
    Limits {
        max_length: time("sessions.max_length", &raw.max_length),
        idle_timeout: time("sessions.idle_timeout", &raw.idle_timeout),
        max_recording: bytes(found, "sessions.max_recording", &raw.max_recording, 64 << 10),
        // A worker has room for eight.
        per_run: within(found, "sessions.per_run", raw.per_run, 1, 8),
    }
}

pub(super) fn bytes(found: &mut Found, key: &str, written: &raw::Size, least: u64) -> u64 {
    let bytes = match written {
        raw::Size::Bytes(bytes) => Some(*bytes),
        raw::Size::Text(text) => size(text),
    };
    bytes.filter(|bytes| (least..=MAX_SIZE).contains(bytes)).unwrap_or_else(|| {
        let (least, most) = (show_size(least), show_size(MAX_SIZE));
        found.add(key, format!("must be from {least} to {most}, such as 512MiB or 4GiB"));
        0
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse::parse;
    use crate::runs::OnStop;

    fn keys(text: &str) -> Vec<String> {
        parse(text).unwrap_err().0.into_iter().map(|problem| problem.key).collect()
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
        assert_eq!((config.calls.running, config.calls.waiting), (512, 2_048));
        assert_eq!((config.spool_max_total, config.spool_min_free), (4 << 30, 256 << 20));
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
pool: { min: 1, max: 2 }
approvals: { timeout: soon }
access: [{ uid: 5, roles: [king] }, { uid: 5, roles: [] }]
limits: { runs: 0, calls: 0, calls_waiting: 65537 }
runs: { on_stop: pause }
spool: { max_total: 4, min_free: 1XB }
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
                "pool",
                "approvals.timeout",
                "access[0].roles",
                "access[1].uid",
                "limits.runs",
                "limits.calls",
                "limits.calls_waiting",
                "runs.on_stop",
                "spool.max_total",
                "spool.min_free",
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
    fn unknown_and_duplicate_keys_are_errors() {
        for text in [
            "state_dri: /x",
            "listen: { unix: { pth: /x } }",
            "state_dir: /a\nstate_dir: /b",
            "[1]",
            "a: b: c",
        ] {
            assert_eq!(keys(text), [""], "{text}");
        }
        assert_eq!(keys(&"[".repeat(100_000)), [""]);
    }

    #[test]
    fn what_is_printed_is_the_same_configuration() {
        let text = "{host_lane: {accept: landlock-only}, default_image: {busybox: /opt/busybox}, approvals: {timeout: 90s}, spool: {max_total: 1536KiB, min_free: 0}, sessions: {max_length: 2h}, runs: {on_stop: leave}, access: [{uid: 7, roles: [auditor]}], log: {format: json}}";
        let printed = parse(text).unwrap().to_string();
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
        assert!(printed.contains("timeout: 90s"), "{printed}");
        assert!(printed.contains("busybox: /opt/busybox"), "{printed}");
        assert!(printed.contains("accept: landlock-only"), "{printed}");
        assert!(printed.contains("max_length: 7200s"), "{printed}");
        assert!(printed.contains("on_stop: leave"), "{printed}");
    }
}
