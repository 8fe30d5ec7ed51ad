//! Talk on standard error. Characters that could control a terminal are escaped.

use std::io::{IsTerminal as _, Write as _};

use text::Shape;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const OFF: &str = "\x1b[0m";

/// Most characters of a line.
const LONGEST: usize = 400;

/// Standard error, and whether it shows colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Say {
    colour: bool,
}

impl Say {
    /// Examines standard error, `NO_COLOR` and `TERM`.
    pub(crate) fn new() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { colour: std::io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb }
    }

    /// Begins a part of the story.
    pub(crate) fn title(self, text: &str) {
        print("");
        self.styled("", BOLD, text);
    }

    pub(crate) fn line(self, text: &str) {
        self.styled("", "", text);
    }

    /// Adds a remark.
    pub(crate) fn note(self, text: &str) {
        self.styled("  ", DIM, text);
    }

    pub(crate) fn complain(self, text: &str) {
        self.styled("  ", RED, text);
    }

    /// Shows a command line as a person would type it.
    pub(crate) fn typed(self, line: &str) {
        self.styled("  ", BOLD, &format!("$ coffer {line}"));
    }

    /// Shows the first lines of a program's output.
    pub(crate) fn output(self, output: &str, most: usize) {
        let (lines, more) = first_lines(output, most);
        for line in lines {
            self.styled("    ", "", line);
        }
        if more > 0 {
            self.styled("    ", "", &format!("… {more} more lines"));
        }
    }

    fn styled(self, before: &str, style: &str, text: &str) {
        let text = clean(text);
        if self.colour && !style.is_empty() {
            print(&format!("{before}{style}{text}{OFF}"));
        } else {
            print(&format!("{before}{text}"));
        }
    }
}

/// Prints a line of data on standard output. An error is ignored: the reader has gone.
pub(crate) fn data(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{}", text::one_line(text));
}

/// Returns the first lines, and the number of the others.
fn first_lines(output: &str, most: usize) -> (Vec<&str>, usize) {
    let mut lines = output.lines();
    let first = lines.by_ref().take(most).collect();
    (first, lines.count())
}

fn clean(text: &str) -> String {
    text::excerpt_of(text, Shape::Block, LONGEST)
}

fn print(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_after_its_first_lines() {
        assert_eq!(first_lines("a\nb\nc\n", 2), (vec!["a", "b"], 1));
        assert_eq!(first_lines("a\nb\n", 2), (vec!["a", "b"], 0));
        assert_eq!(first_lines("", 2), (vec![], 0));
    }

    #[test]
    fn control_characters_reach_no_terminal() {
        assert!(!clean("\x1b[2Ja").contains('\x1b'));
        assert_eq!(clean(&"x".repeat(LONGEST + 1)).chars().count(), LONGEST + 1);
    }
}
