//! Answers to the questions that other crates ask about an operation, so that they need not know its kinds.

use std::time::Duration;

use jail::{Mount, PathRefusal, SandboxPath};
use wire::v1;

use super::{CLASSES, Delivery, Effect, Lane, Operation, exec};
use crate::{CommandLimits, ExecResult, Malformed, OpResult};

/// Time limit of an upload, which the host lane only copies.
const UPLOAD_TIME: Duration = Duration::from_secs(600);
/// Time limit of an operation that exchanges commits with a server.
const NETWORK_TIME: Duration = Duration::from_secs(300);
/// Time limit of a download, which lasts as long as its client takes.
const DOWNLOAD_TIME: Duration = Duration::from_secs(3_600);

impl Operation {
    /// Time limit of an operation on files, and of a preview.
    pub const FILE_TIME: Duration = Duration::from_secs(30);

    /// Validates a request against the usual limits.
    pub fn parse(operation: v1::Operation) -> Result<Self, Malformed> {
        Self::parse_within(operation, CommandLimits::USUAL)
    }

    /// Validates a request against the limits of a profile.
    pub fn parse_within(operation: v1::Operation, limits: CommandLimits) -> Result<Self, Malformed> {
        let parsed = Self::parse_anywhere(operation, limits)?;
        if limits.container_paths { Ok(parsed) } else { parsed.within_mounts() }
    }

    pub(super) fn within_mounts(self) -> Result<Self, Malformed> {
        match self.outside() {
            None => Ok(self),
            Some(path) => {
                let given = path.excerpt();
                let field = format!("{}.path", self.kind());
                Err(Malformed::refused(&field, PathRefusal::AbsoluteOutside { given }))
            }
        }
    }

    /// Returns the path that the operation names outside of the mounts, among the container's own files.
    pub fn outside(&self) -> Option<&SandboxPath> {
        self.paths().into_iter().find(|path| path.mount() == Mount::Container)
    }

    /// Returns true if consent covers only the text of the operation, and no state of files.
    ///
    /// A process reads files for as long as it runs, and a session's shell runs beside the run's other commands. So no state of any file
    /// can be guaranteed to them.
    pub fn binds_words(&self) -> bool {
        self.delivery().outlives_call()
    }

    /// Returns the name of this operation in policy and record: `read`, `git.commit`, `mcp.SERVER.TOOL`.
    pub fn name(&self) -> &str {
        self.described().name()
    }

    /// Returns the name under which calls are counted: the operation's own, or `mcp.SERVER` for all tools of an upstream server.
    pub fn family(&self) -> &str {
        self.described().family()
    }

    /// Returns the kind of operation: its name, or `mcp`.
    pub fn kind(&self) -> &'static str {
        self.described().class().name
    }

    /// Returns the lane that executes it.
    pub fn lane(&self) -> Lane {
        match self.described().class().lane {
            // The host has no such path.
            Lane::Host if self.outside().is_some() => Lane::Container,
            lane => lane,
        }
    }

    /// Returns the way in which it is carried out.
    pub fn delivery(&self) -> Delivery {
        self.described().delivery()
    }

    /// Returns the kind of effect.
    pub fn effect(&self) -> Effect {
        self.described().class().effect
    }

    /// Returns the effect of the operations with a name in policy and record, or `None` for an unknown name.
    pub fn effect_of(name: &str) -> Option<Effect> {
        let class = CLASSES.iter().find(|class| class.name == name);
        class.map(|class| class.effect).or_else(|| name.starts_with("mcp.").then_some(Effect::Foreign))
    }

    /// Returns true if the operation may change anything. Its receipt then has to be durable before the answer.
    pub fn has_effect(&self) -> bool {
        !matches!(self.effect(), Effect::Looks | Effect::Reads)
    }

    /// Returns true if the operation adds to a mount that `is_one` accepts. The effects of commands on mounts are unknown.
    pub fn adds_to(&self, is_one: impl Fn(Mount) -> bool) -> bool {
        match self.effect() {
            Effect::Writes => self.paths().iter().any(|path| is_one(path.mount())),
            Effect::Commits => is_one(Mount::Project),
            Effect::Looks
            | Effect::Reads
            | Effect::Runs
            | Effect::Deletes
            | Effect::Keeps
            | Effect::Foreign => false,
        }
    }

    /// Returns the paths that the operation itself names. Arguments of a command are not interpreted.
    pub fn paths(&self) -> Vec<&SandboxPath> {
        self.described().paths()
    }

    /// Returns the host paths that the operation changes. Operations that only look, and those of the other lane, have none.
    pub fn changed_paths(&self) -> Vec<&SandboxPath> {
        if self.has_effect() && self.lane() == Lane::Host { self.paths() } else { Vec::new() }
    }

    /// Returns the paths whose content or existence may be secret, and the name pattern that the operation searches for.
    pub fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        self.described().sought()
    }

    /// Returns true if the content is sent as output, piece by piece.
    pub fn is_download(&self) -> bool {
        self.delivery() == Delivery::Stream
    }

    /// Returns the operation that the host lane has to execute first if the container lane is to write uploaded content.
    pub fn staging(&self) -> Option<Self> {
        self.described().staging().map(Self::Write)
    }

    /// Shortens the time until all processes are ended, if the operation has such a time and `limit` is less.
    pub fn shorten(&mut self, limit: Duration) {
        if let Some(timeout) = self.described_mut().timeout_mut() {
            *timeout = limit.min(*timeout);
        }
    }

    /// Returns the time until the lane ends the operation, if no caller allows less.
    pub fn time_limit(&self) -> Duration {
        self.command_timeout().unwrap_or(match (self.delivery(), self.transfer()) {
            (Delivery::Stream, _) => DOWNLOAD_TIME,
            (_, Some(_)) => UPLOAD_TIME,
            (_, None) if self.uses_network() => NETWORK_TIME,
            (_, None) => Self::FILE_TIME,
        })
    }

    /// Returns the result of a command that has ended, or `None` if the operation is none.
    pub fn ended(&self, result: ExecResult) -> Option<OpResult> {
        self.described().ended(result)
    }

    /// Returns the kind of operation whose result answers this one, or its preview.
    pub fn answer_kind(&self, preview: bool) -> &'static str {
        if preview { self.described().preview_kind() } else { self.kind() }
    }

    /// Refuses a command that asks for more time than `longest`.
    pub fn check_timeout(&self, longest: Duration) -> Result<(), Malformed> {
        let Some(timeout) = self.command_timeout() else { return Ok(()) };
        exec::check_timeout(&format!("{}.timeout_ms", self.kind()), timeout, longest)
    }
}
