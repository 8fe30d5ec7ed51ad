//! Composes all text that is printed.
//!
//! An [`Output`] consists of the program's own words, which are `&'static str`, and of foreign text, which is made harmless if a terminal
//! could obey it ([`crate::clean`]). Styles are added to text that was cleaned already. So all escape sequences that reach the terminal
//! come from this program.

use comfy_table::{ContentArrangement, Table, presets};

use text::clean::{Shape, clean};
use text::diff::{Hunk, Kind};

/// Width of the widest cell of a table, in characters.
const WIDEST_CELL: usize = 100;

/// Capabilities of the stream that a page is printed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// True for a terminal, which obeys control characters.
    pub terminal: bool,
    /// True if the stream shows colours and the user wants them.
    pub colour: bool,
    /// Number of columns of a terminal.
    pub width: Option<u16>,
}

impl Look {
    /// A pipe or a file.
    pub const PIPE: Self = Self { terminal: false, colour: false, width: None };
    /// A terminal of 100 columns without colours.
    pub const TERMINAL: Self = Self { terminal: true, colour: false, width: Some(100) };
    /// A terminal of 100 columns with colours.
    pub const COLOUR: Self = Self { terminal: true, colour: true, width: Some(100) };
}

/// Style of a text.
///
/// Green means added or allowed, red removed or refused, and yellow pending or limited. Names are cyan, and headings bold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Green,
    Red,
    Yellow,
    Cyan,
    Dim,
    Bold,
}

impl Style {
    fn style(self) -> console::Style {
        let style = console::Style::new().force_styling(true);
        match self {
            Self::Green => style.green(),
            Self::Red => style.red(),
            Self::Yellow => style.yellow(),
            Self::Cyan => style.cyan(),
            Self::Dim => style.dim(),
            Self::Bold => style.bold(),
        }
    }
}

/// Text that is composed for a stream.
#[derive(Debug)]
pub struct Output {
    look: Look,
    text: String,
}

impl Output {
    pub fn new(look: Look) -> Self {
        Self { look, text: String::new() }
    }

    /// Adds text of this program, which needs no cleaning.
    pub fn own(&mut self, words: &'static str) -> &mut Self {
        self.text.push_str(words);
        self
    }

    /// Adds foreign text, unchanged except on a terminal.
    pub fn raw(&mut self, text: &str) -> &mut Self {
        if self.look.terminal {
            self.block(text)
        } else {
            self.text.push_str(text);
            self
        }
    }

    /// Adds foreign text of several lines, always cleaned.
    pub fn block(&mut self, text: &str) -> &mut Self {
        self.text.push_str(&clean(text, Shape::Block));
        self
    }

    /// Adds foreign text on a single line, always cleaned.
    pub fn word(&mut self, text: &str) -> &mut Self {
        self.text.push_str(&clean(text, Shape::Line));
        self
    }

    /// Adds text like [`Output::word`] in a style.
    pub fn styled(&mut self, style: Style, text: &str) -> &mut Self {
        let text = clean(text, Shape::Line);
        if self.look.colour {
            self.text.push_str(&style.style().apply_to(text).to_string());
        } else {
            self.text.push_str(&text);
        }
        self
    }

    /// Adds text like [`Output::word`], then spaces up to `width`, and one more space.
    pub fn column(&mut self, text: &str, width: usize) -> &mut Self {
        let text = clean(text, Shape::Line);
        let fill = width.saturating_sub(console::measure_text_width(&text)) + 1;
        self.text.push_str(&text);
        self.text.extend(std::iter::repeat_n(' ', fill));
        self
    }

    /// Ends the line, unless there is no text or the line has ended already.
    pub fn end_line(&mut self) -> &mut Self {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self
    }

    /// Adds a diff that users may store: unchanged, except on a terminal, where it is the same as with [`Output::diff`].
    pub fn raw_diff(&mut self, diff: &str) -> &mut Self {
        if self.look.terminal { self.diff(diff) } else { self.raw(diff) }
    }

    /// Adds a unified diff, always cleaned, and coloured if the stream shows colours.
    pub fn diff(&mut self, diff: &str) -> &mut Self {
        let mut hunk = Hunk::default();
        for line in diff.split_terminator('\n') {
            let style = match hunk.kind_of(line) {
                Kind::Name => Some(Style::Bold),
                Kind::Come => Some(Style::Green),
                Kind::Gone => Some(Style::Red),
                Kind::Place => Some(Style::Cyan),
                Kind::Other => None,
            };
            // Tabs remain, because they are the indentation of the code.
            let line = clean(line, Shape::Block);
            match style {
                Some(style) if self.look.colour => {
                    self.text.push_str(&style.style().apply_to(&line).to_string());
                }
                _ => self.text.push_str(&line),
            }
            self.text.push('\n');
        }
        self
    }

    /// Adds a note that a result is incomplete.
    pub fn cut_short(&mut self, truncated: bool, hint: &str) {
        if truncated {
            self.end_line().styled(Style::Yellow, "cut short");
            if !hint.is_empty() {
                self.own(": ").word(hint);
            }
            self.end_line();
        }
    }

    /// Writes the remark of a search or a list, with the option `--all` in place of the API's names.
    pub fn remark(&mut self, truncated: bool, hint: &str) {
        let hint = hint
            .replace("set include_ignored for hidden and ignored ones", "--all adds hidden and ignored ones")
            .replace("set include_hidden, or include_symlinks for links", "--all adds hidden ones and links");
        if truncated {
            self.cut_short(true, &hint);
        } else if !hint.is_empty() {
            self.end_line().word(&hint).end_line();
        }
    }

    /// Adds a line with name and value for each fact that is not empty.
    pub fn facts(&mut self, facts: &[(&'static str, String)]) -> &mut Self {
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
            self.column(name, width).own(" ").word(value).end_line();
        }
        self
    }

    /// Adds a table. Every cell is on a single line.
    pub fn table(
        &mut self,
        header: &[&'static str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> &mut Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(header);
        if let Some(width) = self.look.width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        for row in rows {
            table.add_row(row.iter().map(|cell| clip(&clean(cell, Shape::Line))));
        }
        for line in table.lines() {
            self.text.push_str(line.strip_prefix(' ').unwrap_or(&line).trim_end());
            self.text.push('\n');
        }
        self
    }

    /// Adds a table like [`Output::table`], with a first column for the node of each row if the rows are of several nodes.
    pub fn table_of(
        &mut self,
        nodes: Option<&[String]>,
        header: &[&'static str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> &mut Self {
        let Some(nodes) = nodes else { return self.table(header, rows) };
        let header: Vec<_> = ["NODE"].iter().chain(header).copied().collect();
        let rows = nodes.iter().zip(rows).map(|(node, row)| [vec![node.clone()], row].concat());
        self.table(&header, rows)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn clip(cell: &str) -> String {
    console::truncate_str(cell, WIDEST_CELL, "…").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_raw_in_a_pipe_and_harmless_on_a_terminal() {
        let mut page = Output::new(Look::PIPE);
        page.raw("\x1b[2J");
        assert_eq!(page.as_str(), "\x1b[2J");
        let mut page = Output::new(Look::TERMINAL);
        page.raw("\x1b[2J");
        assert_eq!(page.as_str(), "␛[2J");
    }

    #[test]
    fn previews_are_harmless_everywhere() {
        let mut page = Output::new(Look::PIPE);
        page.block("\x1b]52;c;\x07\n").diff("+\x1b[31m\n").word("a\nb");
        assert_eq!(page.as_str(), "␛]52;c;␇\n+␛[31m\na␊b");
    }

    #[test]
    fn colours_are_put_around_clean_text_only() {
        let mut page = Output::new(Look::COLOUR);
        page.diff("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\x1b[0m\n z");
        assert_eq!(
            page.as_str(),
            "\x1b[1m--- a\x1b[0m\n\x1b[1m+++ b\x1b[0m\n\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-x\x1b[0m\n\x1b[32m+y␛[0m\x1b[0m\n z\n"
        );
        let mut page = Output::new(Look::COLOUR);
        page.diff("@@ -1 +1 @@\n--- x\n+++ y\n");
        assert_eq!(page.as_str(), "\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m--- x\x1b[0m\n\x1b[32m+++ y\x1b[0m\n");
        let mut page = Output::new(Look::TERMINAL);
        page.styled(Style::Red, "x");
        assert_eq!(page.as_str(), "x");
    }

    #[test]
    fn a_cell_cannot_break_its_table() {
        let mut page = Output::new(Look::PIPE);
        page.table(
            &["NAME", "VALUE"],
            [vec!["a\nFORGED".into(), "\x1b[1mb".into()], vec!["c".into(), "d".into()]],
        );
        assert_eq!(page.as_str(), "NAME      VALUE\na␊FORGED  ␛[1mb\nc         d\n");
    }

    #[test]
    fn facts_line_up_and_empty_ones_are_left_out() {
        let mut page = Output::new(Look::PIPE);
        page.facts(&[("id", "1".into()), ("state", "READY".into()), ("failure", String::new())]);
        assert_eq!(page.as_str(), "id       1\nstate    READY\n");
    }
}
