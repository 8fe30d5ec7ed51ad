//! Copies files and directories into a run.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use file_ops::archive::{Packed, pack};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use wire::v1::upload_archive_request::Piece as ArchivePiece;
use wire::v1::upload_file_request::Piece as FilePiece;
use wire::v1::{
    BeginUpload, GetUploadRequest, UploadArchiveRequest, UploadArchiveResponse, UploadFileRequest,
    UploadFileResponse, WriteResult,
};

use super::hashed::Hashed;
use super::{PIECE, TRIES, broke};
use crate::call::render_write;
use crate::client::{Client, quick};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::quantity::count;
use crate::ui::{Bar, Ui};

/// Number of messages that are read ahead.
const AHEAD: usize = 4;

pub(super) struct Upload {
    pub(super) client: Client,
    pub(super) run_id: String,
    /// Path in the run.
    pub(super) path: String,
    pub(super) create_only: bool,
    pub(super) wait: bool,
    /// True if the call is refused instead of waiting for a reviewer of another call.
    pub(super) refuse: bool,
}

impl Upload {
    pub(super) async fn file(self, ui: Ui, from: &Path) -> Ended {
        let unreadable = |error: io::Error| Failure::failed(format!("{}: {error}", from.display()));
        let file = File::open(from).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if !meta.is_file() {
            return Err(Failure::usage(format!("{} is neither a file nor a directory", from.display())));
        }
        let mut begin = BeginUpload {
            upload_id: new_id(),
            size_bytes: Some(meta.len()),
            mode: Some(meta.mode() & 0o777),
            create_only: self.create_only,
            ..self.begin()
        };
        let bar = ui.bytes_bar();
        let mut tries = TRIES;
        let (answer, sha256) = loop {
            let source = file.try_clone().map_err(unreadable)?;
            let (messages, read) = send_file(source, begin.clone());
            let mut files = self.client.files();
            let sent = files.upload_file(ReceiverStream::new(messages));
            let sent = watch(&bar, &read.done, meta.len(), sent).await;
            match sent {
                Ok(answer) => break (answer.into_inner(), read.hash.await),
                Err(status) if broke(&status) && tries > 0 => {
                    tries -= 1;
                    begin.offset = self.received(&begin.upload_id).await?;
                    if begin.offset == 0 {
                        // A call that the killed daemon admitted may still need the file of the old id.
                        begin.upload_id = new_id();
                    }
                }
                Err(status) => return Err(status.into()),
            }
        };
        drop(bar);
        let sha256 = sha256.ok().and_then(Result::ok).unwrap_or_default();
        let UploadFileResponse { ref result, .. } = answer;
        if result.as_ref().is_some_and(|result| result.sha256_after != sha256) {
            return Err(Failure::failed(format!("{} changed while it was read", from.display())));
        }
        let (approval, result) = (answer.approval_id.clone(), answer.result.clone());
        ui.answer_and_talk(answer, |_, page, talk| say(result.as_ref(), &approval, page, talk))?;
        Ok(if approval.is_empty() { Exit::Ok } else { Exit::AwaitingApproval })
    }

    pub(super) async fn directory(self, ui: Ui, from: &Path) -> Ended {
        if self.create_only {
            return Err(Failure::usage("--create-only is for files"));
        }
        let opened = jail::Root::open(jail::Mount::Project, from);
        let root = opened.map_err(|error| Failure::failed(format!("{}: {error}", from.display())))?;
        let (messages, mut packing) = send_directory(root, self.begin());
        let bar = ui.bytes_bar();
        let mut files = self.client.files();
        let sent = files.upload_archive(ReceiverStream::new(messages));
        let done = packing.done.clone();
        let sent = watch(&bar, &done, 0, sent).await;
        drop(bar);
        // The packing knows why the archive ended too early, so its error takes precedence over the daemon's.
        let packed = (&mut packing.packed).await.map_err(|error| Failure::failed(error.to_string()))?;
        let packed = match (packed, sent) {
            (Err(failure), _) => return Err(Failure::failed(failure.message)),
            (Ok(_), Err(status)) => return Err(status.into()),
            (Ok(packed), Ok(answer)) => (packed, answer.into_inner()),
        };
        let (Packed { left_out, .. }, answer) = packed;
        if left_out > 0 {
            let number = count(left_out, "entry was", "entries were");
            ui.note(&format!("{number} left out: git's own files, special files, or links that lead out"));
        }
        let UploadArchiveResponse { ref approval_id, ref result, .. } = answer;
        let (approval, result) = (approval_id.clone(), result.clone());
        ui.answer_and_talk(answer, |_, page, talk| say(result.as_ref(), &approval, page, talk))?;
        Ok(if approval.is_empty() { Exit::Ok } else { Exit::AwaitingApproval })
    }

    fn begin(&self) -> BeginUpload {
        BeginUpload {
            run_id: self.run_id.clone(),
            request_id: new_id(),
            path: self.path.clone(),
            wait_for_approval: self.wait,
            refuse_awaiting_approval: self.refuse,
            ..Default::default()
        }
    }

    /// Returns the number of bytes that the daemon has, or 0 if it no longer knows the upload.
    async fn received(&self, upload_id: &str) -> Result<u64, Failure> {
        let request = GetUploadRequest { run_id: self.run_id.clone(), upload_id: upload_id.to_owned() };
        match self.client.files().get_upload(quick(request)).await {
            Ok(answer) => Ok(answer.into_inner().received_bytes),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(0),
            Err(status) => Err(status.into()),
        }
    }
}

fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn say(
    result: Option<&WriteResult>,
    approval: &str,
    page: &mut crate::output::Output,
    talk: &mut crate::output::Output,
) {
    match result {
        Some(result) if result.entries > 0 => {
            page.own("unpacked ").word(&count(result.entries, "entry", "entries"));
            page.own(" in ").word(&result.path).own(": ").word(&crate::quantity::bytes(result.bytes_written));
            page.end_line();
        }
        Some(result) => render_write(result, page),
        None => {
            talk.own("awaiting approval ").word(approval).end_line();
        }
    }
}

/// Shows the progress of `work` until it ends.
async fn watch<T>(bar: &Bar, done: &AtomicU64, total: u64, work: impl Future<Output = T>) -> T {
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(100));
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            ended = &mut work => return ended,
            _ = ticks.tick() => {
                let done = done.load(Ordering::Relaxed);
                bar.at(done, total.max(done));
            }
        }
    }
}

/// A file that is being read.
struct Reading {
    done: Arc<AtomicU64>,
    /// Hash of the whole file, after it was read.
    hash: JoinHandle<io::Result<String>>,
}

/// Reads the file from its beginning to compute its hash, and sends the part after the offset.
fn send_file(mut file: File, begin: BeginUpload) -> (mpsc::Receiver<UploadFileRequest>, Reading) {
    let (sender, messages) = mpsc::channel(AHEAD);
    let done = Arc::new(AtomicU64::new(0));
    let counted = done.clone();
    let send = move || -> io::Result<String> {
        let message = |piece| UploadFileRequest { piece: Some(piece) };
        let (offset, size) = (begin.offset, begin.size_bytes.unwrap_or(u64::MAX));
        // If the stream has ended, its answer gives the reason.
        let _ = sender.blocking_send(message(FilePiece::Begin(begin)));
        let mut hashed = Hashed::default();
        file.rewind()?;
        let mut file = file.take(size);
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            let most =
                if hashed.bytes < offset { (offset - hashed.bytes).min(PIECE as u64) } else { PIECE as u64 };
            file.by_ref().take(most).read_to_end(&mut piece)?;
            if piece.is_empty() {
                return Ok(hashed.hex());
            }
            let is_sent = hashed.bytes >= offset;
            hashed.add(&piece);
            counted.store(hashed.bytes, Ordering::Relaxed);
            if is_sent && sender.blocking_send(message(FilePiece::Data(piece.into()))).is_err() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    };
    (messages, Reading { done, hash: tokio::task::spawn_blocking(send) })
}

/// A directory that is being packed.
struct Packing {
    done: Arc<AtomicU64>,
    packed: JoinHandle<Result<Packed, operations::ToolFailure>>,
}

fn send_directory(root: jail::Root, begin: BeginUpload) -> (mpsc::Receiver<UploadArchiveRequest>, Packing) {
    let (sender, messages) = mpsc::channel(AHEAD);
    let done = Arc::new(AtomicU64::new(0));
    let mut pieces = Pieces { piece: Vec::new(), sender, done: done.clone() };
    let packed = tokio::task::spawn_blocking(move || {
        let begin = UploadArchiveRequest { piece: Some(ArchivePiece::Begin(begin)) };
        let _ = pieces.sender.blocking_send(begin);
        let jail = jail::Jail::new([root], jail::Protection::default());
        let top = jail::SandboxPath::new(jail::Mount::Project, jail::RelPath::root());
        pack(&jail, &top, jail::Access::Write, u64::MAX, &mut pieces)
    });
    (messages, Packing { done, packed })
}

/// Writer that sends the archive in messages.
struct Pieces {
    piece: Vec<u8>,
    sender: mpsc::Sender<UploadArchiveRequest>,
    done: Arc<AtomicU64>,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        let message = UploadArchiveRequest { piece: Some(ArchivePiece::Data(piece.into())) };
        self.sender.blocking_send(message).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        self.done.fetch_add(taken as u64, Ordering::Relaxed);
        if self.piece.len() >= PIECE {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}
