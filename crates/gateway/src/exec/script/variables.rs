//! `$name` and `${name…}`, as far as a script itself says what they are.

use super::word::is_name;

/// Bytes that a word may come to, about. Its program stands at its beginning.
pub(super) const MAX_EXPANDED: usize = 64 * 1024;

/// A part of a word.
#[derive(Debug, PartialEq, Eq)]
enum Part<'w> {
    Plain(&'w str),
    /// A variable's name, and the text that stands in for it when it has no value.
    Variable(&'w str, &'w str),
}

/// `word` with every variable replaced by what `value` says of its name, or else by its default; `None` when there is
/// none in it.
pub(super) fn expand<'v>(word: &str, value: impl Fn(&str) -> Option<&'v str>) -> Option<String> {
    let parts = parts(word);
    let any = parts.iter().any(|part| matches!(part, Part::Variable(..)));
    any.then(|| {
        let mut text = String::new();
        for part in &parts {
            text.push_str(match part {
                Part::Plain(text) => text,
                Part::Variable(name, default) => value(name).unwrap_or(default),
            });
            if text.len() > MAX_EXPANDED {
                break;
            }
        }
        text
    })
}

/// The names of the variables in `word`.
pub(super) fn names(word: &str) -> Vec<&str> {
    let name = |part| match part {
        Part::Variable(name, _) => Some(name),
        Part::Plain(_) => None,
    };
    parts(word).into_iter().filter_map(name).collect()
}

fn parts(word: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = word;
    // Looked for once: behind it no brace is closed, however many are opened.
    let last_close = word.rfind('}').unwrap_or(0);
    while let Some(at) = rest.find('$') {
        let (plain, behind) = (&rest[..at], &rest[at + 1..]);
        parts.push(Part::Plain(plain));
        let (variable, length) = variable(behind, word.len() - behind.len() <= last_close);
        parts.push(variable.unwrap_or(Part::Plain("$")));
        rest = &behind[length..];
    }
    parts.push(Part::Plain(rest));
    parts
}

/// The variable that begins behind a `$`, and how many bytes it takes. `may_close`: there is a closing brace further on.
fn variable(text: &str, may_close: bool) -> (Option<Part<'_>>, usize) {
    if let Some(inner) = text.strip_prefix('{') {
        let Some(end) = may_close.then(|| inner.find('}')).flatten() else { return (None, 0) };
        return (Some(braced(&inner[..end])), end + 2);
    }
    let first = text.chars().next();
    let length = match first {
        Some('@' | '*' | '#' | '?' | '!' | '-' | '0'..='9') => 1,
        _ => text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len()),
    };
    ((length > 0).then_some(Part::Variable(&text[..length], "")), length)
}

/// What is between `${` and `}`: a name and, behind an operator, perhaps a default.
fn braced(inner: &str) -> Part<'_> {
    let inner = inner.trim_start_matches('!');
    if inner.starts_with(['@', '*']) {
        return Part::Variable(&inner[..1], "");
    }
    let end = inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inner.len());
    let (name, operator) = inner.split_at(end);
    let operator = operator.strip_prefix(':').unwrap_or(operator);
    let default = operator.strip_prefix(['-', '=', '+']).unwrap_or_default();
    Part::Variable(if is_name(name) { name } else { "" }, default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        let value = |name: &str| match name {
            "A" => Some("rm"),
            "@" => Some("a b"),
            "1" => Some("1"),
            _ => None,
        };
        for (word, expected) in [
            ("$A", Some("rm")),
            ("${A}", Some("rm")),
            ("/bin/$A", Some("/bin/rm")),
            ("r$?m", Some("rm")),
            ("r${B}m", Some("rm")),
            ("${B:-rm}", Some("rm")),
            ("${B-rm}x", Some("rmx")),
            ("${A%x}", Some("rm")),
            ("${A[@]}", Some("rm")),
            ("$AB", Some("")),
            ("${@:2}", Some("a b")),
            ("$1$*", Some("1")),
            ("$", None),
            ("a${", None),
            ("rm", None),
            ("é$Aé", Some("érmé")),
        ] {
            assert_eq!(expand(word, value).as_deref(), expected, "{word}");
        }
        assert_eq!(names("$A-${B:-x}$"), ["A", "B"]);
        assert_eq!(names("${A}${B${C"), ["A"]);
    }

    #[test]
    fn variables_that_are_not_closed_cost_one_pass() {
        effort::assert_linear(200_000, |n| "${a:-".repeat(n), |text| assert_eq!(names(text), [""; 0]));
    }
}
