//! `coffer bundle create`.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use ::audit::bundle::MemberWriter;
use clap::Args;
use tokio_stream::StreamExt as _;
use wire::v1::create_bundle_response::Event;
use wire::v1::{BundleMade, CreateBundleRequest};

use crate::client::{Client, Context};
use crate::failure::{Ended, Failure};
use crate::quantity::count;
use crate::run_ref::RunRef;
use crate::ui::Ui;

/// Create a bundle of a run for `coffer bundle verify`: its description, its records with the proof that they
/// are in the log, the policies that decided, and its changes.
///
/// The log records that the bundle was created. Secrets are redacted as in the log. The diff of the workspace
/// is that of an overlay or, for a living run, that of git.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer bundle create 3f2a9c01 run.bundle")]
pub(crate) struct Create {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The new file to write.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Leave out the diff of the workspace.
    #[arg(long)]
    without_diff: bool,
    /// Create it even if the log no longer has the run's first records. The bundle says so.
    #[arg(long)]
    allow_incomplete: bool,
}

impl Create {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = CreateBundleRequest {
            run_id: self.run.resolve(&client).await?,
            without_diff: self.without_diff,
            allow_incomplete: self.allow_incomplete,
        };
        // Fails if the file exists.
        let file = File::create_new(&self.file)
            .map_err(|error| Failure::failed(format!("cannot create {}: {error}", self.file.display())))?;
        let made = receive(&client, request, context.ui, file).await;
        if made.is_err() {
            // A partial bundle is useless. An error of its removal is ignored, because the first error is reported.
            let _ = std::fs::remove_file(&self.file);
        }
        context.ui.answer_and_talk(made?, |made, _, talk| {
            talk.word(&count(made.records, "record", "records"))
                .own(" in ")
                .word(&self.file.display().to_string());
            talk.own(", on record as ").word(&made.sequence.to_string()).own("\n");
            for note in &made.notes {
                talk.word(note).end_line();
            }
        })
    }
}

async fn receive(
    client: &Client,
    request: CreateBundleRequest,
    ui: Ui,
    file: File,
) -> Result<BundleMade, Failure> {
    let mut events = client.audit().create_bundle(request).await?.into_inner();
    let bar = ui.count_bar();
    let disk = file.try_clone()?;
    let mut out = MemberWriter::new(file);
    let mut made = None;
    while let Some(response) = events.next().await {
        match response?.event {
            Some(Event::Progress(progress)) => bar.at(progress.records_read, progress.head_sequence),
            Some(Event::Data(data)) => out.write_all(&data)?,
            Some(Event::Made(last)) => made = Some(last),
            None => {}
        }
    }
    let cut = || {
        Failure::failed("the daemon ended the stream before the bundle was complete: run the command again")
    };
    let made = made.ok_or_else(cut)?;
    let came = out.finish()?;
    if made.size_bytes != came.bytes() || made.sha256 != came.sha256().to_string() {
        return Err(Failure::failed(
            "the received bundle is not the one that the daemon created: run the command again",
        ));
    }
    disk.sync_all()?;
    Ok(made)
}
