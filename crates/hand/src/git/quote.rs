//! Paths as git shows them: as they are, or in double quotes with C escapes when they are unusual.

use super::output::Output;

/// When a path is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spaces {
    /// Spaces alone are no reason.
    Plain,
    /// Spaces, too: `git status --porcelain`.
    Quoted,
}

/// The path, quoted when it has control characters, quotes, backslashes or bytes beyond ASCII.
pub(super) fn quoted(path: &[u8], spaces: Spaces) -> String {
    quoted_with_prefix("", path, spaces)
}

/// The same for `prefix` and `path` together: `"b/\303\244"`.
pub(super) fn quoted_with_prefix(prefix: &str, path: &[u8], spaces: Spaces) -> String {
    let mut text = String::with_capacity(prefix.len() + path.len() + 2);
    text.push_str(prefix);
    let mut unusual = spaces == Spaces::Quoted && path.contains(&b' ');
    for byte in path {
        match escape(*byte) {
            None => text.push(char::from(*byte)),
            Some(escape) => {
                unusual = true;
                text.push('\\');
                match escape {
                    Escape::Letter(letter) => text.push(letter),
                    Escape::Octal => {
                        text.extend([6, 3, 0].map(|shift| char::from(b'0' + (byte >> shift & 7))));
                    }
                }
            }
        }
    }
    if unusual { format!("\"{text}\"") } else { text }
}

/// The path with its side in front, for the header of a diff.
pub(crate) fn quoted_path(side: &str, path: &[u8]) -> String {
    quoted_with_prefix(side, path, Spaces::Plain)
}

/// Whether [`quoted`] would quote it for more than a space.
pub(super) fn is_unusual(path: &[u8]) -> bool {
    path.iter().any(|byte| escape(*byte).is_some())
}

enum Escape {
    Letter(char),
    Octal,
}

fn escape(byte: u8) -> Option<Escape> {
    Some(match byte {
        0x07 => Escape::Letter('a'),
        0x08 => Escape::Letter('b'),
        b'\t' => Escape::Letter('t'),
        b'\n' => Escape::Letter('n'),
        0x0b => Escape::Letter('v'),
        0x0c => Escape::Letter('f'),
        b'\r' => Escape::Letter('r'),
        b'"' => Escape::Letter('"'),
        b'\\' => Escape::Letter('\\'),
        0..0x20 | 0x7f.. => Escape::Octal,
        _ => return None,
    })
}

/// `old => new`, with what both have in common outside of braces: `src/{a => b}/mod.rs`.
pub(super) fn renamed(old: &[u8], new: &[u8]) -> String {
    if is_unusual(old) || is_unusual(new) {
        return format!("{} => {}", quoted(old, Spaces::Plain), quoted(new, Spaces::Plain));
    }
    let prefix = common_prefix(old, new);
    let suffix = common_suffix(old, new, prefix);
    let middle = |path: &[u8]| {
        let end = path.len().saturating_sub(suffix).max(prefix);
        String::from_utf8_lossy(&path[prefix..end]).into_owned()
    };
    let change = format!("{} => {}", middle(old), middle(new));
    if prefix + suffix == 0 {
        return change;
    }
    let before = String::from_utf8_lossy(&old[..prefix]);
    let after = String::from_utf8_lossy(&old[old.len() - suffix..]);
    format!("{before}{{{change}}}{after}")
}

/// Length of the directories in common at the front, slash included.
fn common_prefix(old: &[u8], new: &[u8]) -> usize {
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    old[..same].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1)
}

/// Length in common at the back, from a slash on. With a prefix, its last slash may be this one, too.
fn common_suffix(old: &[u8], new: &[u8], prefix: usize) -> usize {
    let from = prefix.saturating_sub(1);
    let same = old[from..].iter().rev().zip(new[from..].iter().rev()).take_while(|(a, b)| a == b).count();
    let tail = &old[old.len() - same..];
    tail.iter().position(|byte| *byte == b'/').map_or(0, |slash| same - slash)
}

impl Output {
    /// The path and a newline.
    pub(super) fn path_line(&mut self, path: &[u8]) {
        self.push_str(&quoted(path, Spaces::Plain));
        self.push_str("\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_git_does() {
        for (path, plain, spaced) in [
            ("a/b.c", "a/b.c", "a/b.c"),
            ("a b", "a b", "\"a b\""),
            ("ä", "\"\\303\\244\"", "\"\\303\\244\""),
            ("a\tb\"\\\u{1}", "\"a\\tb\\\"\\\\\\001\"", "\"a\\tb\\\"\\\\\\001\""),
        ] {
            assert_eq!(quoted(path.as_bytes(), Spaces::Plain), plain);
            assert_eq!(quoted(path.as_bytes(), Spaces::Quoted), spaced);
        }
        assert_eq!(quoted_with_prefix("b/", "ä".as_bytes(), Spaces::Plain), "\"b/\\303\\244\"");
    }

    #[test]
    fn renames_show_what_changed() {
        for (old, new, shown) in [
            ("a", "b", "a => b"),
            ("d/a", "d/b", "d/{a => b}"),
            ("a/f", "b/f", "{a => b}/f"),
            ("x/a/f", "x/b/f", "x/{a => b}/f"),
            ("a/b/f", "a/f", "a/{b => }/f"),
            ("a/f", "a/b/f", "a/{ => b}/f"),
            ("f", "d/f", "f => d/f"),
        ] {
            assert_eq!(renamed(old.as_bytes(), new.as_bytes()), shown);
        }
    }
}
