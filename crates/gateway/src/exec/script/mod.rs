//! What can be seen in a shell script without running it: its simple commands, the texts that it hands to them, and the
//! files that it names.
//!
//! ```text
//! text ─ lexer ─► words of one command ─ readings ─► command lines
//!          ├────► here-documents, here-strings          inputs
//!          ├────► targets of redirections, values       files
//!          └────► backticks, text of here-documents     lexed again
//! ```
//!
//! It finds what is written plainly, quoted, escaped or put together from braces and from variables that the script
//! itself sets. It does not run anything: what a program computes, decodes or reads from a file is not seen. So it is
//! used to refuse and to show, never to allow, and where two shells differ, or a text can be read in two ways, both
//! readings are given.

mod ansi;
mod braces;
mod heredoc;
mod lexer;
mod readings;
mod variables;
mod word;

#[cfg(test)]
mod tests;

use lexer::{Lexed, Lexer};
use readings::Readings;

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
    /// As commands.
    Commands,
    /// As between double quotes: only its substitutions are commands.
    Text,
}

/// Looks at a script.
pub(super) fn parse(script: &str) -> Script {
    let mut found = Script::default();
    let mut readings = Readings::default();
    let mut open = vec![(script.to_owned(), Mode::Commands, 0)];
    while let Some((text, mode, depth)) = open.pop() {
        if depth == MAX_DEPTH {
            found.too_deep = true;
            continue;
        }
        let lexed = Lexer::new(&text).run(mode);
        found.too_deep |= lexed.is_cut();
        let Lexed { commands, functions, inputs, files, inner, .. } = lexed;
        for words in commands {
            readings.keep(words);
        }
        for name in functions {
            readings.function(name);
        }
        found.inputs.extend(inputs);
        found.files.extend(files);
        open.extend(inner.into_iter().map(|(text, mode)| (text, mode, depth + 1)));
    }
    let (commands, values) = readings.finish();
    found.commands = commands;
    found.files.extend(values);
    found
}
