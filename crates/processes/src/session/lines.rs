//! Writes the lines for the shell of a session, in words that bash, ash, dash and mksh read alike.
//!
//! A command is one line: a mark, the command in quotes for `eval`, with the terminal as its standard input, and a second mark with
//! its exit code. So no alias, function or redirection of the command comes between the shell and the second mark:
//!
//! - `\command` is not an alias, and calls no function in place of a builtin,
//! - marks go to the terminal, wherever the standard streams lead by then,
//! - the output of the shell's traps and traces about marks is discarded.
//!
//! An interrupt, or an error after which shells do not go on, breaks the line off. Then another line writes the mark. In the text
//! of these lines a mark is in two parts, so that a shell that echoes its input shows no mark.

use uuid::Uuid;

/// The end of a mark's first part.
const HALF: usize = 20;

/// Random digits that are secret until the shell writes them. Digits are used because a terminal may change letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new() -> Self {
        Self(format!("{:039}", Uuid::new_v4().as_u128()))
    }

    /// Returns the beginning of the mark on the terminal, an invisible escape sequence. The exit code and BEL follow.
    pub(super) fn beginning(&self) -> Vec<u8> {
        format!("\x1b]{};", self.0).into_bytes()
    }

    /// Returns the shell command that writes the mark, with `code`, a word of the shell, as the exit code.
    fn command(&self, code: &str) -> String {
        let (one, other) = self.0.split_at(HALF);
        format!(
            r"{{ \command printf '\033]%s%s;%s\007' {one} {other} {code} >&9; }} 9>/dev/tty >/dev/null 2>&1"
        )
    }
}

/// Returns the first line of a session.
///
/// Only bash has a history, which would change a text with a `!` in it. An ash takes the end of a background job for the end of
/// its input, and has to ignore that.
pub(super) fn opening(end: &Mark) -> Vec<u8> {
    let quiet = r#"PS1= PS2= PROMPT_COMMAND=; unset ENV; if [ -n "${BASH_VERSION-}" ]; then set +o history +o histexpand; else set -o ignoreeof; fi"#;
    format!("{quiet}\n{}\n", end.command("0")).into_bytes()
}

/// Removes settings of a command that show the shell's words or replace them: functions of these names, traces and bash's traps.
///
/// It is no security barrier, since `unset` can be a function, too: code that changes the shell can choose its exit codes.
const CLEAN: &str = r#"\unset -f unset set trap command printf eval; \set +v +x; [ -z "${BASH_VERSION-}" ] || \trap - DEBUG ERR RETURN"#;

/// Returns the line of a command between its marks. The empty line is for bash, which drops the first word after an error in
/// quotes.
pub(super) fn command(begin: &Mark, end: &Mark, text: &str) -> Vec<u8> {
    let text = text.replace('\'', r"'\''");
    let (begin, end) = (begin.command("0"), end.command("\"$COFFERDAM_CODE\""));
    // `set -v` shows a line when it is read, and not when it is executed.
    let clean = format!("{{ {CLEAN}; }} 2>/dev/null");
    format!("\n{clean}\n{begin}; \\command eval '{text}' </dev/tty; COFFERDAM_CODE=$?; {clean}; {end}\n")
        .into_bytes()
}

/// Returns the line that asks for the mark again.
pub(super) fn probe(end: &Mark) -> Vec<u8> {
    format!("\n{}\n", end.command("\"$?\"")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_word_and_no_line_contains_a_whole_mark() {
        let (begin, end) = (Mark::new(), Mark::new());
        assert_ne!(begin, end);
        let line = String::from_utf8(command(&begin, &end, "echo 'it''s'\nls")).unwrap();
        assert!(line.contains("\\command eval 'echo '\\''it'\\'''\\''s'\\''\nls' </dev/tty; "), "{line}");
        for line in [line, String::from_utf8(probe(&end)).unwrap(), String::from_utf8(opening(&end)).unwrap()]
        {
            assert!(!line.contains(&begin.0) && !line.contains(&end.0), "{line}");
        }
        assert_eq!(end.beginning().len(), 42);
    }
}
