//! The file names of a unified diff: quoting, time stamps, and the prefixes `a/` and `b/`.

/// Name as it appears in a line, without prefix handling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// The name; `None` is `/dev/null`.
    pub(super) text: Option<String>,
    /// True if the file exists on this side.
    pub(super) exists: bool,
}

impl Name {
    pub(super) fn of(text: String) -> Self {
        Self { text: Some(text), exists: true }
    }
}

/// Splits the names of a `diff --git` line, without its first words. Returns `None` if they cannot be told apart.
pub(super) fn of_git_line(rest: &str) -> Option<(String, String)> {
    if rest.starts_with('"') {
        let (old, rest) = unquote(rest)?;
        let rest = rest.strip_prefix(' ')?;
        let new = if rest.starts_with('"') { unquote(rest)?.0 } else { rest.to_owned() };
        return Some((old, new));
    }
    if let Some(at) = rest.find(" \"") {
        let (new, _) = unquote(&rest[at + 1..])?;
        return Some((rest[..at].to_owned(), new));
    }
    // Names may hold spaces. Names that differ in more than their first directory are in other lines as well.
    let middle = rest.len() / 2;
    let (old, new) = (rest.get(..middle)?, rest.get(middle + 1..)?);
    let told_apart = rest.as_bytes().get(middle) == Some(&b' ') && rest.len() == 2 * middle + 1;
    (told_apart && (old == new || behind_prefixes(old, new).is_some()))
        .then(|| (old.to_owned(), new.to_owned()))
}

/// Parses the rest of a `---` or `+++` line.
///
/// A name ends at a tab. A time stamp of 1970 after it means that the file does not exist, as `diff -N` writes it.
pub(super) fn of_header(rest: &str) -> Option<Name> {
    let rest = rest.strip_suffix('\r').unwrap_or(rest);
    let (name, behind) = if rest.starts_with('"') {
        unquote(rest)?
    } else {
        let (name, behind) = rest.split_once('\t').unwrap_or((rest, ""));
        (name.to_owned(), behind)
    };
    if name == "/dev/null" {
        return Some(Name { text: None, exists: false });
    }
    (!name.is_empty()).then(|| Name { text: Some(name), exists: !is_epoch(behind.trim_start()) })
}

/// Parses the name after `rename from` and similar words, which has no prefix.
pub(super) fn plain(rest: &str) -> Option<String> {
    let rest = rest.strip_suffix('\r').unwrap_or(rest);
    if rest.starts_with('"') {
        return unquote(rest).map(|(name, _)| name);
    }
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// Returns the common rest of two names whose first directories differ: `a/x` and `b/x`, `i/x` and `w/x`, `old/x` and `new/x`.
pub(super) fn behind_prefixes<'n>(old: &'n str, new: &str) -> Option<&'n str> {
    let (left, rest) = old.split_once('/')?;
    let (right, other) = new.split_once('/')?;
    (left != right && rest == other && !rest.is_empty()).then_some(rest)
}

/// Returns `name` without `prefix` and the slash after it, if it begins with them.
pub(super) fn without<'n>(name: &'n str, prefix: &str) -> &'n str {
    name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name)
}

/// Parses a name in git's quotes, and returns it with the text after it. `None` if it is malformed or not UTF-8.
fn unquote(text: &str) -> Option<(String, &str)> {
    let bytes = text.as_bytes();
    let mut name = Vec::new();
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some((String::from_utf8(name).ok()?, &text[at + 1..])),
            b'\\' => {
                let escaped = *bytes.get(at + 1)?;
                at += 2;
                name.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => escaped,
                    b'0'..=b'3' => {
                        let digits = text.get(at - 1..at + 2)?;
                        at += 2;
                        u8::from_str_radix(digits, 8).ok()?
                    }
                    _ => return None,
                });
            }
            byte => {
                name.push(byte);
                at += 1;
            }
        }
    }
}

/// Returns true if a time stamp is the beginning of Unix time, in any time zone.
fn is_epoch(stamp: &str) -> bool {
    let mut words = stamp.split_whitespace();
    let (Some(day), Some(time)) = (words.next(), words.next()) else { return false };
    let (hours, rest) = time.split_once(':').unwrap_or(("", ""));
    let (minutes, seconds) = rest.split_once(':').unwrap_or(("", ""));
    let number = |text: &str| text.parse::<i32>().ok().filter(|number| (0..60).contains(number));
    let (Some(hours), Some(minutes)) = (number(hours), number(minutes)) else { return false };
    if !seconds.trim_end_matches(['0', '.']).is_empty() || !seconds.starts_with("00") {
        return false;
    }
    let zone = words.next().unwrap_or("+0000");
    let Some(offset) = zone.get(1..3).zip(zone.get(3..5)).and_then(|(hours, minutes)| {
        let offset = number(hours)? * 60 + number(minutes)?;
        match zone.as_bytes().first() {
            Some(b'+') => Some(offset),
            Some(b'-') => Some(-offset),
            _ => None,
        }
    }) else {
        return false;
    };
    let local = hours * 60 + minutes;
    match day {
        "1970-01-01" => local == offset,
        "1969-12-31" => local - 24 * 60 == offset,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str) -> Name {
        Name::of(name.to_owned())
    }

    #[test]
    fn names_end_at_a_tab_and_may_be_quoted() {
        assert_eq!(of_header("a/x y.rs"), Some(given("a/x y.rs")));
        assert_eq!(of_header("a/x y.rs\t"), Some(given("a/x y.rs")));
        assert_eq!(of_header("x.rs\t2024-05-01 10:00:00.000000000 +0200"), Some(given("x.rs")));
        assert_eq!(of_header("x.rs\r"), Some(given("x.rs")));
        assert_eq!(of_header(r#""a/caf\303\251\t\"\\""#), Some(given("a/café\t\"\\")));
        for malformed in [r#""a"#, r#""a\q""#, r#""a\3"#, r#""\377""#, "", "\t"] {
            assert_eq!(of_header(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn epoch_timestamp_means_a_missing_file() {
        for absent in [
            "/dev/null",
            "x\t1970-01-01 00:00:00.000000000 +0000",
            "x\t1970-01-01 02:00:00 +0200",
            "x\t1969-12-31 19:00:00.000000000 -0500",
        ] {
            assert!(of_header(absent).is_some_and(|name| !name.exists), "{absent}");
        }
        for there in ["x\t1970-01-01 00:00:00.000000000 +0200", "x\t1970-01-01 00:00:01 +0000", "x\t1970"] {
            assert_eq!(of_header(there), Some(given("x")), "{there}");
        }
    }

    #[test]
    fn git_lines_are_split_only_if_unambiguous() {
        let pair = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
        assert_eq!(of_git_line("a/x b/x"), pair("a/x", "b/x"));
        assert_eq!(of_git_line("x x"), pair("x", "x"));
        assert_eq!(of_git_line("a/x y b/x y"), pair("a/x y", "b/x y"));
        assert_eq!(of_git_line(r#""a/\t" "b/\t""#), pair("a/\t", "b/\t"));
        assert_eq!(of_git_line(r#"a/x "b/\t""#), pair("a/x", "b/\t"));
        assert_eq!(of_git_line("a/x b/y"), None);
        assert_eq!(behind_prefixes("a/d/x", "b/d/x"), Some("d/x"));
        assert_eq!(behind_prefixes("d/x", "d/x"), None);
        assert_eq!(without("a/x", "a"), "x");
        assert_eq!(without("ab/x", "a"), "ab/x");
    }
}
