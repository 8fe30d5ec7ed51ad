//! Measures the host lane, which changes the workspace from outside of the container, against the same work by other means.

mod durable;
mod git;

use crate::args::Args;
use crate::report::Report;

pub(crate) async fn run(args: &Args, report: &mut Report) {
    writes(args, report).await;
    git::run(args, report).await;
}

pub(crate) async fn writes(args: &Args, report: &mut Report) {
    durable::run(args, report).await;
}
