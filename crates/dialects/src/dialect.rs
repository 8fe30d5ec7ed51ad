//! What a dialect is.

use ops::{Operation, Outcome, Reason};

use crate::arguments::Arguments;
use crate::failure::ParseFailure;
use crate::shown::shown;
use crate::tool::Tool;

/// Names, argument shapes and renderings of the operations.
pub trait Dialect: Sync {
    /// Its name, such as `native`.
    fn name(&self) -> &'static str;

    /// Its tools, in the order in which they are offered.
    fn tools(&self) -> &'static [Tool];

    /// What the model sees of an outcome. `operation` is missing when the call did not parse, which is an outcome too:
    /// see [`ParseFailure`]. Whatever the outcome holds, the text is well-formed in the dialect's own frame.
    fn render(&self, tool: &str, operation: Option<&Operation>, outcome: &Outcome) -> String;

    /// What the model sees of a call that waits for a person.
    fn render_pending(&self, approval_id: &str) -> String;

    /// The operation that a model means by this tool and these arguments, one JSON object.
    fn parse(&self, tool_name: &str, arguments_json: &str) -> Result<Operation, ParseFailure> {
        let tool = self.tool(tool_name)?;
        (tool.operation)(&mut Arguments::parse(tool, arguments_json)?)
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
