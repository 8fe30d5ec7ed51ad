//! What the commands' arguments have in common.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// A noun's verbs: the subcommands, and the way to each.
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

/// A value of an enumeration of the protocol, by its name in small letters; by any other word its default, which stands
/// for all.
pub(crate) fn one_of<T: Clone + Default + Send + Sync + 'static>(
    words: &'static [&'static str],
    named: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).map(move |word| named(&word.to_uppercase()).unwrap_or_default())
}
