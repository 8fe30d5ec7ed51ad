//! Code that the arguments of several commands share.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Defines the subcommands of a noun, and calls the one that was given.
macro_rules! verbs {
    ($($(#[$meta:meta])* $verb:ident($arguments:ty)),* $(,)?) => {
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Command {
            $($(#[$meta])* $verb($arguments),)*
        }

        impl Command {
            pub(crate) async fn run(self, context: &crate::client::Context) -> crate::failure::Ended {
                match self {
                    $(Self::$verb(verb) => verb.run(context).await,)*
                }
            }
        }
    };
}
pub(crate) use verbs;

/// Parses a value of an enumeration of the protocol by its lower-case name. Other words give its default, which means all.
pub(crate) fn one_of<T: Clone + Default + Send + Sync + 'static>(
    words: &'static [&'static str],
    named: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).map(move |word| named(&word.to_uppercase()).unwrap_or_default())
}
