//! `coffer backup verify`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{check, interruptible};
use crate::client::Context;
use crate::failure::Ended;
use crate::time;

/// Verify a backup without a daemon: every file, and the audit log with its signatures.
///
/// The log takes space beside the file meanwhile, and leaves nothing, also after a kill.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer backup verify cofferdam.backup --key-file backup.key")]
pub(crate) struct Verify {
    /// The backup.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File of the key under which it was encrypted.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl Verify {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let checked = interruptible(check(&self.file, self.key_file.as_deref())).await?;
        let answer = json!({
            "backupId": checked.head.backup_id,
            "madeAt": time::moment_of_millis(checked.head.made_at_ms),
            "release": checked.head.release,
            "records": checked.records,
            "lastSequence": checked.last_sequence,
            "lastHash": checked.last_hash,
            "verifierKey": checked.head.verifier_key,
        });
        context.ui.answer(answer, |_, page| {
            page.facts(&[
                ("backup", checked.head.backup_id.clone()),
                ("made at", time::moment_of_millis(checked.head.made_at_ms)),
                ("release", checked.head.release.clone()),
                ("records", checked.records.to_string()),
                ("head", checked.last_hash.clone()),
                ("signed by", checked.head.verifier_key.clone()),
            ]);
            page.own("the backup is whole, and its audit log verifies\n");
        })
    }
}
