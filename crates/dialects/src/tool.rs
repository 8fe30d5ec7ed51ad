//! A tool as a dialect offers it. A tool is one type: its fields are the arguments, its doc comments are what the model
//! reads, and both the JSON Schema and the parser come from it, so that the two cannot disagree.

use ops::{Malformed, Operation, Reason};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use text::excerpt;
use thiserror::Error;

use crate::arguments::{check, parameters};
use crate::failure::ParseFailure;
use crate::limits::Limits;

/// The arguments of one tool. The doc comment of the type describes the tool to the model, with an example at its end;
/// the doc comment of a field describes the argument: meaning, unit, default. Limits of a profile are in them as their
/// names in braces, such as `{max_read_bytes}`. The type refuses unknown fields: nothing that a model asks for is passed
/// over.
pub(crate) trait ToolArguments: DeserializeOwned + JsonSchema {
    /// The operation that these arguments mean.
    fn operation(self, limits: &Limits) -> Result<Operation, NoOperation>;

    /// Why arguments that do not fit the schema are refused, for a tool that has a more exact reason.
    fn refusal(failure: ParseFailure, given: &Map<String, Value>) -> ParseFailure {
        let _ = given;
        failure
    }
}

/// Fields of the API, with what is in them, and the names of arguments that differ from theirs by more than spelling. The
/// first that a tool has holds.
pub(crate) const RENAMED: [(&str, &str); 33] = [
    ("edit.create.content", "file_text"),
    ("edit.insert.after_line", "insert_line"),
    ("edit.insert.text", "insert_text"),
    ("edit.str_replace.old_str", "oldString"),
    ("edit.str_replace", "new_str"),
    ("edit.path", "file_path"),
    ("edit.str_replace", "newString"),
    ("edit.str_replace", "new_string"),
    ("edit.str_replace.old_str", "old_string"),
    ("exec.args", "command"),
    ("exec.cwd", "workdir"),
    ("exec.timeout_ms", "timeout"),
    ("git", "args"),
    ("grep.after", "-A"),
    ("grep.after", "context_lines"),
    ("grep.before", "-B"),
    ("grep.before", "context_lines"),
    ("grep.max_matches", "head_limit"),
    ("list.path", "file_path"),
    ("patch", "patch"),
    ("process.args", "command"),
    ("process.cwd", "workdir"),
    ("process.script", "command"),
    ("process.timeout_ms", "timeout"),
    ("read.end_line", "limit"),
    ("read.end_line", "view_range"),
    ("read.path", "file_path"),
    ("read.start_line", "offset"),
    ("read.start_line", "view_range"),
    ("shell.cwd", "workdir"),
    ("shell.script", "command"),
    ("shell.timeout_ms", "timeout"),
    ("write.path", "file_path"),
];

/// Why arguments that fit their schema mean no operation.
#[derive(Debug, Error)]
pub(crate) enum NoOperation {
    /// What validation says, in the API's names.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// What the tool says, in its own names.
    #[error(transparent)]
    Failure(#[from] ParseFailure),
}

type Parse = fn(&Tool, Map<String, Value>, &Limits) -> Result<Operation, ParseFailure>;

/// A tool of a dialect.
#[derive(Debug)]
pub struct Tool {
    /// Its name, perhaps with dots.
    pub name: &'static str,
    /// The canonical operations that it can lead to; it is of use where any of them is permitted. `exec.read_only` is
    /// the part of `exec` that a policy's read-only rule lets through.
    pub operations: &'static [&'static str],
    /// What it does to the workspace.
    pub effect: Effect,
    /// Making the same call again leaves the workspace as the first one did.
    pub repeatable: bool,
    /// For the model: what it does, its limits, an example of its arguments.
    pub(crate) description: String,
    /// The JSON Schema of its arguments.
    pub(crate) schema: Value,
    parse: Parse,
}

/// What a tool may do to the workspace: a hint for clients, no permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It leaves the workspace as it is.
    Reads,
    /// It adds, and removes nothing.
    Adds,
    /// It may overwrite or remove.
    Changes,
}

impl Tool {
    pub(crate) fn of<T: ToolArguments>(
        name: &'static str,
        operations: &'static [&'static str],
        effect: Effect,
    ) -> Self {
        let mut schema = schema_of::<T>(SchemaSettings::draft2020_12());
        let description = match schema.remove("description") {
            Some(Value::String(description)) => description,
            _ => String::new(),
        };
        Self {
            name,
            operations,
            effect,
            repeatable: effect == Effect::Reads,
            description,
            schema: schema.into(),
            parse: parse::<T>,
        }
    }

    /// The same for a tool that changes something, but nothing more when it is called again.
    pub(crate) fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// The JSON Schema of the arguments, with a run's limits in its descriptions.
    pub fn schema(&self, limits: &Limits) -> Value {
        limits.fill_all(&self.schema)
    }

    /// Whether the schema is of the form that vendors hold a model to by grammar: nothing optional, nothing open.
    pub fn is_strict(&self) -> bool {
        is_strict(&self.schema)
    }

    /// The operation that these arguments mean.
    pub(crate) fn parse(
        &self,
        arguments: Map<String, Value>,
        limits: &Limits,
    ) -> Result<Operation, ParseFailure> {
        (self.parse)(self, arguments, limits)
    }

    /// The argument that the API calls `canonical`, as this tool spells it: `replaceAll` is `replace_all`.
    pub(crate) fn argument(&self, canonical: &str) -> Option<&str> {
        let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
        let mut names = parameters(&self.schema).map(|parameter| parameter.name);
        names.find(|name| plain(name) == plain(canonical))
    }

    /// The argument that holds the API's `field`, such as `edit.str_replace.old_str`.
    fn argument_of<'a>(&'a self, field: &'a str) -> &'a str {
        let last = field.rsplit('.').next().unwrap_or_default();
        let mut renamed = RENAMED.into_iter().filter(|(renamed, _)| {
            field.strip_prefix(renamed).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        self.argument(last).or_else(|| renamed.find_map(|(_, name)| self.argument(name))).unwrap_or(last)
    }

    /// The description with a run's limits in it.
    pub fn described(&self, limits: &Limits) -> String {
        limits.fill(&self.description)
    }

    /// The name for vendors that allow no dots: `fs_read` for `fs.read`.
    pub fn undotted_name(&self) -> String {
        self.name.replace('.', "_")
    }
}

fn parse<T: ToolArguments>(
    tool: &Tool,
    arguments: Map<String, Value>,
    limits: &Limits,
) -> Result<Operation, ParseFailure> {
    check(tool.name, &tool.schema, &arguments).map_err(|failure| T::refusal(failure, &arguments))?;
    // The check is as strict as the type. If a new type is stricter, the model reads serde's words.
    let arguments: T = serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let message = format!("the arguments do not fit: {}", excerpt(&error.to_string()));
        ParseFailure::new(Reason::InvalidArgument, message)
    })?;
    let within = |operation: Operation| {
        operation.check_timeout(limits.longest_timeout())?;
        Ok(operation)
    };
    arguments.operation(limits).and_then(within).map_err(|failure| match failure {
        NoOperation::Failure(failure) => failure,
        NoOperation::Malformed(malformed) => {
            ParseFailure::malformed(tool.argument_of(&malformed.field), &malformed)
        }
    })
}

/// The JSON Schema of what a type serialises to.
pub(crate) fn result_schema<T: JsonSchema>() -> Value {
    schema_of::<T>(SchemaSettings::draft2020_12().for_serialize()).into()
}

/// The JSON Schema of a type, in one piece.
fn schema_of<T: JsonSchema>(settings: SchemaSettings) -> Schema {
    let settings = settings.with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    settings.with_transform(RecursiveTransform(simplify)).into_generator().into_root_schema_for::<T>()
}

/// Leaves out what models have no use for: titles, Rust's widths of numbers, line breaks of doc comments, and that an
/// optional member may be `null`.
fn simplify(schema: &mut Schema) {
    schema.remove("title");
    schema.remove("format");
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required =
        |name: &str| required.as_array().is_some_and(|required| required.iter().any(|known| known == name));
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (_, property) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
            if let Some(kind) = property["type"].get(0).cloned() {
                property["type"] = kind;
            }
            if let Some(options) = property.get_mut("enum").and_then(Value::as_array_mut) {
                options.retain(|option| !option.is_null());
            }
        }
    }
}

fn is_strict(schema: &Value) -> bool {
    match schema["type"].as_str() {
        Some("object") => {
            schema["additionalProperties"] == false
                && parameters(schema).all(|parameter| parameter.required && is_strict(parameter.schema))
        }
        Some("array") => is_strict(&schema["items"]),
        _ => true,
    }
}
