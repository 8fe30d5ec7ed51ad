//! Code that the arguments of several commands share.

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
pub(crate) use command_context::arguments::one_of;
pub(crate) use verbs;
