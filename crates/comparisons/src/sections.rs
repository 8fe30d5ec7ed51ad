//! Parts of a unified diff with git's headers, one or two for each changed file.
//!
//! The diff is of a host worker. A line within a part begins with a space, `+`, `-` or a backslash, so no content of a file is
//! taken for the header of the next part.

use std::collections::HashMap;

/// Beginning of a part.
const HEADER: &str = "diff --git ";
/// Beginning of the line that replaces content which is no text or too long.
const HIDDEN: &str = "Binary files ";

/// Part of a diff about one path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown<'d> {
    /// Two for a link that was a file, or the reverse.
    pub(crate) parts: Vec<&'d str>,
    pub(crate) added: u64,
    pub(crate) removed: u64,
    /// The content is only named.
    pub(crate) is_hidden: bool,
}

/// Returns the parts of a diff by path, in the form of the API's paths.
pub(crate) fn sections(diff: &str) -> HashMap<String, Shown<'_>> {
    let mut sections: HashMap<String, Shown<'_>> = HashMap::new();
    for part in parts(diff) {
        let Some(path) = path(part) else { continue };
        let shown = sections.entry(path).or_default();
        shown.parts.push(part);
        let mut is_content = false;
        for line in part.split('\n') {
            match line.as_bytes() {
                [b'@', b'@', ..] => is_content = true,
                [b'+', ..] if is_content => shown.added += 1,
                [b'-', ..] if is_content => shown.removed += 1,
                _ if !is_content && line.starts_with(HIDDEN) => shown.is_hidden = true,
                _ => {}
            }
        }
    }
    sections
}

fn parts(diff: &str) -> impl Iterator<Item = &str> {
    let mut rest = diff;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find("\ndiff --git ").map_or(rest.len(), |line_break| line_break + 1);
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}

/// Returns the path of a part. Its header has it twice, in the same length.
fn path(part: &str) -> Option<String> {
    let names = part.lines().next()?.strip_prefix(HEADER)?;
    let first = names.get(..names.len().checked_sub(1)? / 2)?;
    match first.strip_prefix('"') {
        Some(quoted) => shown(&unescaped(quoted.strip_suffix('"')?)?),
        None => first.strip_prefix("a/").map(str::to_owned),
    }
}

/// Undoes the escapes of a quoted path.
fn unescaped(quoted: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(quoted.len()), quoted.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let [escape, after @ ..] = rest else { return None };
        rest = after;
        bytes.push(match escape {
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'"' | b'\\' => *escape,
            b'0'..=b'3' => {
                let [second @ b'0'..=b'7', third @ b'0'..=b'7', after @ ..] = rest else { return None };
                rest = after;
                ((escape - b'0') << 6) | ((second - b'0') << 3) | (third - b'0')
            }
            _ => return None,
        });
    }
    Some(bytes)
}

/// Returns the path as the API shows it: bytes that are no UTF-8 as `\xNN`.
fn shown(path: &[u8]) -> Option<String> {
    let mut shown = String::with_capacity(path.len());
    for chunk in path.strip_prefix(b"a/")?.utf8_chunks() {
        shown.push_str(chunk.valid());
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n---- three\n+diff --git a/x b/x\n\
                        diff --git a/d/b c.txt b/d/b c.txt\nnew file mode 100644\n--- /dev/null\n+++ b/d/b c.txt\t\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n\
                        diff --git a/bin b/bin\nBinary files a/bin and b/bin differ\n";

    #[test]
    fn lines_are_counted_in_the_part_of_their_path() {
        let found = sections(DIFF);
        let counts = |path: &str| (found[path].added, found[path].removed, found[path].is_hidden);
        assert_eq!(counts("a"), (1, 2, false), "content that looks like a header is content");
        assert_eq!(counts("d/b c.txt"), (1, 0, false));
        assert_eq!(counts("bin"), (0, 0, true));
        assert_eq!(found.len(), 3);
        assert!(sections("").is_empty());
    }

    #[test]
    fn a_link_in_place_of_a_file_has_two_parts() {
        let diff = "diff --git a/a b/a\ndeleted file mode 100644\n--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
                    diff --git a/a b/a\nnew file mode 120000\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+b\n";
        let found = sections(diff);
        assert_eq!((found["a"].parts.len(), found["a"].added, found["a"].removed), (2, 1, 1));
    }

    #[test]
    fn quoted_names_are_those_of_the_api() {
        for (name, shown) in [
            (r"\303\244.txt", "ä.txt"),
            (r"a\tb\n\r\\c", "a\tb\n\r\\c"),
            (r#"\"x\""#, "\"x\""),
            (r"d/\377", r"d/\xff"),
        ] {
            let part = format!("diff --git \"a/{name}\" \"b/{name}\"\nnew file mode 100644\n");
            assert_eq!(path(&part).as_deref(), Some(shown), "{name}");
        }
        for broken in
            [r#"diff --git "a/\" "b/\""#, r#"diff --git "a/\9" "b/\9""#, "diff --git ", "x", "diff --git ä"]
        {
            assert_eq!(path(broken), None, "{broken}");
        }
    }
}
