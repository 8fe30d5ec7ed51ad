//! The validated policy. Serialised, it is a policy file again.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use egress_rules::Rules;
use jail::{GitReads, MountMode, Protection, RootMode, TmpMode};
use operations::deny::DenyList;
use operations::{Bounds, CommandLimits, PathRules};
use serde::{Serialize, Serializer};

use crate::image_names::permits;
use crate::{
    Caps, CompanionRules, RateLimits, Risk, Verdict, names::speaking, paths::ProfilePathRule,
    read_approvals::ApprovalPolicy, rules::ExecRules,
};

/// Role of a run if neither its request nor its profile names one.
const LEAST_ROLE: &str = "worker";

/// Properties of a run with this profile, and rules for its calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// Text for people. May be missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Role of a run whose request names none; `None` is the least one, `worker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_role: Option<String>,
    /// Image of the container; `None` is the daemon's default image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Other images that a run may ask for. A name that ends in `*` matches every name with that beginning.
    pub allowed_images: Vec<String>,
    /// Container runtime, such as `runsc`; `None` is the engine's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Mount mode of the workspace in the container. The host lane's `write`, `edit` and `git` are not affected.
    #[serde(serialize_with = "named")]
    pub workspace: MountMode,
    /// Part of the image that commands can write.
    #[serde(skip_serializing_if = "is_default", serialize_with = "named")]
    pub root: RootMode,
    /// Commands are root, but in a user namespace in which that user has no rights on the host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub root_in_user_namespace: bool,
    /// Permission to run programs in `/tmp`.
    #[serde(skip_serializing_if = "is_default", serialize_with = "named")]
    pub tmp: TmpMode,
    /// Permission to name files of the container outside the mounts.
    #[serde(skip_serializing_if = "is_default")]
    pub container_paths: ContainerPaths,
    /// Commands get the context of their call's trace in `TRACEPARENT`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub traceparent: bool,
    /// No person watches: calls that the profile allows run without consent, even if the role would ask.
    pub unattended: bool,
    /// Limits of the container.
    pub limits: ContainerLimits,
    /// Verdict for each operation, by the keys of [`super::names`]. An operation without a key is denied.
    pub operations: BTreeMap<String, Verdict>,
    /// Risk of operations, and of `exec.read_only`, if it differs from their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub risk: BTreeMap<String, Risk>,
    /// Rules for commands.
    pub exec: ExecPolicy,
    /// Rules for files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<ProfilePathRule>,
    /// Bounds of one call.
    pub bounds: CallBounds,
    pub rate_limits: RateLimits,
    /// Limits on calls at the same time.
    pub concurrency: Caps,
    /// Terms of requests for consent.
    pub approvals: ApprovalPolicy,
    pub commit: Author,
    /// Hosts that the run may reach.
    #[serde(skip_serializing_if = "is_none")]
    pub egress: Rules,
    /// Connections from outside to TCP servers in the run.
    #[serde(skip_serializing_if = "is_default")]
    pub forward: Forward,
    /// Containers that a run may have beside it.
    #[serde(skip_serializing_if = "is_default")]
    pub companions: CompanionRules,
}

/// Permission to forward ports of a run to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    #[default]
    Deny,
    Allow,
}

/// Access of `read`, `list`, `glob`, `grep`, `write` and `edit` to the container's own files, which commands reach
/// anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerPaths {
    #[default]
    Deny,
    Allow,
}

/// Limits of a container, and of the files that the daemon keeps for it. Swap is always off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerLimits {
    /// Memory, MiB.
    pub memory_mib: u64,
    /// CPU time, thousandths of a core.
    pub cpu_millis: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Largest file that a process may write, MiB.
    pub file_size_mib: u64,
    /// Open files of a process.
    pub open_files: u64,
    /// Size of `/tmp`, MiB. It counts as memory.
    pub tmp_mib: u64,
    /// Size of `/dev/shm`, MiB. It counts as memory.
    #[serde(skip_serializing_if = "is_usual_shm")]
    pub shm_mib: u64,
    /// Most MiB that the daemon keeps for a run on its disk.
    ///
    /// This counts `/state`, a managed or cloned workspace, and the layers of an overlay and of a writable root.
    pub disk_mib: u64,
    /// Disk quota, number of files.
    pub disk_files: u64,
    /// Most MiB of input and output of a run's processes, sessions and terminals that the daemon keeps. Not part of the
    /// quota.
    #[serde(skip_serializing_if = "is_usual_output")]
    pub output_mib: u64,
}

impl ContainerLimits {
    /// Default of [`Self::output_mib`], MiB.
    pub const OUTPUT_MIB: u64 = 1_024;
    /// Default of [`Self::shm_mib`], MiB. Container engines have the same default.
    pub const SHM_MIB: u64 = 64;
}

/// Leaves out the default, so that a policy without this key keeps its digest.
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_usual_shm(mib: &u64) -> bool {
    *mib == ContainerLimits::SHM_MIB
}

/// Leaves out the default, so that a policy without this key has the digest from before the limit existed.
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_usual_output(mib: &u64) -> bool {
    *mib == ContainerLimits::OUTPUT_MIB
}

/// Rules for commands: the strictest of all that apply, or `default` if none does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecPolicy {
    /// Denies [`operations::deny::NAMES`].
    #[serde(skip_serializing_if = "DenyList::is_on")]
    pub deny_list: DenyList,
    /// Programs that are denied besides [`operations::deny::NAMES`].
    pub deny: Vec<String>,
    /// `cat head tail find wc` with harmless flags and paths inside the mounts run without consent.
    pub read_only_commands: bool,
    pub rules: ExecRules,
    /// Verdict for a command that no rule matches.
    pub default: Verdict,
    /// Names of the environment variables that a call may set; `*` is any.
    pub env: Vec<String>,
    /// Names of variables that a call may set to a list of paths, each of them within the workspace.
    ///
    /// An `allow` rule still covers a command that sets one.
    pub env_paths: Vec<String>,
    /// Fate of the processes that a command leaves running.
    #[serde(skip_serializing_if = "Background::is_end")]
    pub background: Background,
    /// Time after which a command is ended if its call sets none, seconds.
    pub default_timeout_s: u64,
    /// Longest time that a call may set, seconds; never more than [`operations::CommandLimits::LONGEST_TIMEOUT`].
    pub max_timeout_s: u64,
}

/// Bounds of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallBounds {
    /// Most bytes that `read` returns.
    pub max_read_bytes: u64,
    /// Most bytes that a call may carry as the content of a file.
    pub max_write_bytes: u64,
    /// Most bytes that a file may have after an edit or a patch of it. `None`: as `max_write_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_edit_bytes: Option<u64>,
    /// Most bytes of an uploaded or downloaded file, or of all files of such an archive.
    #[serde(skip_serializing_if = "is_usual_transfer")]
    pub max_transfer_bytes: u64,
    /// Most bytes of rendered text.
    pub max_output_bytes: u64,
    /// Most bytes that a command may write before it is ended.
    pub max_spool_bytes: u64,
    /// Most bytes of a command's arguments together.
    #[serde(skip_serializing_if = "is_usual_argv")]
    pub max_argv_bytes: u64,
    /// Most bytes of a command's standard input, in the request.
    #[serde(skip_serializing_if = "is_usual_stdin")]
    pub max_stdin_bytes: u64,
    /// `.git/hooks` and `.git/config` may not be read.
    pub hide_git_config: bool,
}

impl CallBounds {
    /// Returns the most bytes that a file may have after an edit or a patch of it.
    pub fn max_edit_bytes(&self) -> u64 {
        self.max_edit_bytes.unwrap_or(self.max_write_bytes)
    }
}

fn named<S: Serializer>(mode: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mode)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_usual_argv(bytes: &u64) -> bool {
    *bytes == CommandLimits::USUAL.argv_bytes as u64
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_usual_stdin(bytes: &u64) -> bool {
    *bytes == CommandLimits::USUAL.stdin_bytes as u64
}

/// Leaves out the default, so that a policy without this key has the digest from before the bound existed.
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_usual_transfer(bytes: &u64) -> bool {
    *bytes == Bounds::MAX_TRANSFER_BYTES
}

/// Author and committer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Author {
    pub author_name: String,
    pub author_email: String,
}

fn is_none(egress: &Rules) -> bool {
    *egress == Rules::none()
}

impl Profile {
    /// Returns the verdict on an operation, and the key that sets it.
    pub fn operation(&self, name: &str) -> Option<(&str, Verdict)> {
        speaking(&self.operations, name).map(|(key, verdict)| (key, *verdict))
    }

    /// Returns the role of a run whose request names none. A policy need not define the role used if the profile names
    /// none.
    pub fn default_role(&self) -> &str {
        self.default_role.as_deref().unwrap_or(LEAST_ROLE)
    }

    /// Returns true if a run of this profile may use `image`. `None` is the profile's own or the default image.
    pub fn permits_image(&self, image: Option<&str>) -> bool {
        image
            .is_none_or(|image| permits(self.image.as_slice(), image) || permits(&self.allowed_images, image))
    }

    /// Returns the bounds that a lane enforces.
    pub fn call_bounds(&self) -> Bounds {
        Bounds {
            max_read_bytes: self.bounds.max_read_bytes,
            max_write_bytes: self.bounds.max_write_bytes,
            max_edit_bytes: self.bounds.max_edit_bytes(),
            max_transfer_bytes: self.bounds.max_transfer_bytes,
            max_output_bytes: self.bounds.max_output_bytes,
            max_spool_bytes: self.bounds.max_spool_bytes,
            hide_git_config: self.bounds.hide_git_config,
            deny_list: self.exec.deny_list,
            denied_programs: self.exec.deny.clone(),
            keep_background: self.exec.background == Background::Keep,
            author_name: self.commit.author_name.clone(),
            author_email: self.commit.author_email.clone(),
            reads: Vec::new(),
            path_rules: PathRules::default(),
            held_to: None,
        }
    }

    /// Returns the rules for protected paths.
    pub fn protection(&self) -> Protection {
        let git_reads = if self.bounds.hide_git_config { GitReads::Guarded } else { GitReads::Open };
        Protection { git_reads }
    }
}

/// Fate of the processes that a command leaves running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    /// They end with the command.
    #[default]
    End,
    /// They stay until the run ends.
    Keep,
}

impl Background {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
    fn is_end(&self) -> bool {
        *self == Self::End
    }
}

impl ExecPolicy {
    /// Returns true if no rule can let this program run.
    pub fn denies(&self, program: &str) -> bool {
        self.deny_list.denies(program, &self.deny)
    }

    /// Returns true if no command is treated differently from any other.
    pub fn is_blind(&self) -> bool {
        !self.deny_list.is_on()
            && self.deny.is_empty()
            && self.rules.is_empty()
            && self.default == Verdict::Allow
    }

    /// Returns the longest time that a call may set.
    pub fn max_timeout(&self) -> Duration {
        Duration::from_secs(self.max_timeout_s)
    }
}
