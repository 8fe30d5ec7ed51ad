//! `coffer run logs`.

use clap::Args;

use super::RunRef;
use crate::audit;
use crate::client::Context;
use crate::failure::Ended;

/// Print what happened in a run: its records in the audit log, one per line.
///
/// The same as `coffer audit tail --run RUN`. `coffer process logs` and `coffer call output` print what commands wrote.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run logs 3f2a9c01 --follow")]
pub(crate) struct Logs {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", default_value = "-")]
    run: RunRef,
    /// Continue with new records.
    #[arg(long, short)]
    follow: bool,
}

impl Logs {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        audit::Tail::of_run(self.run, self.follow).run(context).await
    }
}
