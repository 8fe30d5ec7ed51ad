//! `coffer backup create`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use ::backup::Encrypting;
use clap::Args;
use sha2::{Digest as _, Sha256};
use tokio_stream::StreamExt as _;
use wire::v1::create_backup_response::Event;
use wire::v1::{BackupMade, CreateBackupRequest};

use super::{LEFT_BEHIND, check, interruptible};
use crate::client::{Client, Context};
use crate::failure::{Ended, Failure};
use crate::quantity::{bytes, count};

/// Back up store, keys and audit log while the daemon works, and verify the result.
///
/// The backup holds the daemon's keys, so a reader of it can read what the daemon has sealed: encrypt it with `--key-file`, or keep it
/// as safe as the state directory. Only operators get one, on the socket or with a certificate. The log has it on record.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer backup create cofferdam.backup --key-file backup.key")]
pub(crate) struct Create {
    /// The new file to write, with mode 0600.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Encrypt it under the key in this file, 32 bytes. The file is made if there is none: keep it elsewhere.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl Create {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        // Fails if the file exists. It is opened for reading as well, to be verified.
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&self.file);
        let file =
            file.map_err(|error| Failure::failed(format!("cannot create {}: {error}", self.file.display())))?;
        let made = interruptible(self.make(&client, file)).await;
        if made.is_err() {
            // A backup that is not whole is worse than none. The first error is reported.
            let _ = std::fs::remove_file(&self.file);
        }
        let (made, records) = made?;
        context.ui.answer_and_talk(made, |made, _, talk| {
            talk.word(&self.file.display().to_string()).own(": ").word(&bytes(made.size_bytes)).own(" with ");
            talk.word(&count(records, "record", "records")).own(" of the audit log, verified\n");
            talk.own("sha256 ")
                .word(&made.sha256)
                .own("  (before encryption, for `coffer backup restore --sha256`)\n");
            talk.own(LEFT_BEHIND).own("\n");
        })
    }

    /// Receives the backup, and reads it back.
    async fn make(&self, client: &Client, file: File) -> Result<(BackupMade, u64), Failure> {
        let disk = file.try_clone()?;
        let made = receive(client, Out::new(file, self.key_file.as_deref())?).await?;
        disk.sync_all()?;
        let checked = check(&self.file, self.key_file.as_deref()).await?;
        if checked.head.backup_id != made.backup_id {
            return Err(Failure::failed(
                "the file is not the backup that the daemon sent: another program wrote it",
            ));
        }
        Ok((made, checked.records))
    }
}

/// File of an archive, encrypted or not.
enum Out {
    Plain(BufWriter<File>),
    Encrypted(Encrypting),
}

impl Out {
    fn new(file: File, key_file: Option<&std::path::Path>) -> Result<Self, Failure> {
        Ok(match key_file {
            None => Self::Plain(BufWriter::new(file)),
            Some(key_file) => Self::Encrypted(Encrypting::new(key_file, file).map_err(|error| {
                Failure::failed(format!("the key in {} cannot be used: {error}", key_file.display()))
            })?),
        })
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(data),
            Self::Encrypted(file) => file.write_all(data),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut file) => file.flush(),
            Self::Encrypted(file) => file.finish(),
        }
    }
}

async fn receive(client: &Client, mut out: Out) -> Result<BackupMade, Failure> {
    let mut events = client.backups().create_backup(CreateBackupRequest {}).await?.into_inner();
    let (mut made, mut came, mut sha256) = (None, 0, Sha256::new());
    while let Some(response) = events.next().await {
        match response?.event {
            Some(Event::Data(data)) => {
                sha256.update(&data);
                came += data.len() as u64;
                out.write(&data)?;
            }
            Some(Event::Made(last)) => made = Some(last),
            None => {}
        }
    }
    let made = made.ok_or_else(|| {
        Failure::failed("the daemon ended the stream before the backup was whole: run the command again")
    })?;
    let digest = hex::encode(sha256.finalize());
    if made.size_bytes != came || made.sha256 != digest {
        return Err(Failure::failed(
            "the received backup is not the one that the daemon made: run the command again",
        ));
    }
    out.finish()?;
    Ok(made)
}
