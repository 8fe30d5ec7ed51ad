//! `coffer backup restore`.

use std::path::PathBuf;

use clap::Args;

use super::{LEFT_BEHIND, chain};
use crate::client::Context;
use crate::failure::{Ended, Failure};
use crate::time;

/// Restore a backup into an empty state directory, while no daemon uses it.
///
/// Run it as the user of the daemon, and start the daemon afterwards: its first record says that it continues from this backup. What was
/// granted or revoked after the backup is as it was before. Keep the old daemon stopped: two daemons of one log would fork it.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer backup restore cofferdam.backup --state-dir /var/lib/cofferdam --key-file backup.key"
)]
pub(crate) struct Restore {
    /// The backup.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The state directory, `state_dir` of the configuration: empty, or not there yet.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// File of the key under which it was encrypted.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Restore only if this is the digest that `coffer backup create` printed and the log has on record.
    #[arg(long, value_name = "HEX", value_parser = digest)]
    sha256: Option<String>,
}

fn digest(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a SHA-256 has 64 hexadecimal digits".into())
    }
}

impl Restore {
    #[allow(clippy::unused_async)] // as every verb
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let archive = ::backup::open(&self.file, self.key_file.as_deref())
            .map_err(|error| Failure::failed(format!("{}: {error}", self.file.display())))?;
        let restored = ::backup::restore(archive, self.sha256.as_deref(), &self.state_dir);
        let restored = restored.map_err(|error| Failure::failed(chain(&error)))?;
        context.ui.answer_and_talk(restored, |restored, page, talk| {
            page.facts(&[
                ("backup", restored.backup_id.clone()),
                ("made at", time::moment_of_millis(restored.made_at_ms)),
                ("last record", restored.last_sequence.to_string()),
                ("head", restored.last_hash.clone()),
            ]);
            talk.own(LEFT_BEHIND).own("\n");
            talk.own(
                "revoke again what was revoked after the backup was made: tokens, passkeys, permissions and consents\n",
            );
            talk.own("a node that was drained makes no runs until `coffer node undrain`\n");
        })
    }
}
