//! Arguments that several commands have.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Parses a value of an enumeration of the protocol by its lower-case name. Other words give its default, which means all.
pub fn one_of<T: Clone + Default + Send + Sync + 'static>(
    words: &'static [&'static str],
    named: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).map(move |word| named(&word.to_uppercase()).unwrap_or_default())
}
