//! The part of a system prompt that describes the tools to a model.

use std::fmt::Write as _;

use crate::arguments::{Parameter, parameters};
use crate::limits::Limits;
use crate::network;
use crate::policy::Policy;
use crate::tool::Tool;

pub(super) fn of(tools: &[&'static Tool], limits: &Limits, policy: &Policy<'_>) -> String {
    let mut text = String::from(
        "TOOLS\n\
         \n\
         To use a tool, write one fenced block and stop. The line that opens it has ```forge: and the tool's name, the \
         block holds one JSON object, and ``` on a line of its own closes it. Only the first block of a reply is run. \
         The result comes back as the next message, between [forge:tool] and [/forge:tool]. When you are done, reply \
         without such a block.\n",
    );
    for tool in tools {
        // The dialect has one tool that runs commands.
        let described = network::told(tool, &tool.described(limits), policy, None);
        let (what, example) = described.split_once("Example: ").unwrap_or((&described, "{}"));
        // Writing to a string cannot fail.
        let _ = write!(text, "\nforge:{} - {}\n", tool.name, what.trim_end());
        for Parameter { name, required, schema } in parameters(&tool.schema(limits)) {
            let need = if required { "required" } else { "optional" };
            let _ =
                writeln!(text, "  {name} ({need}): {}", schema["description"].as_str().unwrap_or_default());
        }
        let _ = write!(text, "```forge:{}\n{example}\n```\n", tool.name);
    }
    text
}
