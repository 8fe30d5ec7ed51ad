//! `coffer egress suggest`. Needs no daemon.

use clap::Args;
use egress_sources::{Host, suggest};

use crate::client::Context;
use crate::failure::Ended;

/// Suggest rules for connections out of a run, from the configuration of pip, npm, cargo, go, apt, git and Docker on this host.
///
/// Prints an `egress` section that fits into a profile, with a comment on each rule that names its file or variable. Rules over HTTP
/// only allow reading. User names and passwords are never printed. No connection is made.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer egress suggest")]
pub(crate) struct Suggest {}

impl Suggest {
    #[allow(clippy::unused_async)] // like every other verb
    pub(super) async fn run(self, context: &Context) -> Ended {
        context.ui.answer(suggest(&Host::this()), |suggestions, page| {
            page.raw(&suggestions.to_string());
        })
    }
}
