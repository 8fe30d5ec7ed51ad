//! Reads profiles from a tree of values. A missing value has the strict default.

use std::collections::BTreeMap;

use jail::{MountMode, RootMode, TmpMode};
use operations::deny::DenyList;
use operations::{Bounds, CommandLimits, transport};

use crate::model::{
    Author, Background, CallBounds, ContainerLimits, ContainerPaths, ExecPolicy, Forward, Profile,
};
use crate::read_approvals::{ApprovalPolicy, approvals};
use crate::read_companions::companions;
use crate::read_egress::egress;
use crate::read_exec::{VERDICTS, rules};
use crate::read_images::reference;
use crate::read_limits::{caps, rate_limits};
use crate::{
    Form, Risk, Verdict, holding::EXEC_READ_ONLY, names, own_kernel, own_risk::default_risk, paths,
    rules::ExecRules, words_alone,
};
use document::{At, Fields};

pub(super) const RISKS: [(&str, Risk); 4] =
    [("low", Risk::Low), ("medium", Risk::Medium), ("high", Risk::High), ("critical", Risk::Critical)];

pub(super) fn profile(at: &At<'_>) -> Profile {
    let fields = at.fields(&[
        "description",
        "default_role",
        "image",
        "allowed_images",
        "runtime",
        "workspace",
        "root",
        "root_in_user_namespace",
        "tmp",
        "container_paths",
        "traceparent",
        "unattended",
        "limits",
        "operations",
        "risk",
        "exec",
        "paths",
        "bounds",
        "rate_limits",
        "concurrency",
        "approvals",
        "commit",
        "egress",
        "forward",
        "companions",
    ]);
    let modes = [("read-only", MountMode::ReadOnly), ("read-write", MountMode::ReadWrite)];
    let risk = fields.get("risk").map_or_else(BTreeMap::new, risks);
    let exec = exec(&section(&fields, "exec", &EXEC), fields.get("exec"));
    let approvals = approvals(fields.get("approvals"));
    let root = fields.get("root").map_or_else(RootMode::default, |at| root(at, &exec, &approvals));
    let operations =
        fields.required("operations").map_or_else(BTreeMap::new, |at| operations(at, exec.deny_list, &risk));
    let container_paths =
        fields.get("container_paths").and_then(|at| at.one_of(&CONTAINER_PATHS)).unwrap_or_default();
    let egress = egress(fields.get("egress"));
    let profile = Profile {
        companions: companions(fields.get("companions"), &egress),
        description: fields.text_or("description", ""),
        default_role: fields.get("default_role").and_then(At::text).map(str::to_owned),
        image: fields.get("image").and_then(|at| reference(at, false)),
        allowed_images: fields
            .get("allowed_images")
            .map_or_else(Vec::new, |at| at.items().iter().filter_map(|item| reference(item, true)).collect()),
        runtime: fields.get("runtime").and_then(|at| reference(at, false)),
        workspace: fields.get("workspace").and_then(|at| at.one_of(&modes)).unwrap_or(MountMode::ReadOnly),
        root,
        root_in_user_namespace: fields.flag_or("root_in_user_namespace", false),
        tmp: fields.get("tmp").and_then(|at| at.one_of(&TMP)).unwrap_or_default(),
        container_paths,
        traceparent: fields.flag_or("traceparent", false),
        unattended: fields.flag_or("unattended", false),
        limits: limits(&section(&fields, "limits", &LIMITS)),
        operations,
        risk,
        exec,
        paths: fields
            .get("paths")
            .map_or_else(Vec::new, |at| paths::rules(at, container_paths == ContainerPaths::Allow)),
        bounds: bounds(&section(&fields, "bounds", &BOUNDS)),
        rate_limits: rate_limits(fields.get("rate_limits")),
        concurrency: caps(fields.get("concurrency")),
        approvals,
        commit: author(&section(&fields, "commit", &["author_name", "author_email"])),
        egress,
        forward: fields.get("forward").and_then(|at| at.one_of(&FORWARD)).unwrap_or_default(),
    };
    if let Some(at) = fields.get("runtime") {
        own_kernel::check(at, &profile);
    }
    if let Some(at) = fields.get("companions")
        && profile.runtime.as_deref().is_some_and(own_kernel::has_own_kernel)
    {
        at.problem(
            "need a run whose connections can be steered, which gVisor (`runtime: runsc`) does not have",
        );
    }
    words_alone::check(at, &profile);
    if let Some(at) = fields.get("root_in_user_namespace").filter(|_| profile.root_in_user_namespace) {
        root_in_user_namespace(at, profile.root);
    }
    profile
}

/// Rejects root in a read-only image: it would be of no use, and would only have more rights in the workspace.
fn root_in_user_namespace(at: &At<'_>, root: RootMode) {
    if root == RootMode::ReadOnly {
        at.problem_hint(
            "has an effect only with a writable root",
            Some("set `root: writable-layer`, or leave this out".to_owned()),
        );
    }
}

const LIMITS: [&str; 10] = [
    "memory_mib",
    "cpu_millis",
    "pids",
    "file_size_mib",
    "open_files",
    "tmp_mib",
    "shm_mib",
    "disk_mib",
    "disk_files",
    "output_mib",
];
const EXEC: [&str; 10] = [
    "background",
    "deny_list",
    "deny",
    "read_only_commands",
    "rules",
    "default",
    "env",
    "env_paths",
    "default_timeout_s",
    "max_timeout_s",
];
const BOUNDS: [&str; 9] = [
    "max_argv_bytes",
    "max_stdin_bytes",
    "max_read_bytes",
    "max_write_bytes",
    "max_edit_bytes",
    "max_transfer_bytes",
    "max_output_bytes",
    "max_spool_bytes",
    "hide_git_config",
];

const CONTAINER_PATHS: [(&str, ContainerPaths); 2] =
    [("deny", ContainerPaths::Deny), ("allow", ContainerPaths::Allow)];
const FORWARD: [(&str, Forward); 2] = [("deny", Forward::Deny), ("allow", Forward::Allow)];
const BACKGROUND: [(&str, Background); 2] = [("end", Background::End), ("keep", Background::Keep)];
const TMP: [(&str, TmpMode); 2] = [("noexec", TmpMode::NoExec), ("exec", TmpMode::Exec)];

/// Reads `root`, and reports rules that contradict a writable one.
///
/// Commands that can write to the image can replace any program. Rules about programs by name would then prove nothing.
fn root(at: &At<'_>, exec: &ExecPolicy, approvals: &ApprovalPolicy) -> RootMode {
    let modes = [("read-only", RootMode::ReadOnly), ("writable-layer", RootMode::WritableLayer)];
    let root = at.one_of(&modes).unwrap_or_default();
    if root == RootMode::ReadOnly {
        return root;
    }
    if !exec.is_blind() {
        at.problem_hint(
            "`writable-layer` lets a command replace any program, so the rules for programs under `exec` \
             cannot hold",
            Some("set `exec.deny_list: off` and `exec.default: allow`, without `deny` and `rules`, or keep `read-only`".to_owned()),
        );
    }
    if approvals.remember.contains(&Form::Prefix) {
        at.problem_hint(
            "`writable-layer` lets a command replace any program, so consent to a command prefix cannot be \
             remembered",
            Some("leave `prefix` out of `approvals.remember`".to_owned()),
        );
    }
    root
}

/// A section that may be missing. All of its values are then missing.
struct Section<'t>(Option<Fields<'t>>);

fn section<'t>(fields: &Fields<'t>, key: &str, known: &[&str]) -> Section<'t> {
    Section(fields.get(key).map(|at| at.fields(known)))
}

impl<'t> Section<'t> {
    fn get(&self, key: &str) -> Option<&At<'t>> {
        self.0.as_ref().and_then(|fields| fields.get(key))
    }

    fn number_or(&self, key: &str, range: std::ops::RangeInclusive<u64>, default: u64) -> u64 {
        self.0.as_ref().map_or(default, |fields| fields.number_or(key, range, default))
    }

    fn texts(&self, key: &str) -> Vec<(At<'t>, &'t str)> {
        let items = self.get(key).map_or_else(Vec::new, At::items);
        items.into_iter().filter_map(|item| item.text().map(|text| (item.clone(), text))).collect()
    }
}

fn limits(section: &Section<'_>) -> ContainerLimits {
    ContainerLimits {
        memory_mib: section.number_or("memory_mib", 16..=1_048_576, 512),
        cpu_millis: section.number_or("cpu_millis", 50..=1_024_000, 1_000),
        pids: section.number_or("pids", 8..=65_536, 128),
        file_size_mib: section.number_or("file_size_mib", 1..=1_048_576, 256),
        open_files: section.number_or("open_files", 64..=1_048_576, 1_024),
        tmp_mib: section.number_or("tmp_mib", 1..=65_536, 64),
        shm_mib: section.number_or("shm_mib", 1..=65_536, ContainerLimits::SHM_MIB),
        disk_mib: section.number_or("disk_mib", 1..=16_777_216, 1_024),
        disk_files: section.number_or("disk_files", 100..=100_000_000, 50_000),
        output_mib: section.number_or("output_mib", 8..=1_048_576, ContainerLimits::OUTPUT_MIB),
    }
}

fn operations(at: &At<'_>, deny_list: DenyList, risk: &BTreeMap<String, Risk>) -> BTreeMap<String, Verdict> {
    let mut operations = BTreeMap::new();
    for (name, value) in at.entries() {
        let Some(known) = names::key(&value, name, &[]) else { continue };
        let Some(verdict) = value.one_of(&VERDICTS) else { continue };
        let critical = !risk.contains_key(&known) && default_risk(&known, deny_list) == Risk::Critical;
        if verdict == Verdict::Allow && critical {
            value.problem_hint(
                format!("`{known}` is critical, and critical operations need consent"),
                Some("write `ask`".to_owned()),
            );
        }
        operations.insert(known, verdict);
    }
    operations
}

/// Reads risks. A risk that is too low is reported last, because another file may allow it.
fn risks(at: &At<'_>) -> BTreeMap<String, Risk> {
    let mut risks = BTreeMap::new();
    for (name, value) in at.entries() {
        let Some(known) = names::key(&value, name, &[EXEC_READ_ONLY]) else { continue };
        risks.extend(value.one_of(&RISKS).map(|risk| (known, risk)));
    }
    risks
}

fn exec(section: &Section<'_>, at: Option<&At<'_>>) -> ExecPolicy {
    let deny: Vec<String> = section
        .texts("deny")
        .into_iter()
        .map(|(item, name)| {
            if name.contains('/') || name == "*" || name.trim_end_matches('*').contains('*') {
                item.problem(
                    "must be a base name, such as `curl`, or the beginning of some, such as `docker*`",
                );
            }
            name.to_owned()
        })
        .collect();
    let variables = |key: &str, any: bool, expected: &str| -> Vec<String> {
        let check = |(item, name): (&At<'_>, &str)| {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let is_name = name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit());
            if !(is_name || any && name == "*") {
                item.problem(expected);
            }
            name.to_owned()
        };
        section.texts(key).iter().map(|(item, name)| check((item, name))).collect()
    };
    let env = variables("env", true, "must be the name of an environment variable, or \"*\" for any");
    let env_paths = variables("env_paths", false, "must be the name of an environment variable");
    let (longest, default) =
        (CommandLimits::LONGEST_TIMEOUT.as_secs(), CommandLimits::DEFAULT_TIMEOUT.as_secs());
    let max_timeout_s = section.number_or("max_timeout_s", 1..=longest, CommandLimits::MAX_TIMEOUT.as_secs());
    let default_timeout_s = section.number_or("default_timeout_s", 1..=longest, default.min(max_timeout_s));
    if let Some(at) = at.filter(|_| default_timeout_s > max_timeout_s) {
        at.problem(format!(
            "default_timeout_s is {default_timeout_s}, more than max_timeout_s, {max_timeout_s}"
        ));
    }
    let lists = [("on", DenyList::On), ("off", DenyList::Off)];
    let deny_list = section.get("deny_list").and_then(|at| at.one_of(&lists)).unwrap_or_default();
    let is_denied = |program: &str| deny_list.denies(program, &deny);
    ExecPolicy {
        rules: ExecRules::new(section.get("rules").map_or_else(Vec::new, |at| rules(at, is_denied))),
        deny_list,
        deny,
        read_only_commands: section.get("read_only_commands").and_then(At::flag).unwrap_or(false),
        default: section.get("default").and_then(|at| at.one_of(&VERDICTS)).unwrap_or(Verdict::Deny),
        env,
        env_paths,
        background: section.get("background").and_then(|at| at.one_of(&BACKGROUND)).unwrap_or_default(),
        default_timeout_s,
        max_timeout_s,
    }
}

fn bounds(section: &Section<'_>) -> CallBounds {
    const MIB: u64 = 1024 * 1024;
    let default = Bounds::default();
    let (usual, widest) = (CommandLimits::USUAL, CommandLimits::WIDEST);
    let bounds = CallBounds {
        max_read_bytes: section.number_or("max_read_bytes", 1..=transport::MAX_READ, default.max_read_bytes),
        max_write_bytes: section.number_or(
            "max_write_bytes",
            1..=transport::MAX_WRITE,
            default.max_write_bytes,
        ),
        max_edit_bytes: section
            .get("max_edit_bytes")
            .map(|_| section.number_or("max_edit_bytes", 1..=Bounds::LARGEST_EDIT, default.max_edit_bytes)),
        max_transfer_bytes: section.number_or(
            "max_transfer_bytes",
            1..=64 * 1024 * MIB,
            default.max_transfer_bytes,
        ),
        max_output_bytes: section.number_or(
            "max_output_bytes",
            256..=transport::MAX_OUTPUT,
            default.max_output_bytes,
        ),
        max_spool_bytes: section.number_or("max_spool_bytes", 4_096..=4_096 * MIB, default.max_spool_bytes),
        max_argv_bytes: section.number_or(
            "max_argv_bytes",
            4_096..=widest.argv_bytes as u64,
            usual.argv_bytes as u64,
        ),
        max_stdin_bytes: section.number_or(
            "max_stdin_bytes",
            0..=widest.stdin_bytes as u64,
            usual.stdin_bytes as u64,
        ),
        hide_git_config: section.get("hide_git_config").and_then(At::flag).unwrap_or(default.hide_git_config),
    };
    let both = [section.get("max_argv_bytes"), section.get("max_stdin_bytes")];
    if let Some(at) = both.into_iter().flatten().next_back()
        && bounds.max_argv_bytes + bounds.max_stdin_bytes > transport::MAX_COMMAND
    {
        at.problem(format!(
            "max_argv_bytes and max_stdin_bytes are {} and {} bytes, and one request holds {} of both together",
            bounds.max_argv_bytes,
            bounds.max_stdin_bytes,
            transport::MAX_COMMAND
        ));
    }
    bounds
}

fn author(section: &Section<'_>) -> Author {
    let default = Bounds::default();
    let text = |key: &str, default: &str| {
        let Some(at) = section.get(key) else { return default.to_owned() };
        let text = at.text().unwrap_or(default);
        // Git separates the fields of a signature with these.
        if text.trim().is_empty() || text.contains(['<', '>', '\n', '\0']) || text.len() > 256 {
            at.problem("must be 1 to 256 bytes, without `<`, `>` and line breaks");
        }
        text.to_owned()
    };
    Author {
        author_name: text("author_name", &default.author_name),
        author_email: text("author_email", &default.author_email),
    }
}
