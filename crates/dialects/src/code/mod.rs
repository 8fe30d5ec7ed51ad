//! `code`: the tools that coding models know best, described with the permissions of the run's profile.
//!
//! Names and arguments follow the tools that such models commonly call. Results are plain text, and lines that the dialect adds are in
//! square brackets. `bash` of one plain command is an `exec`, so that a profile's rules for commands apply to it. Any other command line
//! is a `shell` script. Descriptions say which calls the profile asks about or refuses ([`consent`]).

mod bash;
mod checkpoint;
mod consent;
mod files;
mod process;
mod render;
mod search;
mod snippet;
mod words;

use std::sync::LazyLock;

use operations::{Hint, Outcome};
use serde_json::Value;

use crate::dialect::Dialect;
use crate::limits::Limits;
use crate::made::Made;
use crate::native::GitOperation;
use crate::policy::Policy;
use crate::process::ProcessAccess;
use crate::tool::{Effect, Tool};

pub(crate) struct Code;

impl Dialect for Code {
    fn name(&self) -> &'static str {
        "code"
    }

    fn tools(&self) -> &'static [Tool] {
        &*TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made.operation, outcome)
    }

    /// `read` also lists directories.
    fn hint(&self, tool: &str, hint: Hint) -> Option<String> {
        let slash = || "to list a directory put a slash at the end of its path".to_owned();
        self.named_hint(tool, hint).or_else(|| (tool == "read" && hint == Hint::List).then(slash))
    }

    fn shown(&self, tool: &Tool, limits: &Limits, policy: &Policy<'_>) -> (String, Value) {
        let mut schema = tool.schema(limits);
        if !(policy.permitted)("process")
            && let Some(arguments) = schema["properties"].as_object_mut()
        {
            arguments.remove(bash::BACKGROUND);
        }
        (consent::told(tool, &tool.described(limits), policy), schema)
    }

    fn process_access(&self, tool: &str, arguments_json: &str) -> Option<ProcessAccess> {
        process::access(self.tool(tool).ok()?, arguments_json)
    }
}

static TOOLS: LazyLock<[Tool; 10]> = LazyLock::new(|| {
    [
        Tool::of::<bash::Bash>("bash", &["shell", "exec", "exec.read_only", "process"], Effect::Changes),
        Tool::of::<files::Read>("read", &["read", "list"], Effect::Reads),
        Tool::of::<files::Write>("write", &["write"], Effect::Changes).repeatable(),
        Tool::of::<files::Edit>("edit", &["edit"], Effect::Changes),
        Tool::of::<files::PatchText>("patch", &["patch"], Effect::Changes),
        Tool::of::<search::Grep>("grep", &["grep"], Effect::Reads),
        Tool::of::<search::Glob>("glob", &["glob"], Effect::Reads),
        Tool::of::<GitOperation>("git", GitOperation::OPERATIONS, Effect::Changes),
        Tool::of::<process::Process>("process", &["process"], Effect::Changes),
        Tool::of::<checkpoint::Checkpoint>(
            "checkpoint",
            &["checkpoint.create", "checkpoint.list", "checkpoint.restore"],
            Effect::Changes,
        ),
    ]
});

/// Converts a path of a result to the one that commands of the run use: `@project/a` is `/workspace/a`.
fn in_container(alias: &str) -> String {
    let of = |mount: jail::Mount| {
        let rest = alias.strip_prefix(mount.alias())?;
        let whole = rest.is_empty() || rest.starts_with('/');
        whole.then(|| format!("{}{rest}", mount.container_path()))
    };
    let path = jail::Mount::ALL.into_iter().find_map(of);
    text::one_line(path.as_deref().unwrap_or(alias)).to_string()
}

/// Meaning of a command line: one plain command, or a script.
enum Program {
    Command(String, Vec<String>),
    Script(String),
}

impl Program {
    fn of(line: String) -> Self {
        let mut words = words::of_one_command(&line).unwrap_or_default().into_iter();
        match words.next() {
            Some(command) => Self::Command(command, words.collect()),
            None => Self::Script(line),
        }
    }
}

#[cfg(test)]
mod tests;
