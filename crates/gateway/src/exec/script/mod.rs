//! What can be seen in a shell script without running it: its simple commands, the texts that it hands to them, and the
//! files that it names.
//!
//! ```text
//! text ─ lexer ─► words of one command ─► command lines
//!          ├────► here-documents, here-strings          inputs
//!          ├────► targets of redirections, values       files
//!          └────► backticks, text of here-documents     lexed again
//! ```
//!
//! It finds the commands whose names the text contains, in quotes or not, in lists, groups, loops and substitutions.
//! It does not see names that a script computes, keeps in variables, or puts together from pieces: [`not_plain`]
//! tells whether there can be any. So the lexer is used to refuse and to show, never to allow.

mod heredoc;
mod lexer;
mod plain;
mod word;

#[cfg(test)]
mod tests;

use lexer::{Lexed, Lexer};
pub(super) use plain::not_plain;
use word::Word;

/// Texts within texts. An honest script has three or four.
const MAX_DEPTH: usize = 16;

/// What is in a script.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// The command lines between operators, in substitutions and groups, without redirections, keywords and leading
    /// assignments. None is empty.
    pub(super) commands: Vec<Vec<String>>,
    /// Here-documents and here-strings. They are commands, too, where a shell reads them.
    pub(super) inputs: Vec<String>,
    /// Words that are in no command line and may name files.
    pub(super) files: Vec<String>,
    /// There is more that was not looked at.
    pub(super) too_deep: bool,
}

/// How a text is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Commands,
    /// As between double quotes: only its substitutions are commands.
    Text,
}

/// Looks at a script.
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
    /// Takes the words of one command, keywords and assignments included.
    fn command(&mut self, words: &[Word]) {
        let first = words.iter().position(|word| !word.is_prelude()).unwrap_or(words.len());
        let (before, command) = words.split_at(first);
        let values = before.iter().filter_map(Word::assignment).map(|(_, value)| value.to_owned());
        self.files.extend(values);
        let Some(program) = command.first() else { return };
        if program.is("for") || program.is("select") {
            self.files.extend(command.iter().skip(3).map(|word| word.text.clone()));
        }
        // Names of variables, functions and values: no programs.
        if ["case", "function", "for", "select"].iter().any(|keyword| program.is(keyword)) {
            return;
        }
        let command: Vec<String> = command.iter().map(|word| word.text.clone()).collect();
        // A variable may stand for nothing, so that the next word takes its place.
        let left = command.iter().filter(|word| !word.is_empty() && !word.starts_with('$'));
        let left: Vec<String> = left.cloned().collect();
        if (1..command.len()).contains(&left.len()) {
            self.commands.push(left);
        }
        self.commands.push(command);
    }
}
