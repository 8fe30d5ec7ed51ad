//! Round brackets: groups, substitutions, arrays, functions, patterns.

use std::mem::{replace, take};

use super::super::word::Word;
use super::{Around, Kind, Lexer, Nest};

impl Lexer<'_> {
    pub(super) fn open(&mut self) {
        if let Some(depth) = &mut self.now.pattern {
            // One bracket may precede a pattern and means nothing.
            *depth += usize::from(self.now.word.is_some());
            return;
        }
        if self.chars.next_if_eq(&')').is_some() {
            // The name of a function is not a command.
            self.end_word();
            self.now.words.clear();
            return;
        }
        if let Some((_, "")) = self.now.word.as_ref().and_then(Word::assignment) {
            return self.nest(Kind::Array);
        }
        self.no_array();
        self.end_command();
        self.nest(Kind::Group);
    }

    /// Treats the open array as a group, because the next character is an error in an array. The rest is read as
    /// commands.
    pub(super) fn no_array(&mut self) {
        if let Some(nest) = self.nests.last_mut().filter(|nest| nest.kind == Kind::Array) {
            nest.kind = Kind::Group;
        }
    }

    pub(super) fn nest(&mut self, kind: Kind) {
        self.arithmetic.push(self.chars.peek() == Some(&'('));
        self.nests.push(Nest { outer: take(&mut self.now), kind });
    }

    pub(super) fn close(&mut self) {
        if let Some(depth) = self.now.pattern {
            self.now.word = None;
            self.now.pattern = depth.checked_sub(1);
            return;
        }
        self.end_command();
        let Some(Nest { outer, kind }) = self.nests.pop() else { return };
        self.arithmetic.pop();
        let inner = replace(&mut self.now, outer);
        match kind {
            Kind::Group => {}
            Kind::Array => self.found.files.extend(inner.words.into_iter().map(|word| word.text)),
            Kind::Substitution(around) => {
                // The output of the substitution is not known, so it counts as empty.
                self.word();
                if around != Around::Command {
                    self.quoted(around);
                }
            }
        }
    }
}
