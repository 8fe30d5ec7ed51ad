//! Copies files and directories out of a run.
//!
//! The content is hostile: a name, a link or a member of an archive must not lead out of the destination.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use file_ops::archive::{Protected, Unpacked, unpack};
use wire::v1::download_archive_response::Piece as ArchivePiece;
use wire::v1::download_file_response::Piece as FilePiece;
use wire::v1::{DownloadArchiveRequest, DownloadEnded, DownloadFileRequest, ReadResult};

use super::hashed::Hashed;
use super::{TRIES, broke};
use crate::client::Client;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::quantity::{bytes, count};
use crate::ui::Ui;

pub(super) struct Download {
    pub(super) client: Client,
    pub(super) run_id: String,
    /// Path in the run.
    pub(super) path: String,
    pub(super) wait: bool,
}

/// An incomplete file. It is removed when this value is dropped, unless it was moved to its place.
struct Partial {
    path: PathBuf,
    file: File,
    is_placed: bool,
}

impl Download {
    pub(super) async fn to(self, ui: Ui, local: &Path) -> Ended {
        let to = if local.is_dir() { local.join(self.own_name()?) } else { local.to_owned() };
        match self.file(ui, &to).await {
            Err(NotAFile::Directory) => self.directory(ui, &to).await,
            Err(NotAFile::Failed(failure)) => Err(failure),
            Ok(exit) => Ok(exit),
        }
    }

    /// Returns the last name of the path in the run.
    fn own_name(&self) -> Result<&str, Failure> {
        let name = self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if matches!(name, "" | "." | "..") {
            return Err(Failure::usage("the path in the run has no name of its own: name the destination"));
        }
        Ok(name)
    }

    async fn file(&self, ui: Ui, to: &Path) -> Result<Exit, NotAFile> {
        let mut partial = None;
        let mut hashed = Hashed::default();
        let mut tries = TRIES;
        let bar = ui.bytes_bar();
        let ended = loop {
            match self.some(&bar, to, &mut partial, &mut hashed).await {
                Ok(ended) => break ended,
                Err(Stopped::Status(status)) if broke(&status) && tries > 0 => tries -= 1,
                Err(Stopped::Status(status)) if is_directory(&status) => return Err(NotAFile::Directory),
                Err(Stopped::Status(status)) => return Err(Failure::from(*status).into()),
                Err(Stopped::Local(error)) => {
                    return Err(Failure::failed(format!("{}: {error}", to.display())).into());
                }
            }
        };
        drop(bar);
        let ReadResult { sha256, size_bytes, .. } = ended.result.clone().unwrap_or_default();
        if hashed.bytes != size_bytes || hashed.hex() != sha256 {
            return Err(Failure::failed("the file changed while it was copied: copy it again").into());
        }
        let placed =
            partial.ok_or(io::ErrorKind::NotFound.into()).and_then(|partial: Partial| partial.place(to));
        placed.map_err(|error| Failure::failed(format!("{}: {error}", to.display())))?;
        let name = to.display().to_string();
        ui.answer(ended, |_, page| {
            page.own("copied to ")
                .word(&name)
                .own(": ")
                .word(&bytes(size_bytes))
                .own(", sha256 ")
                .word(&sha256);
            page.end_line();
        })?;
        Ok(Exit::Ok)
    }

    /// Downloads from the position where the last attempt stopped, until the end of the file or an error.
    async fn some(
        &self,
        bar: &crate::ui::Bar,
        to: &Path,
        partial: &mut Option<Partial>,
        hashed: &mut Hashed,
    ) -> Result<DownloadEnded, Stopped> {
        let request = DownloadFileRequest {
            run_id: self.run_id.clone(),
            path: self.path.clone(),
            offset: hashed.bytes,
            wait_for_approval: self.wait,
        };
        let mut stream = self.client.files().download_file(request).await?.into_inner();
        let mut total = 0;
        while let Some(message) = stream.message().await? {
            match message.piece {
                Some(FilePiece::Begin(begun)) => {
                    total = begun.size_bytes;
                    if partial.is_none() {
                        *partial = Some(Partial::create(to, begun.mode)?);
                    }
                }
                Some(FilePiece::Data(data)) => {
                    let partial = partial.as_mut().ok_or(io::ErrorKind::InvalidData)?;
                    partial.file.write_all(&data)?;
                    hashed.add(&data);
                    bar.at(hashed.bytes, total.max(hashed.bytes));
                }
                Some(FilePiece::End(ended)) => return Ok(ended),
                None => {}
            }
        }
        Err(Stopped::Status(Box::new(tonic::Status::unavailable("the download ended too soon"))))
    }

    async fn directory(&self, ui: Ui, to: &Path) -> Ended {
        let bar = ui.bytes_bar();
        let mut archive = tempfile::tempfile()?;
        let mut hashed = Hashed::default();
        let request = DownloadArchiveRequest {
            run_id: self.run_id.clone(),
            path: self.path.clone(),
            wait_for_approval: self.wait,
        };
        let mut stream = self.client.files().download_archive(request).await?.into_inner();
        let ended = loop {
            match stream.message().await?.and_then(|message| message.piece) {
                Some(ArchivePiece::Begin(_)) => {}
                Some(ArchivePiece::Data(data)) => {
                    archive.write_all(&data)?;
                    hashed.add(&data);
                    bar.at(hashed.bytes, hashed.bytes);
                }
                Some(ArchivePiece::End(ended)) => break ended,
                None => return Err(Failure::failed("the download ended too soon: copy it again")),
            }
        };
        drop(bar);
        let result = ended.result.clone().unwrap_or_default();
        if hashed.hex() != result.sha256 {
            return Err(Failure::failed("the archive was damaged on its way: copy it again"));
        }
        let Unpacked { entries, bytes: size, left_out } = here(&archive, to)?;
        let left_out = left_out + result.left_out;
        let name = to.display().to_string();
        ui.answer_and_talk(ended, |_, page, talk| {
            page.own("copied ").word(&count(entries, "entry", "entries")).own(" to ").word(&name);
            page.own(": ").word(&bytes(size)).end_line();
            if left_out > 0 {
                talk.word(&count(left_out, "entry was", "entries were"));
                talk.own(" left out: git's own files, special files, or links that lead out").end_line();
            }
        })
    }
}

/// Unpacks the archive in a directory, which is created if it is missing.
fn here(archive: &File, to: &Path) -> Result<Unpacked, Failure> {
    fs::create_dir_all(to)?;
    let root = jail::Root::open(jail::Mount::Project, to)?;
    let jail = jail::Jail::new([root], jail::Protection::default());
    let top = jail::SandboxPath::new(jail::Mount::Project, jail::RelPath::root());
    unpack(&jail, &top, archive, u64::MAX, Protected::LeftOut)
        .map_err(|failure| Failure::failed(failure.message.replace("@project/", "")))
}

/// Returns true if the daemon refused to read the path because it is a directory.
fn is_directory(status: &tonic::Status) -> bool {
    let details = tonic_types::StatusExt::get_error_details(status);
    details.error_info().is_some_and(|info| info.metadata.get("is").is_some_and(|is| is == "directory"))
}

/// Reason why no file was copied.
enum NotAFile {
    Directory,
    Failed(Failure),
}

impl From<Failure> for NotAFile {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Reason why a stream ended early.
enum Stopped {
    Status(Box<tonic::Status>),
    Local(io::Error),
}

impl From<tonic::Status> for Stopped {
    fn from(status: tonic::Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Local(error)
    }
}

impl From<io::ErrorKind> for Stopped {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Local(kind.into())
    }
}

impl Partial {
    /// Creates the incomplete file beside its destination.
    fn create(to: &Path, mode: u32) -> io::Result<Self> {
        let name = format!(".coffer-{}", uuid::Uuid::new_v4());
        let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = directory.join(name);
        // The umask reduces this mode.
        let file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o777 | 0o200).open(&path)?;
        Ok(Self { path, file, is_placed: false })
    }

    fn place(mut self, to: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, to)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}
