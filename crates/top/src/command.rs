//! `coffer top`.

use clap::Args;
use command_context::client::Context;
use presentation::failure::{Ended, Failure};

use crate::view::View;
use crate::{board, once, screen};

/// Watch runs, calls, approvals, alerts and the pool on one screen, and steer them with single keys.
///
/// Enter shows an item whole, `p` pauses a run, `x` stops it after a yes. An approval is decided on with `a` or `d` once all of it was
/// on the screen. `?` lists the keys.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer top\n         coffer top --once --output json")]
pub struct Top {
    /// Print the lists once and leave, also without a terminal. `--output json`, `yaml` and `name` imply it.
    #[arg(long)]
    once: bool,
}

impl Top {
    pub async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        if self.once || ui.is_data_only() {
            let client = context.connect().await?;
            return once::print(ui, board::collect(&client).await?);
        }
        if !screen::is_possible() {
            return Err(Failure::usage("`coffer top` needs a terminal on standard input and output")
                .with_hint("`coffer top --once` prints the lists once"));
        }
        let client = context.connect().await?;
        screen::run(&context.daemon, client, View::default()).await
    }
}
