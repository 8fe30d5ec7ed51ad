//! `native`: six tools with plain text results, for models that work best with text.
//!
//! Errors begin with `Error: `. What a file or a command says is passed on as it is; lines of our own are in square
//! or round brackets.

mod git;
mod matches;
mod render;

use jail::SandboxPath;
use ops::{Grep, Malformed, Operation, Outcome};
use wire::v1::{self, edit_request::Change};

use crate::arguments::Arguments;
use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::tool::{Effect, Kind, Parameter, Tool};

/// The dialect.
pub(crate) struct Native;

impl Dialect for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn tools(&self) -> &'static [Tool] {
        &TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made.operation, outcome)
    }

    fn limits(&self, of_run: &Limits) -> Limits {
        of_run.in_thirty_seconds()
    }

    fn render_pending(&self, _made: &Made<'_>, approval_id: &str) -> String {
        render::render_pending(approval_id)
    }
}

/// The programs of `bash_command`. The gateway refuses arguments with which one of them does more than read.
const PROGRAMS: [&str; 5] = ["cat", "head", "tail", "find", "wc"];

static TOOLS: [Tool; 6] = [
    Tool {
        name: "read_file",
        description: "Read a text file. Paths are relative to the workspace. Over {max_read_bytes} bytes only the beginning \
                      comes back, and a last line in brackets says how to go on. \
                      Example: {\"path\": \"src/main.rs\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File, such as src/main.rs."),
            Parameter::optional(
                "start_line",
                Kind::Integer { least: 1 },
                "First line, counted from 1. Default: the first.",
            ),
            Parameter::optional(
                "end_line",
                Kind::Integer { least: 1 },
                "Last line, inclusive. Default: the last.",
            ),
        ],
        operations: &["read"],
        effect: Effect::Reads,
        repeatable: true,
        operation: read_file,
    },
    Tool {
        name: "edit_file",
        description: "Change or create one file. With command str_replace, old_str must occur exactly once in the \
                      file, white space included; it is replaced by new_str. With command create, the file must not \
                      exist yet; content is its text. At most {max_write_bytes} bytes. \
                      Example: {\"command\": \"str_replace\", \"path\": \"src/main.rs\", \"old_str\": \"let x = 1;\", \
                      \"new_str\": \"let x = 2;\"}",
        parameters: &[
            Parameter::required("command", Kind::Choice(&["str_replace", "create"]), "What to do."),
            Parameter::required("path", Kind::Text, "File, such as src/main.rs."),
            Parameter::optional(
                "old_str",
                Kind::Text,
                "With str_replace: the text to replace, exactly as in the file.",
            ),
            Parameter::optional(
                "new_str",
                Kind::Text,
                "With str_replace: the new text. Empty to remove old_str.",
            ),
            Parameter::optional("content", Kind::Text, "With create: the whole content of the file."),
        ],
        operations: &["edit"],
        effect: Effect::Changes,
        repeatable: false,
        operation: edit_file,
    },
    Tool {
        name: "git_operation",
        description: "Git in the workspace: status, diff, log, show, add, commit. diff takes paths and the flags \
                      --cached --staged --stat --name-only --name-status --shortstat --numstat --no-color. log takes \
                      -n and a number (default 100), --oneline, --no-patch, the forms of diff, a revision or A..B, and \
                      paths after \"--\". show takes a revision or REVISION:PATH, with the flags of log. add takes \
                      paths, or -A for everything. commit takes -m and a message. No hooks run; there is no push. \
                      Example: {\"operation\": \"commit\", \"args\": [\"-m\", \"Fix the parser\"]}",
        parameters: &[
            Parameter::required(
                "operation",
                Kind::Choice(&["status", "diff", "log", "show", "add", "commit"]),
                "The git command.",
            ),
            Parameter::optional("args", Kind::TextList, "Its arguments, one string each. Default: none."),
        ],
        operations: &["git.status", "git.diff", "git.log", "git.show", "git.add", "git.commit"],
        effect: Effect::Adds,
        repeatable: false,
        operation: git::operation,
    },
    Tool {
        name: "grep",
        description: "Search the files below a directory for a regular expression (Rust syntax: no look-around). \
                      Results are lines of the form path:line:text. Skips .git, node_modules, hidden directories and \
                      binary files. At most 50 matches. \
                      Example: {\"pattern\": \"fn \\\\w+_test\", \"path\": \"src\"}",
        parameters: &[
            Parameter::required("pattern", Kind::Text, "Regular expression."),
            Parameter::optional("path", Kind::Text, "Directory or file. Default: the whole workspace."),
            Parameter::optional("case_insensitive", Kind::Flag, "Ignore case. Default false."),
            Parameter::optional(
                "context_lines",
                Kind::Integer { least: 0 },
                "Lines shown around each match, at most 20. Default 0.",
            ),
        ],
        operations: &["grep"],
        effect: Effect::Reads,
        repeatable: true,
        operation: grep,
    },
    Tool {
        name: "bash_command",
        description: "Run one of cat, head, tail, find, wc in the workspace. No shell: no pipes, no quotes, no \
                      wildcards except those of find. Paths stay in the workspace, and nothing may be written, run or \
                      deleted. Ended after {default_timeout_s} seconds. \
                      Example: {\"command\": \"find\", \"args\": [\"src\", \"-name\", \"*.rs\"]}",
        parameters: &[
            Parameter::required("command", Kind::Program(&PROGRAMS), "The program."),
            Parameter::optional("args", Kind::TextList, "Its arguments, one string each. Default: none."),
        ],
        operations: &["exec", "exec.read_only"],
        effect: Effect::Reads,
        repeatable: true,
        operation: bash_command,
    },
    Tool {
        name: "list_files",
        description: "List the direct children of a directory, one name a line; directories end in /. Hidden entries \
                      and symbolic links are left out. At most 200 entries. Example: {\"path\": \"src\"}",
        parameters: &[Parameter::optional("path", Kind::Text, "Directory. Default: the workspace.")],
        operations: &["list"],
        effect: Effect::Reads,
        repeatable: true,
        operation: list_files,
    },
];

fn read_file(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ReadRequest {
        path: arguments.text("path"),
        start_line: arguments.integer("start_line"),
        end_line: arguments.integer("end_line"),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn edit_file(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let create = arguments.text("command") == "create";
    let (command, needed, foreign): (_, &[&str], &[&str]) = if create {
        ("create", &["content"], &["old_str", "new_str"])
    } else {
        ("str_replace", &["old_str", "new_str"], &["content"])
    };
    if let Some(name) = foreign.iter().find(|name| arguments.has(name)) {
        return Err(ParseFailure::argument(name, format!("does not go with the command {command}")));
    }
    if let Some(name) = needed.iter().find(|name| !arguments.has(name)) {
        return Err(ParseFailure::argument(name, format!("is missing: the command {command} needs it")));
    }
    let change = if create {
        Change::Create(v1::CreateFile { content: arguments.text("content") })
    } else {
        Change::StrReplace(v1::StrReplace {
            old_str: arguments.text("old_str"),
            new_str: arguments.text("new_str"),
            replace_all: false,
        })
    };
    let request =
        v1::EditRequest { path: arguments.text("path"), change: Some(change), ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn grep(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let context = arguments.small_integer("context_lines").unwrap_or(0);
    let pattern = arguments.text("pattern");
    let request = v1::GrepRequest {
        path: arguments.text("path"),
        regex: !Grep::is_slashed(&pattern),
        pattern,
        case_insensitive: arguments.flag("case_insensitive"),
        before: Some(context),
        after: Some(context),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn bash_command(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let command = arguments.text("command");
    let args = arguments.list("args").into_iter().map(in_container).collect::<Result<_, _>>()?;
    // The tool has no such argument.
    let timeout_ms = Some(arguments.timeout_ms("timeout_ms"));
    let request = v1::ExecRequest { command, args, timeout_ms, only_reads: true, ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

/// Programs know nothing of aliases, but models read them in other tools' results: `@pkg/a` becomes `/pkg/a`.
fn in_container(arg: String) -> Result<String, ParseFailure> {
    let Some(path) = SandboxPath::from_alias(&arg) else { return Ok(arg) };
    match SandboxPath::parse(path) {
        Ok(path) => Ok(path.container_path()),
        Err(refusal) => Err(ParseFailure::path("args", &refusal)),
    }
}

fn list_files(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ListRequest { path: arguments.text("path"), ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

/// The arguments have the names of the canonical fields, but for these.
fn named(malformed: &Malformed) -> ParseFailure {
    let field = match malformed.field.as_str() {
        "edit.str_replace" => "new_str",
        "grep.before" | "grep.after" => "context_lines",
        field if field.starts_with("git.") => "args",
        field => field.rsplit('.').next().unwrap_or_default(),
    };
    ParseFailure::malformed(field, malformed)
}

#[cfg(test)]
mod tests;
