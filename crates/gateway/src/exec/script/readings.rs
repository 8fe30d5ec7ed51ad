//! The command lines that a command's words can mean.
//!
//! As they stand; without the words that may come to nothing; with braces expanded; and with the values that the script
//! gives to its variables. A program is refused when any of them is.

use std::collections::BTreeMap;

use super::word::{Word, is_name};
use super::{braces, variables};

/// Values of one variable that are tried.
const MAX_VALUES: usize = 16;
/// Command lines that come of values, over the whole script.
const MAX_EXPANDED: usize = 4_096;

/// Collects the commands of a script.
#[derive(Debug, Default)]
pub(super) struct Readings {
    commands: Vec<Vec<String>>,
    values: BTreeMap<String, Vec<String>>,
    /// Values that may be names of files.
    texts: Vec<String>,
}

impl Readings {
    /// Takes the words of one command, keywords and assignments included.
    pub(super) fn keep(&mut self, mut words: Vec<Word>) {
        let first = words.iter().position(|word| !word.is_prelude()).unwrap_or(words.len());
        for word in words.drain(..first).collect::<Vec<_>>() {
            self.assigned(&word);
        }
        let Some(first) = words.first() else { return };
        if first.is("case") {
            return;
        }
        if first.is("for") || first.is("select") {
            return self.looped(&words);
        }
        if matches!(first.text.as_str(), "export" | "readonly" | "local" | "declare" | "typeset") {
            for word in &words {
                self.assigned(word);
            }
        }
        self.commands.push(words.into_iter().map(|word| word.text).collect());
    }

    fn assigned(&mut self, word: &Word) {
        if let Some((name, value)) = word.assignment() {
            self.value(name, value);
        }
    }

    /// `for name in value …`
    fn looped(&mut self, words: &[Word]) {
        let [_, name, of, values @ ..] = words else { return };
        if of.is("in") && is_name(&name.text) {
            for value in values {
                self.value(&name.text, &value.text);
            }
        }
    }

    fn value(&mut self, name: &str, value: &str) {
        self.texts.push(value.to_owned());
        let values = self.values.entry(name.to_owned()).or_default();
        if !value.is_empty() && values.len() < MAX_VALUES && !values.iter().any(|known| known == value) {
            values.push(value.to_owned());
        }
    }

    /// All readings of all commands, and the values that were assigned.
    pub(super) fn finish(self) -> (Vec<Vec<String>>, Vec<String>) {
        let Self { commands, values, texts } = self;
        let mut readings = Vec::with_capacity(commands.len());
        let mut expanded = 0;
        for words in commands {
            readings.push(without_what_may_vanish(&words));
            readings.push(with_braces(&words));
            if expanded < MAX_EXPANDED {
                let before = readings.len();
                readings.extend(with_values(&words, &values));
                expanded += readings.len() - before;
            }
            readings.push(words);
        }
        readings.retain(|words| !words.is_empty());
        (readings, texts)
    }
}

/// An expansion may give nothing, so that the next word takes its place.
fn without_what_may_vanish(words: &[String]) -> Vec<String> {
    let vanishes = |word: &&String| word.is_empty() || word.starts_with('$');
    if !words.iter().any(|word| vanishes(&word)) {
        return Vec::new();
    }
    let left: Vec<String> = words.iter().filter(|word| !vanishes(word)).cloned().collect();
    let first = left.iter().position(|word| !Word { text: word.clone(), quoted: false }.is_prelude());
    first.map_or_else(Vec::new, |first| left[first..].to_vec())
}

fn with_braces(words: &[String]) -> Vec<String> {
    let expanded: Vec<Vec<String>> = words.iter().map(|word| braces::expand(word)).collect();
    if expanded.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    let each = words.iter().zip(expanded);
    each.flat_map(|(word, expanded)| if expanded.is_empty() { vec![word.clone()] } else { expanded })
        .collect()
}

/// One command line for each value that its variables can have. Words that have no variable in them stay whole.
fn with_values<'r>(
    words: &'r [String],
    values: &'r BTreeMap<String, Vec<String>>,
) -> impl Iterator<Item = Vec<String>> + 'r {
    let of = |name: &str| values.get(name).map_or(&[][..], Vec::as_slice);
    let names = words.iter().flat_map(|word| variables::names(word));
    let most = names.map(|name| of(name).len().max(1)).max().unwrap_or(0);
    (0..most).map(move |round| {
        let value = |name: &str| of(name).get(round).or(of(name).last()).map(String::as_str);
        let each = words.iter().flat_map(|word| match variables::expand(word, value) {
            Some(text) => text.split_whitespace().map(str::to_owned).collect(),
            None => vec![word.clone()],
        });
        each.collect()
    })
}
