//! Round brackets: groups, substitutions, arrays, functions, patterns.

use std::mem::{replace, take};

use super::super::Mode;
use super::super::word::{Word, is_name};
use super::{Around, Kind, Lexer, Nest};

/// Characters within which a subscript ends.
const MAX_SUBSCRIPT: usize = 256;

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
        self.no_array();
        self.end_command();
        self.nest(Kind::Group);
    }

    /// What comes now is a mistake in an array. Bash gives up the line and goes on with the next, however that was quoted.
    pub(super) fn no_array(&mut self) {
        let Some(nest) = self.nests.last_mut().filter(|nest| nest.kind == Kind::Array) else { return };
        nest.kind = Kind::Group;
        if !replace(&mut self.mistaken, true) {
            let rest: String = self.chars.clone().skip_while(|c| *c != '\n').skip(1).collect();
            self.found.inner.push((rest, Mode::Commands));
        }
    }

    /// `name[…]=`: whatever stands in the brackets belongs to the word, in bash. Where it does not, it is commands.
    pub(super) fn subscript(&mut self) -> bool {
        let names = self.now.word.as_ref().is_some_and(|word| !word.quoted && is_name(&word.text));
        if !names || !self.now.words.iter().all(Word::is_prelude) {
            return false;
        }
        let mut ahead = self.chars.clone();
        let mut depth = 1_usize;
        let closes = |c: &char| {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            depth > 0
        };
        let text: String = ahead.by_ref().take(MAX_SUBSCRIPT).take_while(closes).collect();
        let mut behind = ahead.clone();
        behind.next_if_eq(&'+');
        if depth > 0 || behind.peek() != Some(&'=') {
            return false;
        }
        self.chars = ahead;
        self.word().text.extend(["[", &text, "]"]);
        self.found.inner.push((text, Mode::Commands));
        true
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
