//! `coffer console`: a link that signs in to the web console.

use clap::Args;
use wire::v1::CreateConsoleLinkRequest;

use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::time;

/// Make a link that signs in to the web console, once and within a minute.
///
/// The session has the rights of the credential of this command: of the user on the Unix socket, of the client certificate, or of the
/// token. It ends with that credential, after 30 minutes without a use, and after 12 hours. Give the link to nobody.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer console")]
pub(crate) struct Console {}

impl Console {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let made = client.console().create_console_link(quick(CreateConsoleLinkRequest {})).await?;
        context.ui.answer_and_talk(made.into_inner(), |made, page, talk| {
            page.word(&made.url).end_line();
            let until = time::moment(made.expires_at.as_ref());
            talk.block(&format!("open it in a browser before {until}; it works once")).end_line();
        })
    }
}
