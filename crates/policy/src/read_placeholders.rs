//! Reads `placeholders` of the section `egress`.

use std::collections::BTreeMap;

use document::At;
use egress_rules::{Placeholder, SecretName, Settings, Shape};

use crate::environment::redirects;

pub(super) fn placeholders(at: &At<'_>) -> BTreeMap<String, Placeholder> {
    let entries = at.entries().into_iter().take(Settings::MOST_PLACEHOLDERS + 1);
    entries.filter_map(|(name, at)| Some((name.to_owned(), placeholder(name, &at)?))).collect()
}

fn placeholder(name: &str, at: &At<'_>) -> Option<Placeholder> {
    if redirects(name) {
        at.problem(
            "this variable decides which programs and files are used; no client reads a credential from it",
        );
    }
    let fields = at.fields(&["secret", "shape"]);
    let secret = fields.required("secret").and_then(secret);
    let shape = fields.required("shape").and_then(shape);
    Some(Placeholder { secret: secret?, shape: shape? })
}

fn secret(at: &At<'_>) -> Option<SecretName> {
    let text = at.text()?;
    let problem = match SecretName::parse(text) {
        Ok(name) => return Some(name),
        Err(problem) => problem,
    };
    let meant = text.strip_prefix("${secret:").and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let meant = SecretName::parse(&meant.to_ascii_lowercase()).ok();
    at.problem_hint(problem.to_string(), meant.map(|meant| format!("did you mean `{meant}`?")));
    None
}

fn shape(at: &At<'_>) -> Option<Shape> {
    Shape::parse(at.text()?).map_err(|problem| at.problem(problem.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    fn loaded(placeholders: &str) -> Result<Policy, Vec<String>> {
        let policy = format!(
            "profiles:\n  p:\n    operations: {{}}\n    egress:\n      placeholders:\n        {placeholders}\n\
             roles: {{r: {{allow: \"*\"}}}}\n"
        );
        Policy::from_files([("p.yaml", policy)])
            .map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_placeholder_is_read_and_written_back() {
        let policy = loaded("MODEL_API_KEY: {secret: model, shape: \"key-{40}\"}").unwrap();
        let placeholders = &policy.profile("p").unwrap().egress.settings().placeholders;
        assert_eq!(placeholders["MODEL_API_KEY"].secret.as_str(), "model");
        assert_eq!(placeholders["MODEL_API_KEY"].shape.to_string(), "key-{40}");
        let written = policy.to_yaml().unwrap();
        assert_eq!(Policy::from_files([("again.yaml", &written)]).unwrap().digest(), policy.digest());
    }

    #[test]
    fn every_problem_of_a_placeholder_has_its_place() {
        let at = "p.yaml:6: profiles.p.egress.placeholders";
        for (written, problem) in [
            (
                "A: {secret: Model, shape: \"{40}\"}",
                "A.secret: the name of a secret has 1 to 64 lower-case letters, digits, `_` and `-`, and begins with a letter, such as `model` (did you mean `model`?)",
            ),
            (
                "A: {secret: \"${secret:model}\", shape: \"{40}\"}",
                "A.secret: the name of a secret has 1 to 64 lower-case letters, digits, `_` and `-`, and begins with a letter, such as `model` (did you mean `model`?)",
            ),
            ("A: {secret: model}", "A: `shape` is missing"),
            (
                "A: {secret: model, shape: \"{8}\"}",
                "A.shape: a shape has the number of its random characters in one `{N}`, from 16 to 128, such as `key-{40}`",
            ),
            (
                "PATH: {secret: model, shape: \"{40}\"}",
                "PATH: this variable decides which programs and files are used; no client reads a credential from it",
            ),
        ] {
            assert_eq!(loaded(written).unwrap_err(), [format!("{at}.{problem}")], "{written}");
        }
        let name = loaded("A-B: {secret: model, shape: \"{40}\"}").unwrap_err();
        assert_eq!(
            name,
            ["p.yaml:5: profiles.p.egress.placeholders: \"A-B\" is no name of an environment variable",]
        );
        let many: Vec<String> =
            (0..17).map(|number| format!("A{number}: {{secret: a, shape: \"{{16}}\"}}")).collect();
        let many = loaded(&many.join("\n        ")).unwrap_err();
        assert!(many[0].ends_with("has 17 entries; at most 16 are possible"), "{many:?}");
    }
}
