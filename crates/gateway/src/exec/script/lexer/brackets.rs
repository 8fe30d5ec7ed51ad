//! Round brackets: groups, substitutions, arrays, functions, patterns.

use std::mem::{replace, take};

use super::super::word::Word;
use super::{Around, Kind, Lexer, Nest};

impl Lexer<'_> {
    pub(super) fn open(&mut self) {
        if let Some(depth) = &mut self.now.pattern {
            // One bracket may stand before a pattern and means nothing.
            *depth += usize::from(self.now.word.is_some());
            return;
        }
        if self.chars.next_if_eq(&')').is_some() {
            // The name of a function is no command.
            self.end_word();
            let name = take(&mut self.now.words).pop();
            self.found.functions.extend(name.map(|name| name.text));
            return;
        }
        if self
            .now
            .word
            .as_ref()
            .is_some_and(|word| word.assignment().is_some_and(|(_, value)| value.is_empty()))
        {
            return self.nest(Kind::Array);
        }
        self.end_command();
        self.nest(Kind::Group);
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
            Kind::Array => self.assign_all(inner.words),
            Kind::Substitution(around) => {
                // What comes of it is not known: nothing.
                self.word();
                if around != Around::Command {
                    self.quoted(around);
                }
            }
        }
    }

    /// Each value of an array is one that its name may have.
    fn assign_all(&mut self, values: Vec<Word>) {
        let Some(name) = self.now.word.take() else { return };
        for value in values {
            let text = format!("{}{}", name.text, value.text);
            self.found.commands.push(vec![Word { text, quoted: true }]);
        }
    }
}
