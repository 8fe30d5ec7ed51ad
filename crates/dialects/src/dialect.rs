//! The interface of a dialect.

use operations::{Hint, Named, Operation, Outcome, Reason, in_own_words};
use serde_json::Value;

use crate::arguments::object_of;
use crate::canonical::PENDING;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::policy::Policy;
use crate::process::{ProcessAccess, ProcessView};
use crate::tool::Tool;
use text::excerpt;

/// Dialect: names, argument shapes and renderings of the operations.
pub trait Dialect: Sync {
    /// Returns the dialect's name, such as `native`.
    fn name(&self) -> &'static str;

    /// Returns its tools, in the order in which they are offered.
    fn tools(&self) -> &'static [Tool];

    /// Renders an outcome for the model.
    ///
    /// A call that did not parse has an outcome, too: see [`ParseFailure`]. The text is well-formed in the dialect's own format for any
    /// outcome.
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

    /// Renders an outcome in the dialect's own format. Its hints are already part of its message.
    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String;

    /// Returns a hint in the names that a caller of `tool` knows.
    ///
    /// Returns `None` if the tool has no such argument, or if no other tool does what the hint names.
    fn hint(&self, tool: &str, hint: Hint) -> Option<String> {
        self.named_hint(tool, hint)
    }

    /// Returns a hint for dialects whose hints need only a name.
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

    /// Renders a call that waits for a reviewer.
    fn render_pending(&self, made: &Made<'_>, approval_id: &str) -> String {
        let _ = made;
        format!("Pending approval {approval_id}: {PENDING}")
    }

    /// Returns description and schema of a tool for a list of tools. `limits` are those of this dialect.
    fn shown(&self, tool: &Tool, limits: &Limits, policy: &Policy<'_>) -> (String, Value) {
        let _ = policy;
        (tool.described(limits), tool.schema(limits))
    }

    /// Returns the access of a call to a process that was started before.
    ///
    /// Such a call is no operation, because the start was judged. Returns `None` for every other call, including malformed ones.
    fn process_access(&self, tool: &str, arguments_json: &str) -> Option<ProcessAccess> {
        let _ = (tool, arguments_json);
        None
    }

    /// Renders an access to a process.
    fn render_process(&self, view: &ProcessView) -> String {
        crate::process::plain(view)
    }

    /// Returns the JSON Schema of a tool's results, whose root is an object; `None` if results are text.
    fn output_schema(&self, tool: &Tool) -> Option<Value> {
        let _ = tool;
        None
    }

    /// Returns the part of a prompt that describes `tools` and how to call them, for models that learn their tools from the prompt.
    fn prompt(&self, tools: &[&'static Tool], limits: &Limits, policy: &Policy<'_>) -> Option<String> {
        let _ = (tools, limits, policy);
        None
    }

    /// Returns the name of a tool without a prefix that models may add.
    fn plain_name<'n>(&self, name: &'n str) -> &'n str {
        name
    }

    /// Returns the limits of a run as they apply to this dialect's tools.
    fn limits(&self, of_run: &Limits) -> Limits {
        *of_run
    }

    /// Returns the operation for this tool and these arguments, which are one JSON object.
    ///
    /// A command without a timeout gets the one in `limits`.
    fn parse(
        &self,
        tool_name: &str,
        arguments_json: &str,
        limits: &Limits,
    ) -> Result<Operation, ParseFailure> {
        self.tool(tool_name)?.parse(object_of(arguments_json)?, &self.limits(limits))
    }

    /// Returns the tool with this name, or with the form of it that has no dots.
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
