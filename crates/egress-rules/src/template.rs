//! Texts with secrets in them.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::secret_name::SecretName;

/// Longest template, bytes.
const MOST: usize = 1_024;
/// Beginning of the place of a secret.
const OPEN: &str = "${secret:";

/// A text with at least one secret in it, such as `Bearer ${secret:model}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part {
    Text(String),
    Secret(SecretName),
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        if text.len() > MOST {
            return Err(BadTemplate::Long);
        }
        if let Some(other) = text.chars().find(|c| !c.is_ascii_graphic() && *c != ' ') {
            return Err(BadTemplate::Character(other));
        }
        // A value of a header has no space at its ends, and a server would not see one.
        if text.trim() != text {
            return Err(BadTemplate::Space);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (within, next) = after.split_once('}').ok_or(BadTemplate::Open)?;
            let name = within.strip_prefix("secret:").ok_or(BadTemplate::Kind)?;
            let name = SecretName::parse(name).map_err(|_| BadTemplate::Name { meant: meant(name) })?;
            parts.extend((!before.is_empty()).then(|| Part::Text(before.to_owned())));
            parts.push(Part::Secret(name));
            rest = next;
        }
        if parts.is_empty() {
            return Err(BadTemplate::NoSecret);
        }
        parts.extend((!rest.is_empty()).then(|| Part::Text(rest.to_owned())));
        Ok(Self(parts))
    }

    /// Returns the secrets in it. One that is in it twice is returned twice.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.0.iter().filter_map(|part| match part {
            Part::Secret(name) => Some(name),
            Part::Text(_) => None,
        })
    }

    /// Returns the text with the values of its secrets. `None` if one of them has none.
    pub fn fill<'v>(&self, value: impl Fn(&SecretName) -> Option<&'v str>) -> Option<Zeroizing<String>> {
        let pieces: Option<Vec<&str>> = self
            .0
            .iter()
            .map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                Part::Secret(name) => value(name),
            })
            .collect();
        let pieces = pieces?;
        // A string that grows leaves copies of its beginning in freed memory.
        let mut filled = Zeroizing::new(String::with_capacity(pieces.iter().map(|piece| piece.len()).sum()));
        for piece in pieces {
            filled.push_str(piece);
        }
        Some(filled)
    }
}

/// Returns the name that was probably meant.
fn meant(name: &str) -> Option<String> {
    let meant = name.trim().to_ascii_lowercase().replace([' ', '.'], "-");
    SecretName::parse(&meant).is_ok().then_some(meant)
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Secret(name) => write!(f, "{OPEN}{name}}}"),
        })
    }
}

impl TryFrom<String> for Template {
    type Error = BadTemplate;

    fn try_from(text: String) -> Result<Self, BadTemplate> {
        Self::parse(&text)
    }
}

impl From<Template> for String {
    fn from(template: Template) -> Self {
        template.to_string()
    }
}

/// A text that is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    #[error("a value with a secret has at most {MOST} bytes")]
    Long,
    #[error("a value with a secret consists of visible ASCII characters and spaces; it has {0:?}")]
    Character(char),
    #[error("a value cannot begin or end with a space")]
    Space,
    #[error("`${{` has no `}}`; write `${{secret:NAME}}`")]
    Open,
    #[error("`${{…}}` is the place of a secret alone; write `${{secret:NAME}}`")]
    Kind,
    #[error("{}", crate::secret_name::BadSecretName)]
    Name { meant: Option<String> },
    #[error("it has no secret; write `${{secret:NAME}}` where its value belongs, and never the value itself")]
    NoSecret,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &SecretName) -> Option<&'static str> {
        match name.as_str() {
            "model" => Some("m$1"),
            "other" => Some("${secret:model}"),
            _ => None,
        }
    }

    #[test]
    fn a_template_is_filled_once_and_written_as_it_was() {
        for (text, filled) in [
            ("${secret:model}", Some("m$1")),
            ("Bearer ${secret:model}", Some("Bearer m$1")),
            ("a=${secret:model}, b=${secret:model};$}{", Some("a=m$1, b=m$1;$}{")),
            ("${secret:other}${secret:model}", Some("${secret:model}m$1")),
            ("${secret:model}${secret:absent}", None),
        ] {
            let template = Template::parse(text).unwrap();
            assert_eq!(template.fill(values).as_deref().map(String::as_str), filled, "{text}");
            assert_eq!(template.to_string(), text);
        }
        let template = Template::parse("${secret:b} ${secret:a} ${secret:b}").unwrap();
        let names: Vec<&str> = template.secrets().map(SecretName::as_str).collect();
        assert_eq!(names, ["b", "a", "b"]);
    }

    #[test]
    fn texts_that_are_no_template_are_refused() {
        let name = |meant: Option<&str>| BadTemplate::Name { meant: meant.map(str::to_owned) };
        for (text, error) in [
            ("", BadTemplate::NoSecret),
            ("Bearer x", BadTemplate::NoSecret),
            ("$secret:model", BadTemplate::NoSecret),
            ("Bearer ${secret:model", BadTemplate::Open),
            ("${model}", BadTemplate::Kind),
            ("${env:HOME}", BadTemplate::Kind),
            ("${ secret:model}", BadTemplate::Kind),
            ("${secret:Model}", name(Some("model"))),
            ("${secret: model }", name(Some("model"))),
            ("${secret:}", name(None)),
            ("${secret:a/b}", name(None)),
            ("${secret:model}\r\nHost: evil", BadTemplate::Character('\r')),
            ("${secret:model}\t", BadTemplate::Character('\t')),
            ("é${secret:model}", BadTemplate::Character('é')),
            (" ${secret:model}", BadTemplate::Space),
            ("${secret:model} ", BadTemplate::Space),
        ] {
            assert_eq!(Template::parse(text), Err(error), "{text:?}");
        }
        let long = format!("{}${{secret:model}}", "a".repeat(1_010));
        assert_eq!(Template::parse(&long), Err(BadTemplate::Long));
    }

    #[test]
    fn a_refusal_says_how_to_write_it() {
        let refusal = |text| Template::parse(text).unwrap_err().to_string();
        assert_eq!(refusal("${model}"), "`${…}` is the place of a secret alone; write `${secret:NAME}`");
        assert_eq!(refusal("${secret:a"), "`${` has no `}`; write `${secret:NAME}`");
        assert!(refusal("Bearer x").contains("never the value itself"));
    }
}
