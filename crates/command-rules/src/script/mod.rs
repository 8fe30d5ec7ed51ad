//! The parts of a shell script that can be seen without running it: its simple commands, the texts that it passes to
//! them, and the files that it names.
//!
//! ```text
//! text ─ lexer ─► words of one command ─► command lines
//!          ├────► here-documents, here-strings          inputs
//!          ├────► targets of redirections, values       files
//!          └────► backticks, text of here-documents     lexed again
//! ```
//!
//! It finds the commands whose names the text contains, in quotes or not, in lists, groups, loops and substitutions. It
//! does not see names that a script computes, keeps in variables, or assembles from pieces; [`not_plain`] reports
//! whether there can be any. So the lexer is used to refuse and to show, never to allow.

mod heredoc;
mod lexer;
mod plain;
mod word;

#[cfg(test)]
mod tests;

use lexer::{Lexed, Lexer};
pub(super) use plain::not_plain;
use word::Word;

/// Most levels of texts inside texts. An honest script has three or four.
const MAX_DEPTH: usize = 16;

/// Result of reading a script.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// The command lines between operators, in substitutions and groups, without redirections, keywords and leading
    /// assignments. None is empty.
    pub(super) commands: Vec<Vec<String>>,
    /// Here-documents and here-strings. They are commands if a shell reads them.
    pub(super) inputs: Vec<String>,
    /// Words outside of command lines that may name files.
    pub(super) files: Vec<String>,
    /// A part of the script was not read, because it is nested too deeply.
    pub(super) too_deep: bool,
}

/// Way in which a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Commands,
    /// As between double quotes: only its substitutions are commands.
    Text,
}

/// Reads a script.
pub(super) fn parse(script: &str) -> Script {
    let mut found = Script::default();
    let mut open = vec![(script.to_owned(), Mode::Commands, 0)];
    while let Some((text, mode, depth)) = open.pop() {
        if depth == MAX_DEPTH {
            found.too_deep = true;
            continue;
        }
        let lexed = Lexer::new(&text).run(mode);
        found.too_deep |= lexed.is_cut();
        let Lexed { commands, inputs, files, inner, .. } = lexed;
        for words in commands {
            found.command(&words);
        }
        found.inputs.extend(inputs);
        found.files.extend(files);
        open.extend(inner.into_iter().map(|(text, mode)| (text, mode, depth + 1)));
    }
    found
}

impl Script {
    /// Adds the words of one command, which include keywords and assignments.
    fn command(&mut self, words: &[Word]) {
        let first = words.iter().position(|word| !word.is_prelude()).unwrap_or(words.len());
        let (before, command) = words.split_at(first);
        let values = before.iter().filter_map(Word::assignment).map(|(_, value)| value.to_owned());
        self.files.extend(values);
        let Some(program) = command.first() else { return };
        if program.is("for") || program.is("select") {
            self.files.extend(command.iter().skip(3).map(|word| word.text.clone()));
        }
        // The words are names of variables, functions and values, not programs.
        if ["case", "function", "for", "select"].iter().any(|keyword| program.is(keyword)) {
            return;
        }
        let command: Vec<String> = command.iter().map(|word| word.text.clone()).collect();
        // A variable may be empty, so that the next word is the program.
        let left = command.iter().filter(|word| !word.is_empty() && !word.starts_with('$'));
        let left: Vec<String> = left.cloned().collect();
        if (1..command.len()).contains(&left.len()) {
            self.commands.push(left);
        }
        self.commands.push(command);
    }
}
