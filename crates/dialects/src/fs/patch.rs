//! `fs.apply_patch`: changes to a Markdown file's front matter.

use ops::Operation;
use serde_json::Value;
use wire::v1::{self, patch_request::Change};

use crate::arguments::Arguments;
use crate::failure::ParseFailure;
use crate::tool::{Effect, Kind, Parameter, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fs.apply_patch",
    description: "Change the YAML front matter of a Markdown file, atomically; its body stays as it is. `append` adds what \
                  is not in the list yet, `set` overwrites. With patch.ifMatchSha256 (from fs.read) nothing is \
                  written when the file has changed since. Example: {\"path\": \"@state/workflow.md\", \"patch\": \
                  {\"operation\": \"updateFrontmatter\", \"update\": {\"stepsCompleted\": {\"append\": [\"step-1\"]}, \
                  \"currentNodeId\": {\"set\": \"step-2\"}}}}",
    parameters: &[
        Parameter::required("path", Kind::Text, "Markdown file in @project or @state."),
        Parameter::required("patch", Kind::Object(PATCH), "What to change."),
    ],
    operations: &["patch"],
    effect: Effect::Changes,
    repeatable: false,
    operation: parse,
};

const PATCH: &[Parameter] = &[
    Parameter::required("operation", Kind::Choice(&["updateFrontmatter"]), "What to do."),
    Parameter::required("update", Kind::Object(UPDATE), "At least one change."),
    Parameter::optional(
        "ifMatchSha256",
        Kind::Text,
        "Write only if the file's sha256 is this, 64 lower-case hex digits.",
    ),
];

const UPDATE: &[Parameter] = &[
    Parameter::optional("stepsCompleted", of(&[ADD_TEXTS]), "Steps to add."),
    Parameter::optional("variables", of(&[SET_MEMBERS]), "Variables to set; others stay."),
    Parameter::optional("decisionLog", of(&[ADD_OBJECTS]), "Decisions to add, an object each."),
    Parameter::optional("artifacts", of(&[ADD_TEXTS]), "Artifacts to add."),
    Parameter::optional("currentNodeId", of(&[SET_TEXT]), "The new id."),
    Parameter::optional("updatedAt", of(&[SET_TEXT]), "The new time."),
];

const ADD_TEXTS: Parameter = Parameter::required("append", Kind::TextList, "To be added at the end.");
const ADD_OBJECTS: Parameter = Parameter::required("append", Kind::ObjectList, "To be added at the end.");
const SET_MEMBERS: Parameter = Parameter::required("set", Kind::AnyObject, "Names and values.");
const SET_TEXT: Parameter = Parameter::required("set", Kind::Text, "The value.");

const fn of(members: &'static [Parameter]) -> Kind {
    Kind::Object(members)
}

fn parse(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let path = super::path(arguments)?;
    let mut change = arguments.object("patch");
    let if_match_sha256 = super::if_match(&mut change)?;
    let mut update = change.object("update");
    let variables = update.object("variables").object("set").into_members();
    let request = v1::UpdateFrontmatter {
        path,
        if_match_sha256,
        steps_completed_append: update.object("stepsCompleted").list("append"),
        variables_set_json: if variables.is_empty() {
            String::new()
        } else {
            Value::Object(variables).to_string()
        },
        decision_log_append_json: update
            .object("decisionLog")
            .objects("append")
            .iter()
            .map(Value::to_string)
            .collect(),
        artifacts_append: update.object("artifacts").list("append"),
        current_node_id: text(&mut update, "currentNodeId"),
        updated_at: text(&mut update, "updatedAt"),
    };
    Operation::try_from(v1::PatchRequest { change: Some(Change::UpdateFrontmatter(request)) }).map_err(
        |malformed| {
            let field = malformed.field.strip_prefix("patch.update_frontmatter.").unwrap_or("patch");
            ParseFailure::malformed(if field == "path" { "path" } else { "patch" }, &malformed)
        },
    )
}

fn text(update: &mut Arguments, name: &str) -> Option<String> {
    update.has(name).then(|| update.object(name).text("set"))
}
