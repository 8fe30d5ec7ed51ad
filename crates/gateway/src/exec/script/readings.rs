//! The command lines that a command's words can mean.
//!
//! As they stand; without the words that may come to nothing; with braces expanded; and with the values that the script
//! gives to its variables and functions. A program is refused when any of them is.

use std::collections::{BTreeMap, BTreeSet};

use super::word::{Word, is_name};
use super::{braces, variables};

/// Values of one variable that are tried.
const MAX_VALUES: usize = 256;
/// Bytes of the command lines that come of values, over the whole script.
const MAX_EXPANDED: usize = 1024 * 1024;

/// Collects the commands of a script.
#[derive(Debug, Default)]
pub(super) struct Readings {
    commands: Vec<Vec<String>>,
    values: BTreeMap<String, Vec<String>>,
    functions: BTreeSet<String>,
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
        if first.is("function") {
            self.functions.extend(words.into_iter().nth(1).map(|name| name.text));
            return;
        }
        if first.is("for") || first.is("select") {
            return self.looped(&words);
        }
        // `export A=rm`, `eval A=rm`: what a builtin may assign.
        for word in &words {
            self.assigned(word);
        }
        self.commands.push(words.into_iter().map(|word| word.text).collect());
    }

    /// The script has a function of this name.
    pub(super) fn function(&mut self, name: String) {
        self.functions.insert(name);
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

    /// `f rm x` and `set -- rm x` say what `"$@"` is.
    fn positional(&mut self) {
        let sets = |words: &&Vec<String>| words[0] == "set" || self.functions.contains(&words[0]);
        let calls: Vec<Vec<String>> = self.commands.iter().filter(sets).cloned().collect();
        for words in calls {
            let options = if words[0] == "set" {
                words[1..].iter().take_while(|word| word.starts_with(['-', '+'])).count()
            } else {
                0
            };
            let words = &words[1 + options..];
            for (index, word) in words.iter().take(9).enumerate() {
                self.value(&(index + 1).to_string(), word);
                // All of them, and what `shift` leaves.
                let rest = words[index..].join(" ");
                self.value("@", &rest);
                self.value("*", &rest);
            }
        }
    }

    /// All readings of all commands, and the values that were assigned.
    pub(super) fn finish(mut self) -> (Vec<Vec<String>>, Vec<String>) {
        self.positional();
        let Self { commands, values, functions: _, texts } = self;
        let mut readings = Vec::with_capacity(commands.len());
        let mut expanded = 0;
        for words in commands {
            readings.push(without_what_may_vanish(&words));
            readings.push(with_braces(&words));
            for reading in with_values(&words, &values) {
                if expanded > MAX_EXPANDED {
                    break;
                }
                expanded += reading.iter().map(|word| word.len() + 1).sum::<usize>();
                readings.push(reading);
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
        let mut reading = Vec::new();
        let mut bytes = 0;
        for word in words {
            let expanded = variables::expand(word, value);
            bytes += expanded.as_ref().unwrap_or(word).len();
            match expanded {
                Some(text) => reading.extend(text.split_whitespace().map(str::to_owned)),
                None => reading.push(word.clone()),
            }
            if bytes > variables::MAX_EXPANDED {
                break;
            }
        }
        reading
    })
}
