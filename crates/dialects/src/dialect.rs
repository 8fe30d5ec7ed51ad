//! What a dialect is.

use ops::{Hint, Named, Operation, Outcome, Reason, in_own_words};
use serde_json::Value;

use crate::arguments::object_of;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::policy::Policy;
use crate::process::{ProcessAccess, ProcessView};
use crate::tool::Tool;
use text::excerpt;

/// Names, argument shapes and renderings of the operations.
pub trait Dialect: Sync {
    /// Its name, such as `native`.
    fn name(&self) -> &'static str;

    /// Its tools, in the order in which they are offered.
    fn tools(&self) -> &'static [Tool];

    /// What the model sees of an outcome. A call that did not parse has an outcome, too: see [`ParseFailure`]. Whatever
    /// the outcome holds, the text is well-formed in the dialect's own frame.
    fn render(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        match outcome {
            Err(failure) if !failure.hints.is_empty() => {
                let told = failure.clone().told(|hint| self.hint(made.tool, hint));
                self.framed(made, &Err(told))
            }
            Ok(result) => match in_own_words(result, &self.left_out(made.tool)) {
                Some(own) => self.framed(made, &Ok(own)),
                None => self.framed(made, outcome),
            },
            Err(_) => self.framed(made, outcome),
        }
    }

    /// Returns how a caller of `tool` sees a file that was left out, in that tool's argument names.
    fn left_out(&self, tool: &str) -> String {
        let argument = |name| self.tool(tool).ok().and_then(|tool| tool.argument(name));
        match (
            argument("path").or_else(|| argument("file_path")),
            argument("glob").or_else(|| argument("pattern")),
        ) {
            (Some(path), _) => format!("to see one, give its own path as {path}"),
            (None, Some(pattern)) => format!("to see one, begin {pattern} with its directory"),
            (None, None) => "to see one, name it".to_owned(),
        }
    }

    /// An outcome, whose hints have been told, in the dialect's own frame.
    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String;

    /// A hint in the names that a caller of `tool` knows. `None` where there is no name for what the hint names: the tool
    /// has no such argument, or there is no other tool that does it.
    fn hint(&self, tool: &str, hint: Hint) -> Option<String> {
        self.named_hint(tool, hint)
    }

    /// The same where a name is all that the dialect has to say.
    fn named_hint(&self, tool: &str, hint: Hint) -> Option<String> {
        let tool = self.tool(tool).ok()?;
        let name = match hint.named() {
            Named::Argument(name) => tool.argument(name)?,
            Named::Operation(name) => {
                let other = self.tools().iter().find(|other| other.operations.contains(&name))?;
                Some(other.name).filter(|name| *name != tool.name)?
            }
        };
        Some(hint.say(name))
    }

    /// What the model sees of a call that waits for a person.
    fn render_pending(&self, made: &Made<'_>, approval_id: &str) -> String;

    /// Description and schema of a tool, as a list has them. `limits` are those of this dialect.
    fn shown(&self, tool: &Tool, limits: &Limits, policy: &Policy<'_>) -> (String, Value) {
        let _ = policy;
        (tool.described(limits), tool.schema(limits))
    }

    /// What a call wants of a process that was started before. Such a call is no operation: the start was judged. `None` for
    /// every other call, wrong ones included.
    fn process_access(&self, tool: &str, arguments_json: &str) -> Option<ProcessAccess> {
        let _ = (tool, arguments_json);
        None
    }

    /// What the model sees of an access to a process.
    fn render_process(&self, view: &ProcessView) -> String {
        crate::process::plain(view)
    }

    /// The JSON Schema that every result of a tool fits; `None` where results are text. Its root is an object's.
    fn output_schema(&self, tool: &Tool) -> Option<Value> {
        let _ = tool;
        None
    }

    /// For models that are told of their tools in their prompt: how to call them, and what `tools` take and do.
    fn prompt(&self, tools: &[&'static Tool], limits: &Limits) -> Option<String> {
        let _ = (tools, limits);
        None
    }

    /// The name of a tool without what its models may put before it.
    fn plain_name<'n>(&self, name: &'n str) -> &'n str {
        name
    }

    /// The limits of a run as they hold for this dialect's tools.
    fn limits(&self, of_run: &Limits) -> Limits {
        *of_run
    }

    /// The operation that a model means by this tool and these arguments, one JSON object. A command that is given no time
    /// has what `limits` say.
    fn parse(
        &self,
        tool_name: &str,
        arguments_json: &str,
        limits: &Limits,
    ) -> Result<Operation, ParseFailure> {
        self.tool(tool_name)?.parse(object_of(arguments_json)?, &self.limits(limits))
    }

    /// The tool with this name, or with the form of it that has no dots.
    fn tool(&self, name: &str) -> Result<&'static Tool, ParseFailure> {
        let name = self.plain_name(name);
        self.tools().iter().find(|tool| tool.name == name || tool.undotted_name() == name).ok_or_else(|| {
            let known: Vec<&str> = self.tools().iter().map(|tool| tool.name).collect();
            let message =
                format!("no tool is called `{}`; the tools are {}", excerpt(name), known.join(", "));
            ParseFailure::new(Reason::NotFound, message)
        })
    }
}
