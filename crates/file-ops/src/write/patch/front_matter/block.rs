//! Finds the front matter in a file.

use super::Invalid;
use crate::write::newline::Newlines;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// File split around its front matter.
#[derive(Debug)]
pub(super) struct Block<'t> {
    mark: &'t str,
    /// The opening line; `None` if there is no front matter.
    opening: Option<&'t str>,
    yaml: &'t str,
    /// Text from the closing line on.
    rest: &'t str,
    newlines: Newlines,
}

impl<'t> Block<'t> {
    pub(super) fn find(text: &'t str) -> Result<Self, Invalid> {
        let (mark, content) =
            text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text), |content| (BYTE_ORDER_MARK, content));
        let newlines = Newlines::of(content);
        let opening =
            content.split_inclusive('\n').next().filter(|line| is_fence(line) && line.ends_with('\n'));
        let Some(opening) = opening else {
            return Ok(Self { mark, opening: None, yaml: "", rest: content, newlines });
        };
        let behind = &content[opening.len()..];
        let mut end = 0;
        for line in behind.split_inclusive('\n') {
            if is_fence(line) {
                return Ok(Self {
                    mark,
                    opening: Some(opening),
                    yaml: &behind[..end],
                    rest: &behind[end..],
                    newlines,
                });
            }
            end += line.len();
        }
        Err(Invalid::new(Some(1), "front matter begins here, but no line `---` ends it"))
    }

    pub(super) const fn is_there(&self) -> bool {
        self.opening.is_some()
    }

    /// Returns the YAML. Its lines end with `\n` if all lines of the file end alike.
    pub(super) fn yaml(&self) -> String {
        if self.newlines == Newlines::Crlf { self.yaml.replace("\r\n", "\n") } else { self.yaml.to_owned() }
    }

    /// Returns the file with other front matter.
    pub(super) fn with(&self, yaml: &str) -> String {
        let newline = self.newlines.as_str();
        let yaml = if self.newlines == Newlines::Crlf { yaml.replace('\n', "\r\n") } else { yaml.to_owned() };
        let Self { mark, rest, .. } = self;
        match self.opening {
            Some(opening) => [mark, opening, &yaml, rest].concat(),
            None if yaml.is_empty() => [*mark, rest].concat(),
            None => [mark, "---", newline, &yaml, "---", newline, rest].concat(),
        }
    }
}

fn is_fence(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|behind| behind.trim_matches([' ', '\t', '\r', '\n']).is_empty())
}
