//! Converts a `CreateRunRequest` into a run to launch. Everything that does not need the engine is checked here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::record::{Automatic, Limits, Spec, Workspace};
use crate::way_out;
use companions::{Requested, requested};
use containers::MountSpec;
use egress_rules::{Narrowed, Rules};
use identity::{BaseId, CheckpointId, Principal, RunId};
use jail::RootMode;
use operations::Reason;
use policy::{Policy, Profile};
use redact::Redactor;
use refusal::Refusal;
use timestamp::duration_from_wire;
use wire::v1;

use crate::variables;

const MAX_NAME: usize = 128;
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 256;
const MAX_PATH: usize = 4_000;
const MAX_WRITABLE_PATHS: usize = 32;
const MAX_WRITABLE_PATH: usize = 255;
/// Shortest lease. With less, a daemon under load would end runs whose owners renew as fast as they can.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// A run as the client requested it.
pub struct Parsed<'p> {
    pub spec: Spec,
    /// Values of the run's secret variables. `Spec` has their names.
    pub secrets: BTreeMap<String, String>,
    /// Rules that its connections have to pass beside those of the profile.
    pub egress: Vec<Rules>,
    /// Checkpoint on which it begins, with the workspace of the checkpoint's run.
    pub checkpoint: Option<CheckpointId>,
    /// Containers beside it, in groups of which each starts when all before it are ready.
    pub companions: Vec<Vec<Requested>>,
    pub profile: &'p Profile,
}

/// Parses and validates a request.
pub fn parse<'p>(
    request: v1::CreateRunRequest,
    policy: &'p Policy,
    principal: &Principal,
) -> Result<Parsed<'p>, Refusal> {
    let profile = policy.profile(&request.profile).ok_or_else(|| {
        if request.profile.is_empty() {
            return Refusal::invalid(
                "profile",
                format!("is missing: one of {}", names(policy.profile_names())),
            );
        }
        unknown("profile", policy.profile_names())
    })?;
    let role = role(request.role, policy, profile)?;
    if !is_name(&request.agent_id) {
        return Err(Refusal::invalid(
            "agent_id",
            format!("must be 1 to {MAX_NAME} characters of [A-Za-z0-9._:@/-]"),
        ));
    }
    let asked = Some(request.image.as_str()).filter(|image| !image.is_empty());
    if !profile.permits_image(asked) {
        let message =
            format!("image: profile {} does not allow this image; see its allowed_images", request.profile);
        let refusal = Refusal::new(Reason::ImageNotAllowed, message).with("profile", request.profile);
        return Err(refusal.with("hint", "`coffer image list` shows which profiles allow which images"));
    }
    let image = asked.map(str::to_owned).or_else(|| profile.image.clone()).unwrap_or_default();
    let ttl = duration("ttl", request.ttl.as_ref())?;
    let idle_timeout = duration("idle_timeout", request.idle_timeout.as_ref())?;
    let lease = duration("lease", request.lease.as_ref())?;
    if lease.is_some_and(|lease| lease < SHORTEST_LEASE) {
        return Err(Refusal::invalid("lease", "must be at least a second"));
    }
    variables::parse(&request.env, &request.secret_env, profile)?;
    let egress = way_out::narrowing(&request.egress_json, &Narrowed::new(profile.egress.clone()))?;
    let checkpoint = checkpoint(request.workspace.as_ref())?;
    let rules = std::iter::once(&profile.egress).chain(&egress);
    let names_of_companions = request.companions.iter().map(|asked| asked.name.clone()).collect();
    let companions = requested(request.companions, &profile.companions, rules)?;
    let spec = Spec {
        image,
        workspace: workspace(request.workspace)?,
        pkg_path: Some(request.pkg_path)
            .filter(|path| !path.is_empty())
            .map(|path| absolute("pkg_path", path))
            .transpose()?,
        agent_id: request.agent_id,
        role,
        limits: limits(&request.limits.unwrap_or_default(), profile)?,
        ttl,
        idle_timeout,
        labels: labels(request.labels)?,
        principal: principal.name.clone(),
        token: None,
        writable_paths: writable_paths(request.writable_paths, profile)?,
        profile: request.profile,
        env: request.env,
        secret_env: request.secret_env.keys().cloned().collect(),
        lease,
        forked_from: None,
        companions: names_of_companions,
        checkpoints: request.checkpoints.map(automatic).transpose()?,
    };
    check_automatic(&spec)?;
    let egress = egress.into_iter().collect();
    Ok(Parsed { spec, secrets: request.secret_env, egress, checkpoint, companions, profile })
}

fn automatic(asked: v1::AutomaticCheckpoints) -> Result<Automatic, Refusal> {
    let bad =
        || Refusal::invalid("checkpoints", format!("needs `every`, and `keep` up to {}", Automatic::MOST));
    Automatic::parse(asked).ok_or_else(bad)
}

fn check_automatic(spec: &Spec) -> Result<(), Refusal> {
    if spec.checkpoints.is_some() && matches!(spec.workspace, Workspace::Bind { .. }) {
        let message = "a directory of the host that is used in place (workspace.bind) has no checkpoints: use workspace.overlay";
        return Err(Refusal::invalid("checkpoints", message));
    }
    Ok(())
}

/// Returns the role that the request names, or else the profile's.
fn role(named: String, policy: &Policy, profile: &Profile) -> Result<String, Refusal> {
    let is_named = !named.is_empty();
    let role = if is_named { named } else { profile.default_role().to_owned() };
    if policy.role(&role).is_some() {
        return Ok(role);
    }
    if is_named {
        return Err(unknown("role", policy.role_names()));
    }
    let message = format!(
        "role: the profile has no default_role, and the policy no role {role}; name one of {}",
        names(policy.role_names())
    );
    Err(Refusal::new(Reason::NotFound, message).with("resource", "role"))
}

/// Hides secrets in the labels' values. Refuses secrets in plain variables and in names that the client chose, and refuses addresses with a
/// password as a path or image.
///
/// A run's record is kept, listed and audited as the client requested it.
pub fn hide_secrets(request: &mut v1::CreateRunRequest, redactor: &Redactor) -> Result<(), Refusal> {
    use v1::workspace::Source;
    let source = request.workspace.as_ref().and_then(|workspace| workspace.source.as_ref());
    let (field, path, revision) = match source {
        Some(Source::Bind(bind)) => ("workspace.bind.path", bind.path.as_str(), ""),
        Some(Source::Overlay(overlay)) => ("workspace.overlay.path", overlay.path.as_str(), ""),
        Some(Source::Clone(clone)) => {
            ("workspace.clone.repository", clone.repository.as_str(), clone.revision.as_str())
        }
        Some(Source::Managed(_) | Source::Base(_) | Source::Checkpoint(_)) | None => ("workspace", "", ""),
    };
    let texts = [
        (field, path),
        ("workspace.clone.revision", revision),
        ("pkg_path", &request.pkg_path),
        ("image", &request.image),
    ];
    let paths = request.writable_paths.iter().map(|path| ("writable_paths", path.as_str()));
    let images = request.companions.iter().map(|companion| ("companions", companion.image.as_str()));
    for (field, text) in texts.into_iter().chain(paths).chain(images) {
        has_no_password(field, text, redactor)?;
    }
    let labels = request.labels.keys().map(|name| ("labels", name));
    let secrets = request.secret_env.keys().map(|name| ("secret_env", name));
    for (field, name) in labels.chain(secrets).chain([("agent_id", &request.agent_id)]) {
        if redactor.whole(name).1 > 0 {
            let message = "a name looks like a secret; names are stored and shown, so choose another one";
            return Err(Refusal::invalid(field, message));
        }
    }
    for (name, value) in &request.env {
        if redactor.whole(&format!("{name}={value}")).1 > 0 {
            let name = if is_name(name) { name } else { "a variable" };
            let message =
                format!("{name} looks like a secret, and would be stored and shown: give it in secret_env");
            return Err(Refusal::invalid("env", message));
        }
    }
    for (name, value) in &mut request.labels {
        // Some secrets are recognised by the text before them.
        let known = redactor.whole(&format!("{name}={value}"));
        if known.1 > 0 {
            known.0.strip_prefix(&format!("{name}=")).unwrap_or("[REDACTED]").clone_into(value);
        }
    }
    Ok(())
}

/// Refuses an address with a password, in a text that is stored, shown and recorded as the client sent it.
pub fn has_no_password(field: &'static str, text: &str, redactor: &Redactor) -> Result<(), Refusal> {
    if text.contains("://") && redactor.whole(text).1 > 0 {
        let message =
            "contains what looks like a password or token, which would be stored and shown: leave it out";
        return Err(Refusal::invalid(field, message));
    }
    Ok(())
}

fn unknown<'a>(what: &'static str, known: impl Iterator<Item = &'a str>) -> Refusal {
    Refusal::new(Reason::NotFound, format!("{what}: the policy has no such {what}; it has {}", names(known)))
        .with("resource", what)
}

fn names<'a>(known: impl Iterator<Item = &'a str>) -> String {
    known.collect::<Vec<_>>().join(", ")
}

pub(crate) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:@/-".contains(&byte))
}

/// Returns the checkpoint that a request names as its workspace.
fn checkpoint(workspace: Option<&v1::Workspace>) -> Result<Option<CheckpointId>, Refusal> {
    let Some(v1::workspace::Source::Checkpoint(named)) = workspace.and_then(|asked| asked.source.as_ref())
    else {
        return Ok(None);
    };
    let bad = |_| Refusal::invalid("workspace.checkpoint.checkpoint_id", "is not the id of a checkpoint");
    CheckpointId::parse(&named.checkpoint_id).map(Some).map_err(bad)
}

fn workspace(workspace: Option<v1::Workspace>) -> Result<Workspace, Refusal> {
    use v1::workspace::Source;
    let source = workspace.and_then(|workspace| workspace.source);
    Ok(
        match source.ok_or_else(|| {
            Refusal::invalid("workspace", "is missing: one of bind, managed, clone, overlay")
        })? {
            Source::Bind(bind) => Workspace::Bind { path: absolute("workspace.bind.path", bind.path)? },
            // The checkpoint knows which.
            Source::Checkpoint(_) => Workspace::Managed,
            Source::Managed(managed) if managed.workspace_id.is_empty() => Workspace::Managed,
            Source::Managed(managed) => {
                let workspace = RunId::parse(&managed.workspace_id);
                let bad =
                    |_| Refusal::invalid("workspace.managed.workspace_id", "is not the id of a workspace");
                Workspace::Kept { workspace: workspace.map_err(bad)? }
            }
            Source::Overlay(overlay) => {
                Workspace::Overlay { path: absolute("workspace.overlay.path", overlay.path)? }
            }
            Source::Base(base) => {
                let bad = |_| Refusal::invalid("workspace.base.base_id", "is not the id of a base");
                Workspace::Base { base: BaseId::parse(&base.base_id).map_err(bad)? }
            }
            Source::Clone(clone) => Workspace::Clone {
                repository: absolute("workspace.clone.repository", clone.repository)?,
                revision: revision("workspace.clone.revision", clone.revision)?,
            },
        },
    )
}

/// Parses a branch, tag or commit. An empty text is HEAD.
pub fn revision(field: &'static str, revision: String) -> Result<Option<String>, Refusal> {
    let plain = revision.len() <= 256
        && !revision.starts_with('-')
        && revision.chars().all(|c| !c.is_control() && !c.is_whitespace());
    if !plain {
        return Err(Refusal::invalid(field, "is not a branch, tag or commit"));
    }
    Ok(Some(revision).filter(|revision| !revision.is_empty()))
}

/// Parses an absolute path of the daemon's host.
pub fn absolute(field: &'static str, path: String) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(path);
    if path.is_absolute() && path.as_os_str().len() <= MAX_PATH {
        return Ok(path);
    }
    Err(Refusal::invalid(field, "must be an absolute path on the daemon's host"))
}

/// Checks the directories of a writable root. Directories that the container's safety depends on, or that every run has, are refused.
fn writable_paths(asked: Vec<String>, profile: &Profile) -> Result<Vec<String>, Refusal> {
    let refused = |why: String| Err(Refusal::invalid("writable_paths", why));
    if !asked.is_empty() && profile.root == RootMode::ReadOnly {
        return refused(
            "needs a profile with `root: writable-layer`; this one has a read-only root".to_owned(),
        );
    }
    if asked.len() > MAX_WRITABLE_PATHS {
        return refused(format!("has more than {MAX_WRITABLE_PATHS} paths"));
    }
    let is_plain = |path: &str| {
        let Some(below) = path.strip_prefix('/').filter(|_| path.len() <= MAX_WRITABLE_PATH) else {
            return false;
        };
        let mut names = below.split('/');
        let is_shown = names.next().is_some_and(|top| MountSpec::of_root(Path::new("/"), top).is_some());
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(char::is_control);
        is_shown && names.all(is_name)
    };
    if asked.iter().all(|path| is_plain(path)) {
        return Ok(asked);
    }
    refused(format!(
        "must be absolute paths of at most {MAX_WRITABLE_PATH} bytes without `.`, `..`, `//` and a `/` at the end, outside of /proc, \
         /sys, /dev, /tmp and the run's mounts; the first name has letters, digits and `._+@-` only"
    ))
}

/// Returns the profile's limits, lowered where the client asks for less. A request for more is refused, not reduced silently.
pub(crate) fn limits(asked: &v1::Limits, profile: &Profile) -> Result<Limits, Refusal> {
    let most = &profile.limits;
    let disk_bytes = lowered("limits.disk_bytes", asked.disk_bytes, 1 << 20, most.disk_mib << 20)?;
    Ok(Limits {
        memory_bytes: lowered("limits.memory_bytes", asked.memory_bytes, 16 << 20, most.memory_mib << 20)?,
        cpu_millis: small(lowered("limits.cpu_millis", asked.cpu_millis.into(), 50, most.cpu_millis)?),
        pids: small(lowered("limits.pids", asked.pids.into(), 8, most.pids)?),
        file_size_bytes: lowered(
            "limits.file_size_bytes",
            asked.file_size_bytes,
            1,
            most.file_size_mib << 20,
        )?
        // No single file may exceed the quota of all files.
        .min(disk_bytes),
        open_files: small(lowered("limits.open_files", asked.open_files.into(), 32, most.open_files)?),
        disk_bytes,
        disk_files: lowered("limits.disk_files", asked.disk_files, 100, most.disk_files)?,
        output_bytes: most.output_mib << 20,
    })
}

fn lowered(field: &'static str, asked: u64, least: u64, most: u64) -> Result<u64, Refusal> {
    match asked {
        0 => Ok(most),
        asked if asked > most => {
            Err(Refusal::invalid(field, format!("is above the profile's limit of {most}")))
        }
        asked if asked < least => {
            Err(Refusal::invalid(field, format!("is below {least}, too little to run anything")))
        }
        asked => Ok(asked),
    }
}

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

pub(crate) fn duration(
    field: &'static str,
    duration: Option<&wire::Duration>,
) -> Result<Option<Duration>, Refusal> {
    let Some(duration) = duration else { return Ok(None) };
    match duration_from_wire(duration) {
        Some(duration) => Ok(Some(duration)),
        None => Err(Refusal::invalid(field, "must be more than zero and at most a year")),
    }
}

fn labels(labels: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal> {
    let plain = |text: &String| text.len() <= MAX_LABEL && !text.chars().any(char::is_control);
    if labels.len() > MAX_LABELS
        || !labels.iter().all(|(name, value)| !name.is_empty() && plain(name) && plain(value))
    {
        return Err(Refusal::invalid(
            "labels",
            format!(
                "must be at most {MAX_LABELS}, names and values at most {MAX_LABEL} characters without control characters"
            ),
        ));
    }
    Ok(labels.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l1_a_secret_is_hidden_as_the_value_of_a_label_and_refused_as_a_name() {
        let redactor = Redactor::default();
        let token = format!("ghp_{}", "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD3fG6");
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let harmless = v1::CreateRunRequest {
            agent_id: "reviewer-0192a7c0-0000-7000-8000-000000000001".to_owned(),
            labels: one("team", &token),
            secret_env: one("API_TOKEN", &token),
            ..Default::default()
        };
        let mut request = harmless.clone();
        hide_secrets(&mut request, &redactor).unwrap();
        assert!(!request.labels["team"].contains(&token), "{:?}", request.labels);
        for (field, mut request) in [
            ("labels", v1::CreateRunRequest { labels: one(&token, "x"), ..harmless.clone() }),
            ("secret_env", v1::CreateRunRequest { secret_env: one(&token, "x"), ..harmless.clone() }),
            ("agent_id", v1::CreateRunRequest { agent_id: token.clone(), ..harmless }),
        ] {
            let refused = hide_secrets(&mut request, &redactor).unwrap_err();
            assert_eq!(refused.metadata, [("field".into(), field.to_owned())]);
            assert!(!refused.message.contains(&token), "{}", refused.message);
        }
    }
}
