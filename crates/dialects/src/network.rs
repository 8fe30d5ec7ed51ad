//! The network in the description of a tool that runs commands.

use text::one_line;

use crate::policy::Policy;
use crate::tool::Tool;

/// Beginning of the example at the end of a description. Sentences about the policy come before it.
const EXAMPLE: &str = " Example: ";
/// Operations that run commands.
const COMMANDS: [&str; 4] = ["exec", "exec.read_only", "shell", "process"];

/// Returns true if the tool can run a command.
pub(crate) fn runs_commands(tool: &Tool) -> bool {
    tool.operations.iter().any(|operation| COMMANDS.contains(operation))
}

/// Returns a description with the network of commands.
///
/// `first` is the first offered tool that runs commands: it has the words, and the others name it.
pub(crate) fn told(tool: &Tool, description: &str, policy: &Policy<'_>, first: Option<&str>) -> String {
    if !runs_commands(tool) {
        return description.to_owned();
    }
    let said = match (policy.network, first) {
        (None, _) => " There is no network.".to_owned(),
        (Some(_), Some(first)) if first != tool.name => format!(" The network is that of `{first}`."),
        (Some(words), _) => format!(" Network: {}", one_line(words)),
    };
    before_example(description, &said)
}

/// Adds sentences to the end of a description, before its example.
pub(crate) fn before_example(description: &str, said: &str) -> String {
    match description.split_once(EXAMPLE) {
        Some((text, example)) => format!("{text}{said}{EXAMPLE}{example}"),
        None => format!("{description}{said}"),
    }
}
