//! A tool as a dialect offers it: one table from which both the JSON Schema and the parser of arguments come, so that
//! the two cannot disagree.

use ops::{Operation, Reason};
use serde_json::{Map, Value, json};

use crate::arguments::Arguments;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use text::excerpt;

/// A tool of a dialect.
#[derive(Debug)]
pub struct Tool {
    /// Its name, perhaps with dots.
    pub name: &'static str,
    /// For the model: what it does, its limits, an example of its arguments. Limits that a profile sets stand as their
    /// names in braces: see [`Tool::described`].
    pub description: &'static str,
    /// Its arguments. A call with any other is refused, with that one's name: nothing that a model asks for is passed over.
    pub parameters: &'static [Parameter],
    /// The canonical operations that it can lead to; it is of use where any of them is permitted. `exec.read_only` is
    /// the part of `exec` that a policy's read-only rule lets through.
    pub operations: &'static [&'static str],
    /// What it does to the workspace.
    pub effect: Effect,
    /// Making the same call again leaves the workspace as the first one did.
    pub repeatable: bool,
    /// Arguments that fit `parameters` → operation.
    pub(crate) operation: fn(&mut Arguments) -> Result<Operation, ParseFailure>,
}

/// What a tool may do to the workspace: a hint for clients, no permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing.
    Reads,
    /// It adds, and removes nothing.
    Adds,
    /// It may overwrite or remove.
    Changes,
}

/// An argument of a tool, or a member of one.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its key in the JSON object.
    pub name: &'static str,
    /// It has to be there. An optional one may be `null`, too.
    pub required: bool,
    /// What it is.
    pub kind: Kind,
    /// For the model: meaning, unit, default.
    pub description: &'static str,
}

impl Parameter {
    pub(crate) const fn required(name: &'static str, kind: Kind, description: &'static str) -> Self {
        Self { name, required: true, kind, description }
    }

    pub(crate) const fn optional(name: &'static str, kind: Kind, description: &'static str) -> Self {
        Self { name, required: false, kind, description }
    }
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// One of these programs; any other is not allowed.
    Program(&'static [&'static str]),
    /// A whole number, not less than this.
    Integer {
        /// The least one.
        least: u64,
    },
    /// Two whole numbers.
    LineRange,
    /// A boolean.
    Flag,
    /// An array of strings.
    TextList,
    /// An array of objects, whatever is in them.
    ObjectList,
    /// An object, whatever is in it.
    AnyObject,
    /// An object with these members and no others.
    Object(&'static [Parameter]),
}

impl Tool {
    /// The JSON Schema of the arguments.
    pub fn schema(&self, limits: &Limits) -> Value {
        object_schema(self.parameters, limits)
    }

    /// Whether the schema is of the form that vendors hold a model to by grammar: nothing optional, nothing open.
    pub fn is_strict(&self) -> bool {
        self.parameters.iter().all(Parameter::is_strict)
    }

    /// The argument that the API calls `canonical`, as this tool spells it: `replaceAll` is `replace_all`.
    pub(crate) fn argument(&self, canonical: &str) -> Option<&'static str> {
        let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
        let names = self.parameters.iter().map(|parameter| parameter.name);
        names.into_iter().find(|name| plain(name) == plain(canonical))
    }

    /// The description with a run's limits in it.
    pub fn described(&self, limits: &Limits) -> String {
        limits.fill(self.description)
    }

    /// The name for vendors that allow no dots: `fs_read` for `fs.read`.
    pub fn undotted_name(&self) -> String {
        self.name.replace('.', "_")
    }
}

fn object_schema(members: &[Parameter], limits: &Limits) -> Value {
    let properties: Map<String, Value> =
        members.iter().map(|member| (member.name.to_owned(), member.schema(limits))).collect();
    let required: Vec<&str> =
        members.iter().filter(|member| member.required).map(|member| member.name).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

impl Parameter {
    fn is_strict(&self) -> bool {
        self.required
            && match self.kind {
                Kind::ObjectList | Kind::AnyObject => false,
                Kind::Object(members) => members.iter().all(Self::is_strict),
                _ => true,
            }
    }

    fn schema(&self, limits: &Limits) -> Value {
        let mut schema = match self.kind {
            Kind::Text => json!({"type": "string"}),
            Kind::Choice(options) | Kind::Program(options) => json!({"type": "string", "enum": options}),
            Kind::Integer { least } => json!({"type": "integer", "minimum": least}),
            Kind::LineRange => {
                json!({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2})
            }
            Kind::Flag => json!({"type": "boolean"}),
            Kind::TextList => json!({"type": "array", "items": {"type": "string"}}),
            Kind::ObjectList => json!({"type": "array", "items": {"type": "object"}}),
            Kind::AnyObject => json!({"type": "object"}),
            Kind::Object(members) => object_schema(members, limits),
        };
        schema["description"] = limits.fill(self.description).into();
        schema
    }
}

impl Kind {
    /// Whether a value is of this kind.
    pub(crate) fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Choice(options) | Self::Program(options) => {
                value.as_str().is_some_and(|text| options.contains(&text))
            }
            Self::Integer { least } => value.as_u64().is_some_and(|number| number >= least),
            Self::LineRange => {
                value.as_array().is_some_and(|ends| ends.len() == 2 && ends.iter().all(Value::is_i64))
            }
            Self::Flag => value.is_boolean(),
            Self::TextList => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
            Self::ObjectList => value.as_array().is_some_and(|items| items.iter().all(Value::is_object)),
            Self::AnyObject => value.is_object(),
            Self::Object(members) => misfit(members, value).is_none(),
        }
    }

    /// What to say of the value of `name` that does not fit.
    pub(crate) fn refuse(self, name: &str, value: &Value) -> ParseFailure {
        let expectation = match (self, value) {
            (Self::Program(programs), Value::String(program)) => return not_allowed(name, program, programs),
            (Self::Text, _) => "must be a string".to_owned(),
            (Self::Choice(options) | Self::Program(options), _) => {
                format!("must be one of {}", options.join(", "))
            }
            (Self::Integer { least }, _) => format!("must be a whole number, {least} or greater"),
            (Self::LineRange, _) => "must be two whole numbers, such as [1, 40]".to_owned(),
            (Self::Flag, _) => "must be true or false".to_owned(),
            (Self::TextList, _) => "must be an array of strings".to_owned(),
            (Self::ObjectList, _) => "must be an array of objects".to_owned(),
            (Self::AnyObject, _) => "must be an object".to_owned(),
            (Self::Object(members), value) => {
                let misfit = misfit(members, value).unwrap_or_default();
                format!("must be an object of its schema: {misfit}")
            }
        };
        ParseFailure::argument(name, expectation)
    }
}

/// What is wrong with an object, at the first member that is wrong.
fn misfit(members: &[Parameter], value: &Value) -> Option<String> {
    let Some(object) = value.as_object() else { return Some("it is no object".to_owned()) };
    let unknown = object.keys().find(|key| members.iter().all(|member| member.name != **key));
    if let Some(unknown) = unknown {
        let known: Vec<&str> = members.iter().map(|member| member.name).collect();
        return Some(format!("{} is none of its members, which are {}", excerpt(unknown), known.join(", ")));
    }
    members.iter().find_map(|member| match object.get(member.name) {
        None | Some(Value::Null) if !member.required => None,
        None => Some(format!("{} is missing", member.name)),
        Some(value) if member.kind.fits(value) => None,
        Some(value) => Some(member.kind.refuse(member.name, value).message),
    })
}

fn not_allowed(name: &str, program: &str, programs: &[&str]) -> ParseFailure {
    let message = format!("Command not allowed: {}; use one of {}", excerpt(program), programs.join(", "));
    let failure = ParseFailure::new(Reason::CommandNotAllowed, message);
    ParseFailure { field: Some(name.to_owned()), ..failure }
}
