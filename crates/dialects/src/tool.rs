//! A tool of a dialect.
//!
//! Each tool is one type. Its fields are the arguments, and its doc comments are the text that the model reads. Both the JSON Schema and
//! the parser are derived from it, so the two cannot disagree.

use operations::{Malformed, Operation, Reason};
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

/// Arguments of one tool.
///
/// The doc comment of the type describes the tool to the model, with an example at its end. The doc comment of a field describes the
/// argument: meaning, unit, default. Limits of a profile appear as their names in braces, such as `{max_read_bytes}`. The type refuses
/// unknown fields, so that no request of a model is ignored.
pub(crate) trait ToolArguments: DeserializeOwned + JsonSchema {
    /// Returns the operation that these arguments describe.
    fn operation(self, limits: &Limits) -> Result<Operation, NoOperation>;

    /// Replaces the refusal of arguments that do not fit the schema, for a tool that has a more exact reason.
    fn refusal(failure: ParseFailure, given: &Map<String, Value>) -> ParseFailure {
        let _ = given;
        failure
    }
}

/// Fields of the API with their content, and names of arguments that differ from them by more than spelling.
///
/// The first name that a tool has is used.
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

/// Reason for which arguments that fit their schema form no operation.
#[derive(Debug, Error)]
pub(crate) enum NoOperation {
    /// Error of validation, in the API's names.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Error of the tool, in its own names.
    #[error(transparent)]
    Failure(#[from] ParseFailure),
}

type Parse = fn(&Tool, Map<String, Value>, &Limits) -> Result<Operation, ParseFailure>;

/// A tool of a dialect.
#[derive(Debug)]
pub struct Tool {
    /// Name, which may contain dots.
    pub name: &'static str,
    /// Canonical operations that it can lead to. The tool is useful if any of them is permitted.
    ///
    /// `exec.read_only` is the part of `exec` that a policy's read-only rule permits.
    pub operations: &'static [&'static str],
    /// Effect on the workspace.
    pub effect: Effect,
    /// True if repeating a call leaves the workspace as the first call did.
    pub repeatable: bool,
    /// Description for the model: purpose, limits, an example of its arguments.
    pub(crate) description: String,
    /// JSON Schema of its arguments.
    pub(crate) schema: Value,
    parse: Parse,
}

/// Possible effect of a tool on the workspace: a hint for clients, no permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Leaves the workspace as it is.
    Reads,
    /// Adds, and removes no file.
    Adds,
    /// May overwrite or remove files.
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

    /// Marks a tool whose repeated call has no further effect.
    pub(crate) fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// Returns the JSON Schema of the arguments, with a run's limits in its descriptions.
    pub fn schema(&self, limits: &Limits) -> Value {
        limits.fill_all(&self.schema)
    }

    /// Returns true if vendors can enforce the schema by a grammar: no optional member, and no open object.
    pub fn is_strict(&self) -> bool {
        is_strict(&self.schema)
    }

    /// Returns the operation that these arguments describe.
    pub(crate) fn parse(
        &self,
        arguments: Map<String, Value>,
        limits: &Limits,
    ) -> Result<Operation, ParseFailure> {
        (self.parse)(self, arguments, limits)
    }

    /// Returns this tool's name for the argument that the API calls `canonical`: `replaceAll` or `replace_all`.
    pub(crate) fn argument(&self, canonical: &str) -> Option<&str> {
        let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
        let mut names = parameters(&self.schema).map(|parameter| parameter.name);
        names.find(|name| plain(name) == plain(canonical))
    }

    /// Returns the argument that holds the API's `field`, such as `edit.str_replace.old_str`.
    fn argument_of<'a>(&'a self, field: &'a str) -> &'a str {
        let last = field.rsplit('.').next().unwrap_or_default();
        let mut renamed = RENAMED.into_iter().filter(|(renamed, _)| {
            field.strip_prefix(renamed).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        self.argument(last).or_else(|| renamed.find_map(|(_, name)| self.argument(name))).unwrap_or(last)
    }

    /// Returns the description with a run's limits in it.
    pub fn described(&self, limits: &Limits) -> String {
        limits.fill(&self.description)
    }

    /// Returns the name for vendors that allow no dots: `fs_read` for `fs.read`.
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
    // The check is as strict as the type. If a future type is stricter, the model sees serde's message.
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

/// Returns the JSON Schema of a type's serialised form.
pub(crate) fn result_schema<T: JsonSchema>() -> Value {
    schema_of::<T>(SchemaSettings::draft2020_12().for_serialize()).into()
}

/// Returns the JSON Schema of a type, without references.
fn schema_of<T: JsonSchema>(settings: SchemaSettings) -> Schema {
    let settings = settings.with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    settings.with_transform(RecursiveTransform(simplify)).into_generator().into_root_schema_for::<T>()
}

/// Removes details that models do not need: titles, Rust's integer formats, line breaks of doc comments, and `null` for optional members.
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
