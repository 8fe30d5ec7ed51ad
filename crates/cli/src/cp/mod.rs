//! `coffer cp`: copies files and directories into a run and out of it.

mod download;
mod hashed;
mod location;
mod upload;

use std::path::Path;

use clap::Args;
use tonic::Code;

use crate::client::Context;
use crate::failure::{Ended, Failure};
use location::{Location, Remote};

/// Size of one message, in bytes.
const PIECE: usize = 1 << 20;
/// Number of times that a transfer is resumed after its connection broke.
const TRIES: u32 = 3;

/// Copy a file or a directory into a run, or out of it.
///
/// One of the two is RUN:PATH, where PATH is as in `coffer call read`. A file arrives whole or not at all. A directory is
/// copied with all that is in it, in one call. If the destination is empty, ends with a slash or is a directory here, the
/// copy is made in it under its own name. Left out of directories are git's own files, devices, and links that lead out.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer cp ./data 3f2a9c01:data && coffer cp 3f2a9c01:report.pdf .")]
pub(crate) struct Cp {
    /// The source: a path, or RUN:PATH.
    #[arg(value_name = "SOURCE")]
    source: Location,
    /// Where to: RUN:PATH, or a path.
    #[arg(value_name = "DESTINATION")]
    destination: Location,
    /// Only if the file does not exist in the run.
    #[arg(long)]
    create_only: bool,
    /// Wait for the approval if one is needed.
    #[arg(long)]
    wait: bool,
    /// Fail (AWAITING_APPROVAL) if the run waits for a reviewer of another call, instead of waiting for that too.
    #[arg(long)]
    refuse_awaiting_approval: bool,
}

impl Cp {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (create_only, wait, refuse) = (self.create_only, self.wait, self.refuse_awaiting_approval);
        match (self.source, self.destination) {
            (Location::Local(from), Location::Remote(to)) => {
                let (client, run_id) = context.connect_to(&to.run).await?;
                let path = to.beneath(&own_name(&from)?);
                let upload = upload::Upload { client, run_id, path, create_only, wait, refuse };
                if from.is_dir() {
                    upload.directory(context.ui, &from).await
                } else {
                    upload.file(context.ui, &from).await
                }
            }
            (Location::Remote(from), Location::Local(to)) => {
                let (client, run_id) = context.connect_to(&from.run).await?;
                let Remote { path, .. } = from;
                download::Download { client, run_id, path, wait }.to(context.ui, &to).await
            }
            (Location::Local(_), Location::Local(_)) | (Location::Remote(_), Location::Remote(_)) => {
                Err(Failure::usage("one of the two paths must be in a run, as RUN:PATH"))
            }
        }
    }
}

/// Returns the last name of a local path.
fn own_name(path: &Path) -> Result<String, Failure> {
    let unnamed = |_| Failure::usage(format!("{} cannot be opened", path.display()));
    let whole = path.canonicalize().map_err(unnamed)?;
    let name = whole.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| Failure::usage(format!("{} has no name that a run can use", path.display())))
}

/// Returns true if the transfer may be resumed where it stopped.
fn broke(status: &tonic::Status) -> bool {
    crate::failure::broke(status) || matches!(status.code(), Code::Unavailable | Code::Unknown)
}
