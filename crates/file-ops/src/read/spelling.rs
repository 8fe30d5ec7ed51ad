//! The syntax of glob patterns: their components, and forms that have a meaning only in other tools.

use std::borrow::Cow;

/// Splits a pattern at the slashes that are neither in braces nor in brackets nor escaped.
pub(super) fn components(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut class, mut escaped) = (Vec::new(), 0, 0_u32, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'[' => class = true,
            b']' => class = false,
            _ if class => {}
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b'/' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Returns true if a component has no wildcard, so that it matches one name only.
pub(super) fn is_plain(component: &str) -> bool {
    !component.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// Keeps negated classes from matching a slash, which the library would allow.
pub(super) fn whole_components(text: &str) -> Cow<'_, str> {
    if !text.contains("[!") && !text.contains("[^") {
        return text.into();
    }
    let mut kept = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '[']) {
        let negated = rest[at..].starts_with("[!") || rest[at..].starts_with("[^");
        let escaped = rest[at..].starts_with('\\');
        let next = if escaped { rest[at + 1..].chars().next().map_or(0, char::len_utf8) } else { 0 };
        let end = at + 1 + next + usize::from(negated);
        kept.push_str(&rest[..end]);
        rest = &rest[end..];
        if escaped {
            continue;
        }
        // A `]` or `-` in the first position is a member.
        if negated && rest.starts_with([']', '-']) {
            kept.push_str(&rest[..1]);
            rest = &rest[1..];
        }
        let range = kept.ends_with(']') && rest.starts_with('-') && !rest.starts_with("-]");
        if negated && !range {
            kept.push('/');
        }
        let end = rest.find(']').map_or(rest.len(), |end| end + 1);
        kept.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept.into()
}

/// Returns why a pattern is refused that could not match anything as it is written.
pub(super) fn misunderstood(text: &str) -> Option<&'static str> {
    let bytes = text.as_bytes();
    let drive = matches!(bytes, [drive, b':', b'/' | b'\\', ..] if drive.is_ascii_alphabetic());
    let pairs = || bytes.windows(2);
    if text.starts_with('!') {
        return Some(
            "it begins with !, which does not exclude files here; write a pattern for the files that you want, or \\! for a name that begins with !",
        );
    }
    if text == "~" || text.starts_with("~/") {
        return Some("~ is not expanded here; begin with the name of a directory");
    }
    if drive || escaped(text).any(|byte| byte.is_ascii_alphanumeric()) {
        return Some("a backslash or a drive letter names no directory here; write / between names");
    }
    if text.contains("[:") && text.contains(":]") {
        return Some("it has a named class, which is not supported; write ranges, such as [a-z]");
    }
    if in_braces(text).any(|inner| inner.split_once("..").is_some_and(is_range)) {
        return Some("it has a range in braces, which is not supported; write {1,2,3}");
    }
    let alternatives = |at: usize| text[at + 2..].split(')').next().is_some_and(|inner| inner.contains('|'));
    if pairs()
        .enumerate()
        .any(|(at, pair)| b"?*+@!".contains(&pair[0]) && pair[1] == b'(' && alternatives(at))
    {
        return Some("it has alternatives in parentheses; write {a,b}");
    }
    let outside = |inner: &str| {
        inner.split(',').any(|part| {
            ["/", "./", "../", "@project/", "@state/", "@pkg/"].iter().any(|top| part.starts_with(top))
        })
    };
    if in_braces(text).any(outside) && text.starts_with('{') {
        return Some("it has whole paths in braces; write what they have in common before the braces");
    }
    None
}

/// Returns the first byte of each character that a backslash escapes.
fn escaped(text: &str) -> impl Iterator<Item = u8> {
    let mut bytes = text.bytes();
    std::iter::from_fn(move || {
        bytes.find(|&byte| byte == b'\\')?;
        bytes.next()
    })
}

/// Returns the content of each pair of braces that contains no other pair.
fn in_braces(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

fn is_range((from, to): (&str, &str)) -> bool {
    let ends = [from, to.split("..").next().unwrap_or(to)];
    let numbers = ends.iter().all(|end| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit()));
    numbers || ends.iter().all(|end| matches!(end.as_bytes(), [letter] if letter.is_ascii_alphabetic()))
}

/// Returns advice for a pattern that matched no file.
pub(super) fn doubts(text: &str) -> Vec<&'static str> {
    let mut doubts = Vec::new();
    let outside: String = text
        .split('{')
        .enumerate()
        .map(|(count, part)| match part.split_once('}') {
            Some((_, rest)) if count > 0 => rest,
            _ => part,
        })
        .collect();
    if text.contains('[') && !text.contains("\\[") {
        doubts.push("[…] stands for one character, and \\[…\\] for a name with brackets");
    }
    if text.contains('?') {
        doubts.push("? stands for one byte, of which a letter outside of ASCII has more");
    }
    if outside.contains(',') {
        doubts.push("a comma outside of braces is part of a name; {a,b} is the one or the other");
    }
    if text.starts_with('^') || text.ends_with('$') || text.contains(".*\\.") || text.starts_with(".*") {
        doubts.push("the pattern is a glob pattern, not a regular expression");
    } else if text.contains('\\') && !text.contains("\\[") {
        doubts.push("a backslash takes the meaning from the character after it; write / between names");
    }
    let component = |part: &&str| part.contains("**") && !part.trim_matches('*').is_empty();
    if components(text).iter().any(component) {
        doubts.push("** is for directories only as a whole component, such as src/**/*.rs");
    }
    doubts
}
