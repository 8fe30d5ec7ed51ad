//! What a dialect is.

use ops::{Operation, Outcome, Reason};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::shown::shown;
use crate::tool::Tool;

/// Names, argument shapes and renderings of the operations.
pub trait Dialect: Sync {
    /// Its name, such as `native`.
    fn name(&self) -> &'static str;

    /// Its tools, in the order in which they are offered.
    fn tools(&self) -> &'static [Tool];

    /// What the model sees of an outcome. A call that did not parse has an outcome, too: see [`ParseFailure`]. Whatever
    /// the outcome holds, the text is well-formed in the dialect's own frame.
    fn render(&self, made: &Made<'_>, outcome: &Outcome) -> String;

    /// What the model sees of a call that waits for a person.
    fn render_pending(&self, made: &Made<'_>, approval_id: &str) -> String;

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

    /// The operation that a model means by this tool and these arguments, one JSON object. A command that is given no time
    /// has what `limits` say.
    fn parse(
        &self,
        tool_name: &str,
        arguments_json: &str,
        limits: &Limits,
    ) -> Result<Operation, ParseFailure> {
        let tool = self.tool(tool_name)?;
        (tool.operation)(&mut Arguments::parse(tool, arguments_json, limits)?)
    }

    /// The tool with this name, or with the form of it that has no dots.
    fn tool(&self, name: &str) -> Result<&'static Tool, ParseFailure> {
        self.tools().iter().find(|tool| tool.name == name || tool.undotted_name() == name).ok_or_else(|| {
            let known: Vec<&str> = self.tools().iter().map(|tool| tool.name).collect();
            let message = format!("no tool is called `{}`; the tools are {}", shown(name), known.join(", "));
            ParseFailure::new(Reason::NotFound, message)
        })
    }
}
